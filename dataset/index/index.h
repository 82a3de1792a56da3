// The index: one row per usable sample of every dataset, immutable and content-addressed.
//
// The index folder has three sets of columns: places (shard, offsets, sizes), facts (of media, independent
// of the processor) and lengths (for one processor; 16 bytes a sample plus 12 an item).
// docs/index-format.md has the bytes. Rows are read on demand with bounded memory, so that an index of 10^8
// rows opens at once.
//
// Thread safety: const members may be called from many threads.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/conversation.h"
#include "core/digest.h"
#include "core/job.h"
#include "core/words.h"
#include "dataset/format/sample_places.h"
#include "dataset/source/byte_source.h"

namespace evenkeel::dataset {

// Samples of the index that a job does not draw, apart from those that it excludes by name.
struct LeftOut {
  uint64_t by_where = 0;  // a condition does not hold
  uint64_t by_split = 0;  // in another split, or in none
};

class Index {
 public:
  virtual ~Index() = default;

  // Opens the index of `job` for the processor with the digest `processor`. `source` is used here to look at
  // the shards. Rows are read from the index folder, with at most `cache_bytes` of memory in addition to a
  // few hundred bytes a shard. NotFound: no index, or none for this processor ("run evenkeel index --job
  // ..."). FailedPrecondition: the index does not match the shards (their list or sizes; of objects the first one's, the
  // others' when they are read); names the shard. InvalidArgument: the job excludes a sample that does not exist; names the
  // nearest. DataLoss: a damaged file. The contents of shards are compared when they are read: ReadItem,
  // ConversationReader.
  static absl::StatusOr<std::unique_ptr<Index>> Open(const Job& job, const Digest& processor,
                                                     ByteSource& source, size_t cache_bytes = 32 << 20);

  virtual Digest digest() const = 0;
  virtual uint64_t num_samples(uint32_t dataset) const = 0;  // those that the job draws
  virtual LeftOut left_out(uint32_t dataset) const {
    static_cast<void>(dataset);
    return {};
  }
  // OutOfRange: no such row; DataLoss: a damaged file; Unavailable: the folder cannot be read now.
  virtual absl::StatusOr<SampleLengths> lengths(uint32_t dataset, uint64_t index) const = 0;
  virtual absl::StatusOr<SamplePlaces> places(uint32_t dataset, uint64_t index) const = 0;
  // The same as lengths().llm_length, at a lower cost.
  virtual absl::StatusOr<uint32_t> llm_length(uint32_t dataset, uint64_t index) const {
    absl::StatusOr<SampleLengths> all = lengths(dataset, index);
    if (!all.ok()) return all.status();
    return all->llm_length;
  }
};

// Reads the bytes of an item of the shard at `shard_path`, or of the file that it is; `out` has item.size bytes. FailedPrecondition of
// FailureKind::kData: the bytes differ from the indexed ones; names the shard and the byte. Other errors are
// of FailureKind::kMachine: Unavailable if the shard is shorter than it was, otherwise as
// ByteSource::ReadAt.
absl::Status ReadItem(const std::string& shard_path, const ItemPlace& item, ByteSource& source,
                      std::span<std::byte> out);

// What ReadItem and ConversationReader::Read will ask the source for (ByteSource::Expect).
ByteRange RangeOf(const std::string& shard_path, const ItemPlace& item);
ByteRange RangeOfText(const SamplePlaces& places);

// Reads text members and parses them into the conversations that the index builder saw. It reuses its memory.
// Thread safety: none; a reader belongs to one thread.
class ConversationReader {
 public:
  ConversationReader();
  ~ConversationReader();
  // The result is valid until the next call. FailedPrecondition as ReadItem; DataLoss, NotFound,
  // InvalidArgument from the parser, with the shard and the sample's key; Unavailable: the source fails.
  absl::StatusOr<const Conversation*> Read(const SamplePlaces& places, const Limits& limits,
                                           ByteSource& source);
  // The columns of the sample that was read last, valid until the next call of either; `key` is its key. Errors
  // of AppendColumns (dataset/format/sample_columns.h).
  absl::StatusOr<std::string_view> Columns(const Job& job, std::string_view key);

 private:
  struct Kept;
  const std::unique_ptr<Kept> kept_;
};

// "dataset/shard-file-name/key": the name of a sample in messages and in the job's exclude list.
std::string SampleName(const Job& job, const SamplePlaces& places);
// The same of a sample whose places are read; where they cannot be, the dataset and the sample's number.
std::string SampleName(const Job& job, const Index& index, const SampleRef& ref);

}  // namespace evenkeel::dataset
