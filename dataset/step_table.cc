#include "dataset/step_table.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/job_syntax.h"
#include "core/status.h"
#include "dataset/index_folder.h"
#include "dataset/little_endian.h"

namespace evenkeel::dataset {
namespace {

constexpr size_t kRecentSegments = 8;
constexpr uint64_t kMaxSegments = 1 << 24;

// Runs that a next-fit needs when no run may exceed `cap`; a longer sample is a run of its own.
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

Digest StepTableKey(const Job& job, const Index& index) {
  CanonicalText text("evenkeel steps 1");
  text.Add("stream_version", uint64_t{kStreamVersion});
  text.Add("index", index.digest().Hex());
  text.Add("seed", job.seed);
  text.Add("llm_tokens", job.batch.llm_tokens);
  text.Add("window_samples", job.batch.window_samples);
  text.Add("shuffle", static_cast<uint64_t>(job.order.shuffle));
  text.Add("block_samples", job.order.block_samples);
  text.Add("window_blocks", job.order.window_blocks);
  for (uint32_t d = 0; d < job.datasets.size(); ++d) {
    text.Add("weight", job.datasets[d].weight);
    text.Add("samples", index.num_samples(d));
  }
  for (const std::string& line : job.exclude) text.Add("exclude", line);
  return text.digest();
}

std::vector<uint32_t> CutWindow(std::span<const uint32_t> lengths, uint64_t budget) {
  auto ignore = [](uint32_t) {};
  const uint64_t fewest = NextFit(lengths, budget, ignore);
  // The least cap that needs no more runs. Samples above the budget are alone under every cap.
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

StepTable::StepTable(const Job& job, const Index& index, const Draws& draws)
    : index_(index),
      draws_(draws),
      folder_(job.index),
      budget_(job.batch.llm_tokens),
      window_(std::clamp<uint64_t>(job.batch.window_samples, 1, kMaxWindowSamples)),
      key_(StepTableKey(job, index)) {}

std::string StepTable::SegmentPath(uint64_t segment) const {
  return ColumnPath(folder_, FileKind::kSteps, DigestOf(absl::StrCat(key_.Hex(), " ", segment)));
}

absl::StatusOr<std::shared_ptr<const StepTable::Segment>> StepTable::LoadSegment(uint64_t segment,
                                                                                 uint64_t first_step) const {
  const std::string path = SegmentPath(segment);
  EVENKEEL_ASSIGN_OR_RETURN(std::unique_ptr<PagedFile> file,
                            PagedFile::Open(*files_, cache_, path, FileKind::kSteps));
  const PagedHeader& header = file->header();
  uint64_t bytes = file->section_bytes(0);
  if (header.key != key_ || header.numbers[0] != segment || header.numbers[1] != first_step ||
      bytes % 4 != 0 || bytes == 0 || bytes / 4 > segment_draws()) {
    return file->Damaged("not the table that its name says");
  }
  std::string starts(bytes, '\0');
  EVENKEEL_RETURN_IF_ERROR(file->Read(0, 0, std::as_writable_bytes(std::span(starts))));
  auto out = std::make_shared<Segment>();
  out->stored = true;
  for (uint64_t i = 0; i < bytes / 4; ++i) {
    uint32_t start = static_cast<uint32_t>(GetLittle(starts.data() + 4 * i, 4));
    bool ascends = i == 0 ? start == 0 : start > out->starts.back();
    if (!ascends || start >= segment_draws()) return file->Damaged("steps out of order");
    out->starts.push_back(start);
  }
  return out;
}

// Of all draws of a segment. Rows are read in the order of the index, not of the draws: neighbours share
// pages.
absl::StatusOr<std::vector<uint32_t>> StepTable::ReadLengths(uint64_t first_draw) const {
  struct Wanted {
    SampleRef ref;
    uint64_t draw;
  };
  std::vector<Wanted> wanted;
  wanted.reserve(segment_draws());
  for (uint64_t i = 0; i < segment_draws(); ++i) wanted.push_back({draws_.At(first_draw + i), i});
  std::sort(wanted.begin(), wanted.end(), [](const Wanted& a, const Wanted& b) {
    return std::tie(a.ref.dataset, a.ref.index, a.draw) < std::tie(b.ref.dataset, b.ref.index, b.draw);
  });
  std::vector<uint32_t> lengths(wanted.size());
  for (const Wanted& row : wanted) {
    EVENKEEL_ASSIGN_OR_RETURN(SampleLengths sample, index_.lengths(row.ref.dataset, row.ref.index));
    lengths[row.draw] = sample.llm_length;
  }
  return lengths;
}

absl::StatusOr<std::shared_ptr<const StepTable::Segment>> StepTable::CompileSegment(
    uint64_t segment, uint64_t first_step) const {
  auto out = std::make_shared<Segment>();
  EVENKEEL_ASSIGN_OR_RETURN(std::vector<uint32_t> lengths, ReadLengths(segment * segment_draws()));
  for (uint64_t begin = 0; begin < lengths.size(); begin += window_) {
    for (uint32_t start : CutWindow(std::span(lengths).subspan(begin, window_), budget_)) {
      out->starts.push_back(static_cast<uint32_t>(begin) + start);
    }
  }
  std::string starts;
  for (uint32_t start : out->starts) PutLittle(start, 4, starts);
  PagedHeader header{FileKind::kSteps, key_, DigestOf(starts), {segment, first_step}};
  out->stored = WriteFileAtomically(SegmentPath(segment), WritePaged(header, {starts})).ok();
  return out;
}

void StepTable::Remember(uint64_t segment, uint64_t first_step, std::shared_ptr<const Segment> loaded) const {
  if (segment + 1 == first_steps_.size()) first_steps_.push_back(first_step + loaded->starts.size());
  if (loaded->stored) recent_.push_back(segment);
  segments_[segment] = std::move(loaded);
  if (recent_.size() > kRecentSegments) {
    segments_.erase(recent_.front());
    recent_.erase(recent_.begin());
  }
}

absl::StatusOr<std::shared_ptr<const StepTable::Segment>> StepTable::Get(uint64_t segment,
                                                                         uint64_t first_step) const {
  MutexLock compiling(compiling_);
  {
    MutexLock lock(mutex_);
    auto found = segments_.find(segment);
    if (found != segments_.end()) return found->second;
  }
  absl::StatusOr<std::shared_ptr<const Segment>> loaded = LoadSegment(segment, first_step);
  // Not there, or damaged: it is made anew, for it can only become the same again.
  if (!loaded.ok()) loaded = CompileSegment(segment, first_step);
  EVENKEEL_RETURN_IF_ERROR(loaded.status());
  MutexLock lock(mutex_);
  Remember(segment, first_step, *loaded);
  return loaded;
}

absl::StatusOr<StepTable::Range> StepTable::At(uint64_t step) const {
  for (;;) {
    uint64_t segment, first_step;
    {
      MutexLock lock(mutex_);
      // The last known segment that begins at or before the step; behind all of them, the one to make next.
      auto after = std::upper_bound(first_steps_.begin(), first_steps_.end(), step);
      segment = static_cast<uint64_t>(after - first_steps_.begin()) - 1;
      first_step = first_steps_[segment];
    }
    if (segment >= kMaxSegments)
      return absl::OutOfRangeError(absl::StrCat("step ", step, " is beyond any training"));
    EVENKEEL_ASSIGN_OR_RETURN(std::shared_ptr<const Segment> found, Get(segment, first_step));
    if (step - first_step >= found->starts.size()) continue;  // one segment further now
    uint64_t i = step - first_step;
    uint64_t base = segment * segment_draws();
    uint64_t end = i + 1 < found->starts.size() ? found->starts[i + 1] : segment_draws();
    return Range{base + found->starts[i], base + end};
  }
}

}  // namespace evenkeel::dataset
