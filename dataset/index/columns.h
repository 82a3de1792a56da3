// The three column sets of a shard, stored in files of paged_file.h. docs/index-format.md has the bytes.
//
//   places   where the samples of the shard are: key, text, items
//   facts    facts of each item, for any processor that reads videos alike
//   lengths  for one processor: a row per usable sample (16 bytes) and per item (12 bytes)
//
// Writers collect a shard in memory and return the file's bytes. Readers read single rows.
// Thread safety: writers none; readers may be used from many threads.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/words.h"
#include "dataset/index/index.h"
#include "dataset/source/paged_file.h"

namespace evenkeel::dataset {

inline constexpr uint64_t kMaxSamplesPerShard = 1 << 24;  // a place number has 24 bits

// A sample that is not in the index, or the lost part of a damaged shard.
struct ExclusionRecord {
  std::string key;     // empty: the shard itself
  std::string reason;  // one of a few short texts: docs/datasets.md
  std::string detail;
};

struct PlaceRecord {
  std::string key;
  TextForm text_form = TextForm::kNone;
  uint64_t text_offset = 0;
  uint64_t text_size = 0;
  uint64_t text_checksum = 0;
  uint64_t first_item = 0;       // index of its first item in the facts of the shard
  std::vector<ItemPlace> items;  // of their facts only the medium is set
};

class PlacesWriter {
 public:
  void Add(const PlaceRecord& place);
  void Exclude(const ExclusionRecord& exclusion);
  uint64_t num_places() const { return num_places_; }
  std::string Finish(const Digest& key) const;

 private:
  std::string offsets_, records_, exclusions_;
  uint64_t num_places_ = 0;
};

class PlacesReader {
 public:
  static absl::StatusOr<PlacesReader> Open(ByteSource& source, PageCache& cache, const std::string& path);
  uint64_t num_places() const { return file_->header().numbers[0]; }
  absl::StatusOr<PlaceRecord> Read(uint64_t place) const;
  absl::Status ForEachExclusion(absl::FunctionRef<void(const ExclusionRecord&)> visit) const;

 private:
  std::shared_ptr<const PagedFile> file_;
};

class FactsWriter {
 public:
  // nullopt: the item cannot be used, and no sample with it.
  void Add(const std::optional<MediaFacts>& facts);
  void Exclude(const ExclusionRecord& exclusion);
  uint64_t num_items() const { return num_items_; }
  std::string Finish(const Digest& key) const;

 private:
  std::string facts_, exclusions_;
  uint64_t num_items_ = 0;
};

class FactsReader {
 public:
  static absl::StatusOr<FactsReader> Open(ByteSource& source, PageCache& cache, const std::string& path);
  uint64_t num_items() const { return file_->header().numbers[0]; }
  absl::StatusOr<std::optional<MediaFacts>> Read(uint64_t item) const;
  absl::Status ForEachExclusion(absl::FunctionRef<void(const ExclusionRecord&)> visit) const;

 private:
  std::shared_ptr<const PagedFile> file_;
};

// Sums over the rows of a shard, and the digest of its rows and items.
struct LengthsTotals {
  uint64_t rows = 0;
  uint64_t items = 0;
  uint64_t llm_tokens = 0;
  uint64_t loss_tokens = 0;
  Digest content;
};

class LengthsWriter {
 public:
  // Rows must come in the order of their places. InvalidArgument: a length is too large for a row.
  absl::Status Add(uint64_t place, const SampleLengths& lengths);
  void Exclude(const ExclusionRecord& exclusion);
  std::string Finish(const Digest& key, LengthsTotals* totals) const;

 private:
  std::string rows_, items_, exclusions_;
  LengthsTotals totals_;
  uint64_t pairs_ = 0;
};

class LengthsReader {
 public:
  static absl::StatusOr<LengthsReader> Open(ByteSource& source, PageCache& cache, const std::string& path);
  LengthsTotals totals() const;
  absl::StatusOr<SampleLengths> Read(uint64_t row) const;
  absl::StatusOr<uint32_t> ReadLlmLength(uint64_t row) const;
  absl::StatusOr<uint64_t> PlaceOf(uint64_t row) const;
  // The row of a place; nullopt: the sample is excluded.
  absl::StatusOr<std::optional<uint64_t>> RowOf(uint64_t place) const;
  absl::Status ForEachExclusion(absl::FunctionRef<void(const ExclusionRecord&)> visit) const;

 private:
  std::shared_ptr<const PagedFile> file_;
};

}  // namespace evenkeel::dataset
