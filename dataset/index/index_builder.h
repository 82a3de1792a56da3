// Builds the index. Shards are built independently of each other, so the caller may use any number of
// threads; of its own it starts those alone that wait for objects of stores (dataset/index/media_source.h).
//
// Example:
//     IndexBuilder builder(job, measurer, source);
//     EVENKEEL_RETURN_IF_ERROR(builder.Prepare());         // lists shards, finds the unchanged ones
//     for (size_t i = 0; i < builder.num_shards(); ++i) {  // any order, any thread
//       EVENKEEL_RETURN_IF_ERROR(builder.BuildShard(i));
//     }
//     EVENKEEL_ASSIGN_OR_RETURN(IndexSummary summary, builder.Summarise());
//     EVENKEEL_RETURN_IF_ERROR(builder.Commit());  // atomic
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/job.h"
#include "core/measure.h"
#include "dataset/source/byte_source.h"

namespace evenkeel::dataset {

struct IndexSummary {
  Digest digest;
  uint64_t num_samples = 0;  // usable; the job's own exclude list is applied by Index::Open
  uint64_t num_items = 0;
  uint64_t llm_tokens = 0;  // summed over samples, before alignment
  uint64_t loss_tokens = 0;
  uint64_t damaged_shards = 0;  // read up to the damage; each counts once in `excluded`
  uint64_t shards_read = 0;
  uint64_t shards_unchanged = 0;
  uint64_t shards_remeasured = 0;            // measured again without reading their media
  std::map<std::string, uint64_t> excluded;  // reason -> samples

  // Excluded samples. What a damaged shard has lost is unknown and not
  // counted.
  uint64_t num_excluded() const;
};

// A sample that is not in the index, or (with an empty key) the lost part of a damaged shard.
struct Exclusion {
  std::string dataset;
  std::string shard;   // file name
  std::string key;     // printable
  std::string reason;  // one of the short texts in docs/datasets.md
  std::string detail;
};

// Shard i belongs to part i % count. Parts may be built by different processes, on different machines, in any order and
// again; a run without parts then finds their shards built.
struct IndexPart {
  uint32_t number = 0;  // below count
  uint32_t count = 1;
};

struct IndexOptions {
  IndexPart part;
  // Hash every shard instead of trusting its size and stamp; a shard with another content is read again.
  bool verify_content = false;
};

class IndexBuilder {
 public:
  // All arguments must outlive the builder.
  IndexBuilder(const Job& job, const Measurer& measurer, ByteSource& source, IndexOptions options = {});
  ~IndexBuilder();

  // NotFound: a shard is missing. DataLoss: the present index is damaged.
  absl::Status Prepare();
  size_t num_shards() const;  // of the part
  // The path of a shard. Prepare decides what BuildShard does.
  const std::string& shard_path(size_t i) const;
  // Thread-safe for different `i`. Not an error: a damaged shard, which is indexed up to the damage.
  absl::Status BuildShard(size_t i);
  // Notes which shards are built, so that a later run goes on from there. BuildShard does it twice a minute. Thread-safe.
  absl::Status SaveProgress();
  // What Commit would write; of a part without the digest. FailedPrecondition: a shard was not built.
  absl::StatusOr<IndexSummary> Summarise() const;
  // Writes the new index next to the old one and renames it. A crash leaves one or the other. Writes nothing
  // if the index would not change, so a read-only folder is then no error. Of a part: notes its shards, and changes no
  // index. FailedPrecondition: a shard was not built.
  absl::Status Commit();
  // Visits every exclusion of the new index in the order of the shards. Every shard must have been built.
  absl::Status ForEachExclusion(absl::FunctionRef<void(const Exclusion&)> visit) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace evenkeel::dataset
