// Keeps only the number of steps of every window, in files that grow.
#include "dataset/order/step_table.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/failure.h"
#include "core/status.h"
#include "dataset/index/index_folder.h"
#include "dataset/source/little_endian.h"

namespace evenkeel::dataset {
Digest StepTableKey(const Job& job, const Index& index) {
  CanonicalText text("evenkeel steps 2");
  text.Add("stream_version", uint64_t{kStreamVersion});
  text.Add("index", index.digest().Hex());
  text.Add("seed", job.seed);
  text.Add("llm_tokens", job.batch.llm_tokens);
  text.Add("window_samples", job.batch.window_samples);
  AddPack(job.batch.pack, &text);
  AddChunk(job.batch.chunk, &text);
  text.Add("shuffle", static_cast<uint64_t>(job.order.shuffle));
  text.Add("block_samples", job.order.block_samples);
  text.Add("window_blocks", job.order.window_blocks);
  if (job.order.heavy > 0) text.Add("heavy", job.order.heavy);
  for (uint32_t d = 0; d < job.datasets.size(); ++d) {
    text.Add(job.datasets[d].repeats ? "repeat" : "weight", job.datasets[d].weight);
    for (const WeightChange& change : job.datasets[d].changes) {
      text.Add("from_draw", change.from_draw);
      text.Add("weight", change.weight);
    }
    if (job.datasets[d].max_epochs > 0) text.Add("max_epochs", job.datasets[d].max_epochs);
    text.Add("samples", index.num_samples(d));
    AddConditions(job.datasets[d].where, &text);
  }
  for (const std::string& line : job.exclude) text.Add("exclude", line);
  AddSplit(job.SplitRange(), job.split_seed, &text);
  return text.digest();
}

absl::Status PastTheEnd(uint64_t step, uint64_t num_steps) {
  return absl::OutOfRangeError(absl::StrCat(
      "step ", step, " is past the end: with its max_epochs the stream has ", num_steps, " steps"));
}

StepTable::StepTable(std::string folder, const WindowCutter& cutter)
    : folder_(std::move(folder)), cutter_(cutter), window_(cutter.window_draws()), key_(cutter.key()) {}

absl::Status StepTable::BelongsElsewhere() const {
  return absl::DataLossError(absl::StrCat(
      folder_, "/steps: the table of windows belongs to another index; remove the folder 'steps'"));
}

// ---- The known part of the table

std::optional<StepTable::Place> StepTable::Find(uint64_t step) const {
  if (step >= num_steps_) return std::nullopt;
  // The last mark at or before the step, then window by window from there.
  const auto after = std::upper_bound(marks_.begin(), marks_.end(), step);
  const uint64_t mark = static_cast<uint64_t>(after - marks_.begin()) - 1;
  Place place{.window = mark * kMarkWindows};
  uint64_t first_step = marks_[mark];  // of the window
  while (step - first_step >= counts_[place.window]) first_step += counts_[place.window++];
  place.step = static_cast<uint32_t>(step - first_step);
  return place;
}

void StepTable::Append(uint32_t num_steps) const {
  if (counts_.size() % kMarkWindows == 0) marks_.push_back(num_steps_);
  counts_.push_back(num_steps);
  num_steps_ += num_steps;
}

double StepTable::DrawsPerStep() const {
  if (num_steps_ == 0) return 1;
  return static_cast<double>(counts_.size() * window_) / static_cast<double>(num_steps_);
}

absl::Status StepTable::CheckReach(uint64_t step) const {
  const uint64_t windows_left = kMaxWindows - std::min<uint64_t>(counts_.size(), kMaxWindows);
  const uint64_t draws_left = std::min(kMaxAheadDraws, windows_left * window_);
  const uint64_t last = num_steps_ + static_cast<uint64_t>(static_cast<double>(draws_left) / DrawsPerStep());
  if (step <= last) return absl::OkStatus();
  const uint64_t units = cutter_.units_of_step();
  return absl::OutOfRangeError(
      absl::StrCat("step ", step / units,
                   " is too far away: steps of a budget, of bins or of chunks are numbered through all "
                   "windows before them, of which ",
                   counts_.size(), " with ", num_steps_ / units,
                   " steps are known; the largest step that can be asked for now is about ", last / units));
}

absl::Status StepTable::NotYet(uint64_t step) const {
  return WithKind(absl::UnavailableError(absl::StrCat(
                      "the table of windows is being compiled: ", num_steps_ / cutter_.units_of_step(),
                      " steps of about ", step / cutter_.units_of_step(), " (",
                      100 * num_steps_ / std::max<uint64_t>(step, 1), " %); ask again")),
                  FailureKind::kNotYet);
}

absl::Status StepTable::ExtendByOne() const {
  uint64_t window = 0;
  {
    MutexLock lock(mutex_);
    window = counts_.size();
  }
  const absl::StatusOr<uint32_t> num_steps = cutter_.CountSteps(window);
  MutexLock lock(mutex_);
  if (absl::IsOutOfRange(num_steps.status())) {
    ended_ = true;
    return absl::OkStatus();
  }
  EVENKEEL_RETURN_IF_ERROR(num_steps.status());
  if (counts_.size() == window) Append(*num_steps);
  return absl::OkStatus();
}

absl::Status StepTable::CheckEnd(uint64_t step) const {
  if (!ended_) return absl::OkStatus();
  const uint64_t units = cutter_.units_of_step();
  return PastTheEnd(step / units, num_steps_ / units);
}

absl::StatusOr<uint64_t> StepTable::NumSteps() const {
  {
    MutexLock loading(files_mutex_);
    Load();
  }
  for (bool ended = false; !ended;) {
    EVENKEEL_RETURN_IF_ERROR(ExtendByOne());
    {
      MutexLock lock(mutex_);
      ended = ended_;
    }
    MutexLock storing(files_mutex_);
    Store(/*all=*/ended);
  }
  MutexLock lock(mutex_);
  return num_steps_;
}

absl::StatusOr<StepTable::Place> StepTable::At(uint64_t step) const {
  if (!loaded_) {
    MutexLock loading(files_mutex_);
    if (!loaded_) Load();
    loaded_ = true;
  }
  for (uint64_t draws = 0;; draws += window_) {
    std::optional<Place> place;
    {
      MutexLock lock(mutex_);
      place = Find(step);
      if (!place.has_value()) EVENKEEL_RETURN_IF_ERROR(CheckEnd(step));
      if (!place.has_value()) EVENKEEL_RETURN_IF_ERROR(CheckReach(step));
      // The first window is always compiled at once, so DrawsPerStep is not a guess here.
      const double missing = static_cast<double>(step - std::min(step, num_steps_)) * DrawsPerStep();
      const bool is_far = draws >= kAtOnceDraws || missing > static_cast<double>(kAtOnceDraws + window_);
      if (!place.has_value() && is_far && num_steps_ > 0) return NotYet(step);
    }
    if (place.has_value()) return *place;
    EVENKEEL_RETURN_IF_ERROR(ExtendByOne());
    MutexLock storing(files_mutex_);
    Store(/*all=*/false);
  }
}

absl::StatusOr<bool> StepTable::Extend(uint64_t step) const {
  {
    MutexLock loading(files_mutex_);
    Load();  // other processes may have compiled more
  }
  for (uint64_t draws = 0;; draws += window_) {
    bool is_known = false;
    {
      MutexLock lock(mutex_);
      is_known = Find(step).has_value();
      if (!is_known) EVENKEEL_RETURN_IF_ERROR(CheckEnd(step));
      if (!is_known) EVENKEEL_RETURN_IF_ERROR(CheckReach(step));
    }
    if (!is_known && draws < kSliceDraws) {
      EVENKEEL_RETURN_IF_ERROR(ExtendByOne());
      continue;
    }
    MutexLock storing(files_mutex_);
    Store(/*all=*/is_known);
    return is_known;
  }
}

// ---- Files

std::string StepTable::FilePath(uint64_t file) const {
  return ColumnPath(folder_, FileKind::kSteps, DigestOf(absl::StrCat(key_.Hex(), " ", file)));
}

// The counts of a file, without its first `known` ones.
absl::StatusOr<std::vector<uint32_t>> StepTable::ReadFile(uint64_t file, uint64_t known) const {
  const std::string path = FilePath(file);
  files_->Forget(path);  // the file is replaced when it grows
  EVENKEEL_ASSIGN_OR_RETURN(std::unique_ptr<PagedFile> stored,
                            PagedFile::Open(*files_, cache_, path, FileKind::kSteps));
  const PagedHeader& header = stored->header();
  const uint64_t bytes = stored->section_bytes(0);
  if (header.key != key_ || header.numbers[0] != file || bytes % 4 != 0 || bytes / 4 > kFileWindows) {
    return stored->Damaged("its content does not fit its name");
  }
  std::vector<uint32_t> counts;
  if (bytes / 4 <= known) return counts;
  std::string text(bytes - 4 * known, '\0');
  EVENKEEL_RETURN_IF_ERROR(stored->Read(0, 4 * known, std::as_writable_bytes(std::span(text))));
  for (uint64_t at = 0; at < text.size(); at += 4) {
    counts.push_back(static_cast<uint32_t>(GetLittle(text.data() + at, 4)));
    const bool is_high = counts.back() > window_ && cutter_.units_of_step() == 1;
    if (counts.back() == 0 || is_high) return stored->Damaged("a window without steps");
  }
  return counts;
}

void StepTable::Load() const {
  for (;;) {
    uint64_t known = 0;
    {
      MutexLock lock(mutex_);
      known = counts_.size();
    }
    if (known >= kMaxWindows) return;
    // A missing or damaged file is made again: its content is determined by its name.
    const auto more = ReadFile(known / kFileWindows, known % kFileWindows);
    if (!more.ok() || more->empty()) return;
    MutexLock lock(mutex_);
    if (counts_.size() != known) continue;  // extended by another thread meanwhile
    for (uint32_t count : *more) Append(count);
    num_stored_ = counts_.size();
  }
}

void StepTable::Store(bool all) const {
  while (StoreNextFile(all)) continue;
}

bool StepTable::StoreNextFile(bool all) const {
  std::string counts;
  uint64_t file = 0, end = 0;
  {
    MutexLock lock(mutex_);
    end = counts_.size();
    if (end == num_stored_) return false;
    // The first file with windows that are not stored. A full file is stored for the last time.
    file = num_stored_ / kFileWindows;
    end = std::min<uint64_t>(end, (file + 1) * kFileWindows);
    const uint64_t begin = file * kFileWindows;
    const bool is_full = end - begin == kFileWindows;
    // A file is rewritten while it grows, each time by at least 1/32: in total about 32 times its size.
    if (!all && !is_full && end - num_stored_ < 1 + (num_stored_ - begin) / 32) return false;
    for (uint64_t window = begin; window < end; ++window) PutLittle(counts_[window], 4, counts);
    num_stored_ = end;  // also if writing fails: then the table is kept in memory
  }
  const auto there = ReadFile(file, counts.size() / 4);
  if (there.ok() && !there->empty()) return true;  // another process stored more
  const PagedHeader header{FileKind::kSteps, key_, DigestOf(counts), {file}};
  WriteFileAtomically(FilePath(file), WritePaged(header, {counts})).IgnoreError();
  return true;
}

}  // namespace evenkeel::dataset
