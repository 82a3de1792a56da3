// Sums the tokens of windows, and refuses samples that cannot be cut.
#include "dataset/order/chunk_windows.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/job_syntax.h"
#include "core/status.h"
#include "dataset/order/index_order.h"
#include "dataset/order/step_table.h"

namespace evenkeel::dataset {
namespace {

constexpr size_t kRecentWindows = 8;

}  // namespace

ChunkWindows::ChunkWindows(const Job& job, const Index& index, const DrawOrder& draws)
    : job_(job),
      index_(index),
      draws_(draws),
      chunk_(job.batch.chunk),
      window_(std::clamp<uint64_t>(job.batch.window_samples, 1, kMaxWindowSamples)),
      key_(StepTableKey(job, index)),
      recent_(kRecentWindows) {}

// A cut anywhere leaves media whole and labels known only where there are no media, and every token but the first is trained.
absl::Status ChunkWindows::CheckTextAlone(const SampleRef& ref, const SampleLengths& lengths) const {
  if (lengths.items.empty() && lengths.loss_tokens + 1 == lengths.llm_length) return absl::OkStatus();
  const std::string name = SampleName(job_, index_, ref);
  return absl::InvalidArgumentError(absl::StrCat(
      name, ": ",
      lengths.chosen_length != 0 ? "it is a preference pair"
      : lengths.items.empty()
          ? absl::StrCat(lengths.loss_tokens, " of its ", lengths.llm_length, " tokens are trained")
          : absl::StrCat("it has ", lengths.items.size(), " media"),
      "; batch.chunk cuts texts that are trained whole. Leave the sample out with exclude, or use "
      "batch.pack"));
}

absl::StatusOr<std::shared_ptr<const ChunkWindows::Window>> ChunkWindows::WindowAt(uint64_t number) const {
  if (std::shared_ptr<const Window> kept = recent_.Find(number)) return kept;
  auto window = std::make_shared<Window>();
  EVENKEEL_ASSIGN_OR_RETURN(window->refs, draws_.Run(number * window_, window_));
  if (window->refs.empty()) return DrawsEndBefore(number);
  std::vector<uint32_t> lengths(window->refs.size());
  EVENKEEL_RETURN_IF_ERROR(VisitInIndexOrder(window->refs, [&](size_t i) {
    const SampleRef& ref = window->refs[i];
    const absl::StatusOr<SampleLengths> read = index_.lengths(ref.dataset, ref.index);
    if (!read.ok()) return read.status();
    lengths[i] = read->llm_length;
    return CheckTextAlone(ref, *read);
  }));
  uint64_t tokens = 0;
  window->begins.reserve(lengths.size() + 1);
  window->begins.push_back(0);
  for (uint32_t length : lengths) {
    tokens += length;
    if (tokens > std::numeric_limits<uint32_t>::max()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "a window of ", window_, " samples has more than 2^32 - 1 tokens; lower batch.window_samples"));
    }
    window->begins.push_back(static_cast<uint32_t>(tokens));
  }
  return recent_.Keep(number, std::shared_ptr<const Window>(std::move(window)));
}

absl::StatusOr<uint32_t> ChunkWindows::CountSteps(uint64_t window) const {
  EVENKEEL_ASSIGN_OR_RETURN(const std::shared_ptr<const Window> made, WindowAt(window));
  return made->begins.back();
}

}  // namespace evenkeel::dataset
