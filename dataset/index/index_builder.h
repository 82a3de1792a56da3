// Makes the index. Pure functions per shard, so that the caller may run them on as many threads as it likes;
// this room starts none.
//
// Example:
//     IndexBuilder builder(job, measurer, source);
//     EVENKEEL_RETURN_IF_ERROR(builder.Prepare());         // lists shards, finds which are unchanged
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
  uint64_t num_samples = 0;  // usable; the job's own exclude list is applied at Index::Open
  uint64_t num_items = 0;
  uint64_t llm_tokens = 0;  // summed over samples, before alignment
  uint64_t loss_tokens = 0;
  uint64_t damaged_shards = 0;  // read up to a damage; each counts once in `excluded`
  uint64_t shards_read = 0;
  uint64_t shards_unchanged = 0;
  uint64_t shards_remeasured = 0;            // lengths re-derived without reading media
  std::map<std::string, uint64_t> excluded;  // reason -> samples

  // Samples that were found and are not usable. What a damaged shard has lost is not known and does not
  // count.
  uint64_t num_excluded() const;
};

// A sample that is not in the index, or (with an empty key) what is missing of a shard.
struct Exclusion {
  std::string dataset;
  std::string shard;   // file name
  std::string key;     // printable
  std::string reason;  // one of the short texts in docs/datasets.md
  std::string detail;
};

struct IndexOptions {
  // Hash every shard again instead of trusting size and stamp; one whose content differs is read anew.
  bool verify_content = false;
};

class IndexBuilder {
 public:
  // All must outlive the builder.
  IndexBuilder(const Job& job, const Measurer& measurer, ByteSource& source, IndexOptions options = {});
  ~IndexBuilder();

  // NotFound: a shard is not there. DataLoss: the index that is there is damaged.
  absl::Status Prepare();
  size_t num_shards() const;
  // Of the shard: what BuildShard will do is known after Prepare.
  const std::string& shard_path(size_t i) const;
  // Thread-safe for different `i`. A damaged shard is no error: what lies before the damage is indexed.
  absl::Status BuildShard(size_t i);
  // What Commit would write. FailedPrecondition: a shard was not built.
  absl::StatusOr<IndexSummary> Summarise() const;
  // Writes the new index next to the old one and renames. A crash leaves one or the other. Writes nothing
  // where the index is already what it would become, so a read-only folder is no error then.
  // FailedPrecondition: a shard was not built.
  absl::Status Commit();
  // Every exclusion of the new index, in the order of the shards; after every shard was built.
  absl::Status ForEachExclusion(absl::FunctionRef<void(const Exclusion&)> visit) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace evenkeel::dataset
