// The index: one row per usable sample of every dataset, immutable and content-addressed.
//
// Three sets of columns in the index folder: places (shard, offsets, sizes), facts (of media, independent of
// the processor), lengths (for one processor; 16 bytes a sample plus 12 an item). docs/index-format.md has
// the bytes. Rows are read with bounded memory, so that 10^8 rows open at once and cost nothing until asked
// for.
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

class Index {
 public:
  virtual ~Index() = default;

  // Opens the index of `job` for the processor named by `processor`. `source` is used here, to see the
  // shards; rows are read from the index folder, with at most `cache_bytes` of memory beside some hundred
  // bytes a shard. NotFound: no index, or none for this processor ("run evenkeel index --job ...");
  // FailedPrecondition: the index does not match the shards (their list or sizes), names the shard;
  // InvalidArgument: the job excludes a sample that is not there, names the nearest; DataLoss: a damaged
  // file. What the shards contain is compared where it is read: ReadItem, ConversationReader.
  static absl::StatusOr<std::unique_ptr<Index>> Open(const Job& job, const Digest& processor,
                                                     ByteSource& source, size_t cache_bytes = 32 << 20);

  virtual Digest digest() const = 0;
  virtual uint64_t num_samples(uint32_t dataset) const = 0;  // without those the job excludes
  // OutOfRange: no such row; DataLoss: a damaged file; Unavailable: the folder cannot be read now.
  virtual absl::StatusOr<SampleLengths> lengths(uint32_t dataset, uint64_t index) const = 0;
  virtual absl::StatusOr<SamplePlaces> places(uint32_t dataset, uint64_t index) const = 0;
  // lengths().llm_length, for less.
  virtual absl::StatusOr<uint32_t> llm_length(uint32_t dataset, uint64_t index) const {
    absl::StatusOr<SampleLengths> all = lengths(dataset, index);
    if (!all.ok()) return all.status();
    return all->llm_length;
  }
};

// Reads the bytes of an item of the shard at `shard_path`; `out` has item.size bytes.
// FailedPrecondition, of FailureKind::kData: they are not those that were indexed, with the shard and the
// byte. Else of FailureKind::kMachine: Unavailable where the shard is shorter than it was, otherwise as
// ByteSource::ReadAt.
absl::Status ReadItem(const std::string& shard_path, const ItemPlace& item, ByteSource& source,
                      std::span<std::byte> out);

// Reads samples' text members and makes the conversations of them that the index builder saw. It keeps its
// memory from one to the next. Thread safety: none; a reader belongs to one thread.
class ConversationReader {
 public:
  ConversationReader();
  ~ConversationReader();
  // Valid until the next call. FailedPrecondition as ReadItem; DataLoss, NotFound, InvalidArgument as the
  // parser says, with the shard and the sample's key; Unavailable where the source fails.
  absl::StatusOr<const Conversation*> Read(const SamplePlaces& places, const Limits& limits,
                                           ByteSource& source);

 private:
  struct Kept;
  const std::unique_ptr<Kept> kept_;
};

// "dataset/shard-file-name/key": how messages and the job's exclude list name a sample.
std::string SampleName(const Job& job, const SamplePlaces& places);

}  // namespace evenkeel::dataset
