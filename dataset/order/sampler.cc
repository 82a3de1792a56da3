// Two samplers: a fixed number of samples a step, and a budget of llm tokens by the table of steps.
#include "dataset/order/sampler.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/status.h"
#include "dataset/order/draw_order.h"
#include "dataset/order/step_table.h"

namespace evenkeel::dataset {
namespace {

constexpr uint64_t kMaxPosition = 1ull << 62;

class DrawingSampler : public Sampler {
 public:
  DrawingSampler(const Job& job, const Index& index, std::unique_ptr<DrawOrder> draws)
      : index_(index), batch_(job.batch), draws_(std::move(draws)) {
    if (batch_.samples == 0) table_.emplace(job, index, *draws_);
  }

  absl::StatusOr<StepSamples> Samples(uint64_t step) const override {
    EVENKEEL_ASSIGN_OR_RETURN(StepTable::Range range, RangeOf(step));
    StepSamples out;
    out.step = step;
    for (uint64_t position = range.begin; position < range.end; ++position) {
      EVENKEEL_ASSIGN_OR_RETURN(const SampleRef ref, draws_->At(position));
      EVENKEEL_ASSIGN_OR_RETURN(SampleLengths lengths, index_.lengths(ref.dataset, ref.index));
      out.refs.push_back(ref);
      out.lengths.push_back(std::move(lengths));
    }
    return out;
  }

  absl::StatusOr<bool> Extend(uint64_t step) const override {
    return table_.has_value() ? table_->Extend(step) : true;
  }

 private:
  absl::StatusOr<StepTable::Range> RangeOf(uint64_t step) const {
    if (table_) return table_->At(step);
    if (step >= kMaxPosition / batch_.samples) {
      return absl::OutOfRangeError(
          absl::StrCat("step ", step, " is too large: sample positions end at 2^62"));
    }
    return StepTable::Range{step * batch_.samples, (step + 1) * batch_.samples};
  }

  const Index& index_;
  const BatchSpec batch_;
  const std::unique_ptr<DrawOrder> draws_;
  std::optional<StepTable> table_;  // only for a budget of llm tokens
};

}  // namespace

absl::StatusOr<std::unique_ptr<Sampler>> Sampler::Make(const Job& job, const Index& index) {
  if ((job.batch.samples == 0) == (job.batch.llm_tokens == 0)) {
    return absl::InvalidArgumentError(absl::StrCat(job.path, ": batch needs either samples or llm_tokens"));
  }
  EVENKEEL_ASSIGN_OR_RETURN(std::unique_ptr<DrawOrder> draws, DrawOrder::Make(job, index));
  return std::unique_ptr<Sampler>(std::make_unique<DrawingSampler>(job, index, std::move(draws)));
}

}  // namespace evenkeel::dataset
