// Three samplers: a fixed number of samples a step; a budget of llm tokens, and bins, by the table of steps.
#include "dataset/order/sampler.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "core/status.h"
#include "dataset/order/draw_order.h"
#include "dataset/order/packed_windows.h"
#include "dataset/order/step_table.h"
#include "dataset/order/token_windows.h"

namespace evenkeel::dataset {
namespace {

constexpr uint64_t kMaxPosition = 1ull << 62;

// What the samplers share: draws become samples with their lengths.
class DrawingSampler : public Sampler {
 public:
  DrawingSampler(const Index& index, std::unique_ptr<DrawOrder> draws)
      : index_(index), draws_(std::move(draws)) {}

 protected:
  absl::Status Append(uint64_t draw, StepSamples& out) const {
    EVENKEEL_ASSIGN_OR_RETURN(const SampleRef ref, draws_->At(draw));
    EVENKEEL_ASSIGN_OR_RETURN(SampleLengths lengths, index_.lengths(ref.dataset, ref.index));
    out.refs.push_back(ref);
    out.lengths.push_back(std::move(lengths));
    return absl::OkStatus();
  }
  absl::StatusOr<StepSamples> AppendAll(uint64_t step, uint64_t begin, uint64_t end) const {
    StepSamples out{.step = step};
    for (uint64_t draw = begin; draw < end; ++draw) EVENKEEL_RETURN_IF_ERROR(Append(draw, out));
    return out;
  }
  const DrawOrder& draws() const { return *draws_; }

 private:
  const Index& index_;
  const std::unique_ptr<DrawOrder> draws_;
};

class CountSampler : public DrawingSampler {
 public:
  CountSampler(const Job& job, const Index& index, std::unique_ptr<DrawOrder> draws)
      : DrawingSampler(index, std::move(draws)), samples_(job.batch.samples) {}

  absl::StatusOr<StepSamples> Samples(uint64_t step) const override {
    if (step >= kMaxPosition / samples_) {
      return absl::OutOfRangeError(
          absl::StrCat("step ", step, " is too large: sample positions end at 2^62"));
    }
    return AppendAll(step, step * samples_, (step + 1) * samples_);
  }

 private:
  const uint64_t samples_;
};

class BudgetSampler : public DrawingSampler {
 public:
  BudgetSampler(const Job& job, const Index& index, std::unique_ptr<DrawOrder> draws)
      : DrawingSampler(index, std::move(draws)),
        windows_(job, index, this->draws()),
        table_(job.index, windows_) {}

  absl::StatusOr<StepSamples> Samples(uint64_t step) const override {
    EVENKEEL_ASSIGN_OR_RETURN(const StepTable::Place place, table_.At(step));
    const absl::StatusOr<TokenWindows::Range> range = windows_.DrawsOf(place.window, place.step);
    if (absl::IsOutOfRange(range.status())) return table_.BelongsElsewhere();
    EVENKEEL_RETURN_IF_ERROR(range.status());
    return AppendAll(step, range->begin, range->end);
  }

  absl::StatusOr<bool> Extend(uint64_t step) const override { return table_.Extend(step); }

 private:
  const TokenWindows windows_;
  const StepTable table_;
};

class BinSampler : public DrawingSampler {
 public:
  BinSampler(const Job& job, const Index& index, std::unique_ptr<DrawOrder> draws,
             std::unique_ptr<const Packer> packer)
      : DrawingSampler(index, std::move(draws)),
        packer_(std::move(packer)),
        windows_(job, index, this->draws(), *packer_),
        table_(job.index, windows_) {}

  absl::StatusOr<StepSamples> Samples(uint64_t step) const override {
    EVENKEEL_ASSIGN_OR_RETURN(const StepTable::Place place, table_.At(step));
    absl::StatusOr<StepBins> bins = windows_.BinsOf(place.window, place.step);
    if (absl::IsOutOfRange(bins.status())) return table_.BelongsElsewhere();
    EVENKEEL_RETURN_IF_ERROR(bins.status());
    StepSamples out{.step = step};
    for (uint64_t draw : bins->draws) EVENKEEL_RETURN_IF_ERROR(Append(draw, out));
    out.bin_begin = std::move(bins->bin_begin);
    return out;
  }

  absl::StatusOr<bool> Extend(uint64_t step) const override { return table_.Extend(step); }

 private:
  const std::unique_ptr<const Packer> packer_;
  const PackedWindows windows_;
  const StepTable table_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Sampler>> Sampler::Make(const Job& job, const Index& index,
                                                       std::unique_ptr<const Packer> packer) {
  const BatchSpec& batch = job.batch;
  const int sizes = (batch.samples > 0) + (batch.llm_tokens > 0) + (batch.pack.bins > 0);
  if (sizes != 1) {
    return absl::InvalidArgumentError(
        absl::StrCat(job.path, ": batch needs one of samples, llm_tokens and pack"));
  }
  if (batch.pack.bins > 0 && packer == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(job.path, ": batch.pack needs a packer"));
  }
  EVENKEEL_ASSIGN_OR_RETURN(std::unique_ptr<DrawOrder> draws, DrawOrder::Make(job, index));
  if (batch.samples > 0) return std::make_unique<CountSampler>(job, index, std::move(draws));
  if (batch.llm_tokens > 0) return std::make_unique<BudgetSampler>(job, index, std::move(draws));
  return std::make_unique<BinSampler>(job, index, std::move(draws), std::move(packer));
}

}  // namespace evenkeel::dataset
