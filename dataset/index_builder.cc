#include "dataset/index_builder.h"

namespace evenkeel {

struct IndexBuilder::State {};

IndexBuilder::IndexBuilder(const Job&, const Measurer&, ByteSource&) {}
IndexBuilder::~IndexBuilder() = default;
absl::Status IndexBuilder::Prepare() { return absl::UnimplementedError("index"); }
size_t IndexBuilder::num_shards() const { return 0; }
absl::Status IndexBuilder::BuildShard(size_t) { return absl::UnimplementedError("index"); }
absl::StatusOr<IndexSummary> IndexBuilder::Commit() { return absl::UnimplementedError("index"); }

}  // namespace evenkeel
