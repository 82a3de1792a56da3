// Cuts windows by a budget of tokens: next fit, with the smallest budget that needs no more steps.
#include "dataset/order/token_windows.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/job_syntax.h"
#include "core/status.h"
#include "dataset/order/index_order.h"
#include "dataset/order/step_table.h"

namespace evenkeel::dataset {
namespace {

constexpr size_t kRecentWindows = 8;

// The number of runs of a next-fit whose runs have at most `cap` tokens. A longer sample is a run of its own.
template <typename Visit>
uint64_t NextFit(std::span<const uint32_t> lengths, uint64_t cap, Visit start) {
  uint64_t runs = 0, load = 0;
  for (uint32_t i = 0; i < lengths.size(); ++i) {
    if (runs == 0 || load + lengths[i] > cap) {
      start(i);
      ++runs;
      load = 0;
    }
    load += lengths[i];
  }
  return runs;
}

}  // namespace

std::vector<uint32_t> CutWindow(std::span<const uint32_t> lengths, uint64_t budget) {
  auto ignore = [](uint32_t) {};
  const uint64_t fewest = NextFit(lengths, budget, ignore);
  // Binary search for the smallest cap that needs no more runs. Samples above the budget are alone under
  // every cap, so they do not matter.
  uint64_t low = 0, high = budget;
  for (uint32_t length : lengths) {
    if (length <= budget) low = std::max<uint64_t>(low, length);
  }
  while (low < high) {
    uint64_t middle = low + (high - low) / 2;
    if (NextFit(lengths, middle, ignore) <= fewest) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  std::vector<uint32_t> starts;
  NextFit(lengths, high, [&](uint32_t i) { starts.push_back(i); });
  return starts;
}

TokenWindows::TokenWindows(const Job& job, const Index& index, const DrawOrder& draws)
    : index_(index),
      draws_(draws),
      budget_(job.batch.llm_tokens),
      window_(std::clamp<uint64_t>(job.batch.window_samples, 1, kMaxWindowSamples)),
      key_(StepTableKey(job, index)),
      recent_(kRecentWindows) {}

// Lengths of all draws of a window.
absl::StatusOr<std::vector<uint32_t>> TokenWindows::ReadLengths(uint64_t window) const {
  EVENKEEL_ASSIGN_OR_RETURN(const std::vector<SampleRef> refs, draws_.Run(window * window_, window_));
  std::vector<uint32_t> lengths(refs.size());
  EVENKEEL_RETURN_IF_ERROR(VisitInIndexOrder(refs, [&](size_t i) {
    const absl::StatusOr<uint32_t> length = index_.llm_length(refs[i].dataset, refs[i].index);
    if (length.ok()) lengths[i] = *length;
    return length.status();
  }));
  return lengths;
}

absl::StatusOr<TokenWindows::Starts> TokenWindows::StartsOf(uint64_t window) const {
  if (Starts kept = recent_.Find(window)) return kept;
  EVENKEEL_ASSIGN_OR_RETURN(const std::vector<uint32_t> lengths, ReadLengths(window));
  if (lengths.empty()) return DrawsEndBefore(window);
  std::vector<uint32_t> starts = CutWindow(lengths, budget_);
  starts.push_back(static_cast<uint32_t>(lengths.size()));
  return recent_.Keep(window, std::make_shared<const std::vector<uint32_t>>(std::move(starts)));
}

absl::StatusOr<uint32_t> TokenWindows::CountSteps(uint64_t window) const {
  EVENKEEL_ASSIGN_OR_RETURN(const Starts starts, StartsOf(window));
  return static_cast<uint32_t>(starts->size() - 1);
}

absl::StatusOr<TokenWindows::Range> TokenWindows::DrawsOf(uint64_t window, uint32_t step) const {
  EVENKEEL_ASSIGN_OR_RETURN(const Starts starts, StartsOf(window));
  if (step + 1 >= starts->size()) {
    return absl::OutOfRangeError(
        absl::StrCat("window ", window, " has ", starts->size() - 1, " steps, not ", uint64_t{step} + 1));
  }
  const uint64_t base = window * window_;
  return Range{base + (*starts)[step], base + (*starts)[step + 1]};
}

}  // namespace evenkeel::dataset
