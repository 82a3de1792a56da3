// Makes the index. Pure functions per shard, so that the caller may run them on as many threads as it likes;
// this room starts none.
//
//   IndexBuilder builder(job, measurer, source);
//   EVENKEEL_RETURN_IF_ERROR(builder.Prepare());            // lists shards, finds which are unchanged
//   for (size_t i = 0; i < builder.num_shards(); ++i)       // any order, any thread
//     EVENKEEL_RETURN_IF_ERROR(builder.BuildShard(i));
//   EVENKEEL_ASSIGN_OR_RETURN(IndexSummary summary, builder.Commit());   // atomic
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/job.h"
#include "core/measure.h"
#include "dataset/byte_source.h"

namespace evenkeel {

struct IndexSummary {
  Digest digest;
  uint64_t num_samples = 0;
  uint64_t num_items = 0;
  uint64_t shards_read = 0;
  uint64_t shards_unchanged = 0;
  uint64_t shards_remeasured = 0;                  // lengths re-derived without reading media
  std::map<std::string, uint64_t> excluded;        // reason -> samples
};

class IndexBuilder {
 public:
  IndexBuilder(const Job& job, const Measurer& measurer, ByteSource& source);
  ~IndexBuilder();

  absl::Status Prepare();
  size_t num_shards() const;
  // Thread-safe for different `i`.
  absl::Status BuildShard(size_t i);
  // Writes the new index beside the old one and renames. A crash leaves one or the other.
  absl::StatusOr<IndexSummary> Commit();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace evenkeel
