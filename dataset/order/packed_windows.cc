// Reads the lengths of a window, has them packed, and keeps the bins of the last windows.
#include "dataset/order/packed_windows.h"

#include <algorithm>
#include <span>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/job_syntax.h"
#include "core/status.h"
#include "dataset/order/index_order.h"
#include "dataset/order/permutation.h"
#include "dataset/order/step_table.h"

namespace evenkeel::dataset {
namespace {

constexpr size_t kRecentWindows = 4;
constexpr uint64_t kPackKey = 0x7061636b;  // apart from the keys of other orders

uint64_t EpochOf(const Job& job, const Index& index) {
  return job.datasets.size() == 1 ? index.num_samples(0) : 0;
}

}  // namespace

WindowDraws::WindowDraws(uint64_t window_samples, uint64_t epoch)
    : epoch_(epoch), most_(std::clamp<uint64_t>(window_samples, 1, kMaxWindowSamples)) {
  if (epoch == 0) return;
  windows_ = (epoch - 1) / most_ + 1;
  most_ = (epoch - 1) / windows_ + 1;
}

uint64_t WindowDraws::First(uint64_t window) const {
  if (epoch_ == 0) return window * most_;
  // The first windows of an epoch have one draw more where they do not divide it.
  const uint64_t in_epoch = window % windows_, least = epoch_ / windows_, longer = epoch_ % windows_;
  return window / windows_ * epoch_ + in_epoch * least + std::min(in_epoch, longer);
}

PackedWindows::PackedWindows(const Job& job, const Index& index, const DrawOrder& draws, const Packer& packer)
    : job_(job),
      index_(index),
      draws_(draws),
      packer_(packer),
      bins_(job.batch.pack.bins),
      draws_of_(job.batch.window_samples, EpochOf(job, index)),
      key_(StepTableKey(job, index)),
      recent_(kRecentWindows) {}

absl::Status PackedWindows::NameSample(const absl::Status& status, const std::vector<SampleRef>& refs,
                                       const std::vector<SampleLengths>& lengths) const {
  for (size_t i = 0; i < refs.size(); ++i) {
    const absl::Status held = packer_.Check(lengths[i]);
    if (held.ok()) continue;
    const std::string name = SampleName(job_, index_, refs[i]);
    return absl::Status(held.code(), absl::StrCat(name, ": ", held.message()));
  }
  return status;
}

absl::StatusOr<PackedWindows::Window> PackedWindows::MakeWindow(uint64_t number) const {
  EVENKEEL_ASSIGN_OR_RETURN(const std::vector<SampleRef> refs,
                            draws_.Run(draws_of_.First(number), draws_of_.Count(number)));
  if (refs.empty()) return DrawsEndBefore(number);
  std::vector<SampleLengths> lengths(refs.size());
  EVENKEEL_RETURN_IF_ERROR(VisitInIndexOrder(refs, [&](size_t i) {
    absl::StatusOr<SampleLengths> read = index_.lengths(refs[i].dataset, refs[i].index);
    if (read.ok()) lengths[i] = *std::move(read);
    return read.status();
  }));
  const absl::StatusOr<std::vector<std::vector<uint32_t>>> bins =
      packer_.Pack(lengths, MixKey({job_.seed, kPackKey, number}));
  if (!bins.ok()) return NameSample(bins.status(), refs, lengths);
  Window window{.bin_begin = {0}};
  window.draws.reserve(refs.size());
  for (const std::vector<uint32_t>& bin : *bins) {
    window.draws.insert(window.draws.end(), bin.begin(), bin.end());
    window.bin_begin.push_back(static_cast<uint32_t>(window.draws.size()));
  }
  return window;
}

absl::StatusOr<std::shared_ptr<const PackedWindows::Window>> PackedWindows::WindowAt(uint64_t number) const {
  if (std::shared_ptr<const Window> kept = recent_.Find(number)) return kept;
  EVENKEEL_ASSIGN_OR_RETURN(Window window, MakeWindow(number));
  return recent_.Keep(number, std::make_shared<const Window>(std::move(window)));
}

absl::StatusOr<uint32_t> PackedWindows::CountSteps(uint64_t window) const {
  EVENKEEL_ASSIGN_OR_RETURN(const std::shared_ptr<const Window> made, WindowAt(window));
  return static_cast<uint32_t>((made->bin_begin.size() - 1) / bins_);
}

absl::StatusOr<StepBins> PackedWindows::BinsOf(uint64_t window, uint32_t step) const {
  EVENKEEL_ASSIGN_OR_RETURN(const std::shared_ptr<const Window> made, WindowAt(window));
  const uint64_t first_bin = uint64_t{step} * bins_;
  if (first_bin + bins_ >= made->bin_begin.size()) {
    return absl::OutOfRangeError(absl::StrCat("window ", window, " has ",
                                              (made->bin_begin.size() - 1) / bins_, " steps, not ",
                                              uint64_t{step} + 1));
  }
  const std::span<const uint32_t> begins = std::span(made->bin_begin).subspan(first_bin, bins_ + 1);
  StepBins out;
  for (uint32_t begin : begins) out.bin_begin.push_back(begin - begins.front());
  const uint64_t first_draw = draws_of_.First(window);
  for (uint32_t i = begins.front(); i < begins.back(); ++i) out.draws.push_back(first_draw + made->draws[i]);
  return out;
}

}  // namespace evenkeel::dataset
