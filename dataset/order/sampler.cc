// Four samplers: a fixed number of samples a step; a budget of llm tokens, bins, and chunks, by the table of steps.
#include "dataset/order/sampler.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/status.h"
#include "dataset/order/chunk_windows.h"
#include "dataset/order/draw_order.h"
#include "dataset/order/mixture.h"
#include "dataset/order/packed_windows.h"
#include "dataset/order/step_table.h"
#include "dataset/order/token_windows.h"

namespace evenkeel::dataset {
namespace {

constexpr uint64_t kMaxPosition = kNever;

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
  // Of steps that the table numbers.
  absl::StatusOr<std::optional<uint64_t>> StepsOf(const StepTable& table, uint64_t units_of_step) const {
    if (draws_->end() == kNever) return std::nullopt;
    if (draws_->end() > kMaxAheadDraws) {
      return absl::FailedPreconditionError(
          absl::StrCat("with its max_epochs the stream has ", draws_->end(),
                       " samples; where a step has no fixed number of them it can end after at most ",
                       kMaxAheadDraws, ". Leave max_epochs out, and give the trainer a number of steps"));
    }
    EVENKEEL_ASSIGN_OR_RETURN(const uint64_t units, table.NumSteps());
    if (units >= units_of_step) return units / units_of_step;
    return absl::FailedPreconditionError(absl::StrCat(
        "with its max_epochs the stream ends before its first step: it has ", draws_->end(), " samples"));
  }

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
    if ((step + 1) * samples_ > draws().end()) return PastTheEnd(step, draws().end() / samples_);
    return AppendAll(step, step * samples_, (step + 1) * samples_);
  }

  absl::StatusOr<std::optional<uint64_t>> NumSteps() const override {
    if (draws().end() == kNever) return std::nullopt;
    if (draws().end() >= samples_) return draws().end() / samples_;
    return absl::FailedPreconditionError(absl::StrCat("with its max_epochs the stream has ", draws().end(),
                                                      " samples, fewer than the ", samples_, " of a step"));
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
  absl::StatusOr<std::optional<uint64_t>> NumSteps() const override { return StepsOf(table_, 1); }

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
  absl::StatusOr<std::optional<uint64_t>> NumSteps() const override { return StepsOf(table_, 1); }

 private:
  const std::unique_ptr<const Packer> packer_;
  const PackedWindows windows_;
  const StepTable table_;
};

class ChunkSampler : public DrawingSampler {
 public:
  ChunkSampler(const Job& job, const Index& index, std::unique_ptr<DrawOrder> draws)
      : DrawingSampler(index, std::move(draws)),
        chunk_(job.batch.chunk),
        windows_(job, index, this->draws()),
        table_(job.index, windows_) {}

  absl::StatusOr<StepSamples> Samples(uint64_t step) const override {
    EVENKEEL_ASSIGN_OR_RETURN(const uint64_t last, LastToken(step));
    EVENKEEL_RETURN_IF_ERROR(table_.At(last).status());  // so that every window of the step is known
    EVENKEEL_ASSIGN_OR_RETURN(const StepTable::Place first, table_.At(last + 1 - TokensOfStep()));
    StepSamples out{.step = step, .bin_begin = {0}};
    uint64_t left = TokensOfStep(), of_chunk = chunk_.length, skip = first.step;
    for (uint64_t number = first.window; left > 0; ++number, skip = 0) {
      EVENKEEL_ASSIGN_OR_RETURN(const std::shared_ptr<const ChunkWindows::Window> window,
                                windows_.WindowAt(number));
      if (skip >= window->begins.back()) return table_.BelongsElsewhere();
      const auto after = std::upper_bound(window->begins.begin(), window->begins.end(), skip);
      for (size_t i = static_cast<size_t>(after - window->begins.begin()) - 1;
           i < window->refs.size() && left > 0; ++i) {
        const uint32_t begin = window->begins[i], length = window->begins[i + 1] - begin;
        EVENKEEL_RETURN_IF_ERROR(AppendPieces(window->refs[i], length, skip > begin ? skip - begin : 0, left,
                                              of_chunk, chunk_.length, out));
      }
    }
    return out;
  }

  absl::StatusOr<bool> Extend(uint64_t step) const override {
    EVENKEEL_ASSIGN_OR_RETURN(const uint64_t last, LastToken(step));
    return table_.Extend(last);
  }
  absl::StatusOr<std::optional<uint64_t>> NumSteps() const override {
    return StepsOf(table_, windows_.units_of_step());
  }

 private:
  uint64_t TokensOfStep() const { return chunk_.length * chunk_.count; }

  absl::StatusOr<uint64_t> LastToken(uint64_t step) const {
    if (step < kMaxPosition / TokensOfStep()) return (step + 1) * TokensOfStep() - 1;
    return absl::OutOfRangeError(absl::StrCat("step ", step, " is too large: tokens end at 2^62"));
  }

  // A text's tokens from `at` on, cut where chunks end. `left`: tokens that the step needs; `of_chunk`: the chunk in work.
  static absl::Status AppendPieces(const SampleRef& ref, uint64_t length, uint64_t at, uint64_t& left,
                                   uint64_t& of_chunk, uint64_t chunk_length, StepSamples& out) {
    while (at < length && left > 0) {
      if (out.refs.size() == kMaxPieces) {
        return absl::FailedPreconditionError(absl::StrCat("step ", out.step, " has more than ", kMaxPieces,
                                                          " pieces of texts; lower batch.chunk"));
      }
      const uint64_t count = std::min(length - at, of_chunk);
      out.refs.push_back(ref);
      out.lengths.push_back(
          {.llm_length = static_cast<uint32_t>(count), .loss_tokens = static_cast<uint32_t>(count - 1)});
      out.pieces.push_back({static_cast<uint32_t>(at), static_cast<uint32_t>(length)});
      at += count;
      left -= count;
      of_chunk -= count;
      if (of_chunk > 0) continue;
      out.bin_begin.push_back(static_cast<uint32_t>(out.refs.size()));
      of_chunk = chunk_length;
    }
    return absl::OkStatus();
  }

  static constexpr size_t kMaxPieces = 1 << 24;

  const ChunkSpec chunk_;
  const ChunkWindows windows_;
  const StepTable table_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Sampler>> Sampler::Make(const Job& job, const Index& index,
                                                       std::unique_ptr<const Packer> packer) {
  const BatchSpec& batch = job.batch;
  const int sizes =
      (batch.samples > 0) + (batch.llm_tokens > 0) + (batch.pack.bins > 0) + (batch.chunk.count > 0);
  if (sizes != 1) {
    return absl::InvalidArgumentError(
        absl::StrCat(job.path, ": batch needs one of samples, llm_tokens, pack and chunk"));
  }
  if (batch.pack.bins > 0 && packer == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(job.path, ": batch.pack needs a packer"));
  }
  EVENKEEL_ASSIGN_OR_RETURN(std::unique_ptr<DrawOrder> draws, DrawOrder::Make(job, index));
  if (batch.samples > 0) return std::make_unique<CountSampler>(job, index, std::move(draws));
  if (batch.llm_tokens > 0) return std::make_unique<BudgetSampler>(job, index, std::move(draws));
  if (batch.chunk.count > 0) return std::make_unique<ChunkSampler>(job, index, std::move(draws));
  return std::make_unique<BinSampler>(job, index, std::move(draws), std::move(packer));
}

}  // namespace evenkeel::dataset
