// Builds the columns of one shard: from its bytes, or lengths alone from existing places and facts.
//
// Thread safety: const members may be called from many threads for different shards.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/annotated_mutex.h"
#include "core/job.h"
#include "core/measure.h"
#include "dataset/format/sample_scanner.h"
#include "dataset/index/columns.h"
#include "dataset/index/index_folder.h"
#include "dataset/index/media_source.h"
#include "dataset/index/shard_content.h"

namespace evenkeel::dataset {

// Bounds the media bytes in memory, over all threads. A larger single item is admitted alone.
class ByteBudget {
 public:
  explicit ByteBudget(uint64_t limit) : limit_(limit) {}

  void Acquire(uint64_t bytes);
  void Release(uint64_t bytes);

 private:
  const uint64_t limit_;
  Mutex mutex_;
  CondVar freed_;
  uint64_t held_ ABSL_GUARDED_BY(mutex_) = 0;
};

class ShardBuilder {
 public:
  // Larger media of stores are read one by one.
  static constexpr uint64_t kMaxHeldMediumBytes = 32 << 20;

  // All arguments must outlive the builder. `files` reads the index folder, `source` the shards.
  ShardBuilder(const Job& job, const std::string& folder, const Measurer& measurer, ByteSource& source,
               ByteSource& files, PageCache& cache)
      : job_(job),
        limits_(job.limits),
        folder_(folder),
        measurer_(measurer),
        source_(source, kMaxHeldMediumBytes),
        files_(files),
        cache_(cache) {}

  // The digest of all bytes of a shard.
  absl::StatusOr<Digest> HashShard(const std::string& path, uint64_t size) const;
  // Reads the shard once and stores all three columns. `entry` has its name, size and stamp; its content is
  // set here. If the shard has other files (HasOtherFiles), the content covers theirs, and `media` is set to their MediaStamp
  // as they were read.
  absl::Status Read(const DatasetSpec& dataset, const std::string& path, ShardEntry& entry,
                    std::string* media);
  // Stores lengths for this processor from stored places and facts and the shard's texts.
  absl::Status Remeasure(const DatasetSpec& dataset, const std::string& path, ShardEntry& entry) const;
  // Changes with every file that the stored places of `entry` name; of the format megatron with the .idx. Empty: a file is
  // missing, now or when the shard was read, so the shard has to be read.
  absl::StatusOr<std::string> MediaStamp(const DatasetSpec& dataset, const std::string& path,
                                         const ShardEntry& entry) const;
  // Of the .idx of the shard at `path`.
  absl::StatusOr<std::string> MegatronIndexStamp(const std::string& path) const;
  // Whether all files that `entry` names for this processor exist.
  bool HasFiles(const DatasetSpec& dataset, const ShardEntry& entry, bool with_lengths) const;

 private:
  // A scanner of the samples, which are inside `shard` if that is compressed: then they are read from the source.
  absl::StatusOr<std::unique_ptr<SampleScanner>> OpenShard(const DatasetSpec& dataset,
                                                           const std::string& path, ShardContent& shard);

  struct Columns;
  struct SampleText;
  // Why a sample cannot be used. With an empty reason `status` is an error of the attempt and ends the build.
  struct Refusal {
    std::string reason;
    absl::Status status;
  };

  // Refuses a sample whose columns were not written.
  static void CheckColumns(const absl::Status& columns, Refusal& refusal);
  absl::Status AddSample(const DatasetSpec& dataset, const std::string& shard_path, SampleScanner& scanner,
                         const ScannedSample& sample, Columns& columns);
  // The media of a row that are files, as paths for the source; none where something is wrong with the row.
  std::vector<std::string> FilesOf(const DatasetSpec& dataset, const std::string& shard_path,
                                   SampleScanner& scanner, const ScannedSample& sample) const;
  // The next rows, whose media are held meanwhile if they are objects of a store; none: the shard ends. Of other
  // formats one sample.
  absl::StatusOr<std::vector<ScannedSample>> NextRows(const DatasetSpec& dataset,
                                                      const std::string& shard_path, SampleScanner& scanner,
                                                      std::unique_ptr<Expected>& held) const;
  // Finds text, conversation, items and media, without facts. OK with a reason set: excluded.
  absl::Status FindItems(SampleScanner& scanner, const ScannedSample& sample, PlaceRecord& place,
                         SampleText& text, Refusal& refusal) const;
  // The same for a sample that is stored as tokens.
  absl::Status FindTokens(SampleScanner& scanner, const ScannedSample& sample, PlaceRecord& place,
                          SampleText& text, Refusal& refusal) const;
  // The same for a row.
  absl::Status FindRow(const DatasetSpec& dataset, const std::string& shard_path, SampleScanner& scanner,
                       const ScannedSample& sample, PlaceRecord& place, SampleText& text,
                       Refusal& refusal) const;
  // Reads a text member into `text` and notes its place.
  absl::Status ReadText(SampleScanner& scanner, const SampleMember& member, PlaceRecord& place,
                        SampleText& text, Refusal& refusal) const;
  // Finds the file that a row names.
  absl::Status FindFile(const DatasetSpec& dataset, const std::string& shard_path,
                        const MediaReference& reference, ItemPlace& item, Refusal& refusal) const;
  // Refuses a suffix of another medium; clears one of none.
  static void CheckSuffix(std::string_view name, ItemPlace& item, Refusal& refusal);
  // `item` has its file as a path for the source.
  absl::StatusOr<MediaFacts> ProbeItem(SampleScanner& scanner, bool is_row, ItemPlace& item,
                                       Refusal& refusal);
  // `shard_path`: where items are read again whose lengths depend on their bytes.
  absl::StatusOr<SampleLengths> Measure(const std::string& shard_path, const Conversation& conversation,
                                        const std::vector<ItemPlace>& items, Refusal& refusal) const;
  // Appends the entries of an item to `out`, one for each phase that takes its medium; `like` has what they have in common.
  absl::Status MeasureTowers(const std::string& shard_path, const ItemPlace& item, SampleItem like,
                             SampleLengths& out, Refusal& refusal) const;
  absl::StatusOr<ItemLengths> MeasureItem(const std::string& shard_path, const ItemPlace& item,
                                          uint8_t tower) const;
  absl::Status StoreLengths(const DatasetSpec& dataset, const LengthsWriter& lengths,
                            ShardEntry& entry) const;

  const Job& job_;
  const Limits& limits_;
  const std::string folder_;
  const Measurer& measurer_;
  // Of mutable state it has what is held, behind a lock.
  mutable MediaSource source_;
  ByteSource& files_;
  PageCache& cache_;
  ByteBudget media_{1ull << 30};
};

}  // namespace evenkeel::dataset
