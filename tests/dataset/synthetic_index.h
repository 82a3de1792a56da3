// An index of any size whose shards were never there: for claims and benchmarks about very many rows.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "core/job.h"
#include "dataset/source/byte_source.h"

namespace evenkeel::dataset {

// Objects that have a size and nothing else.
class SizeOnlySource : public ByteSource {
 public:
  explicit SizeOnlySource(uint64_t size) : size_(size) {}
  absl::StatusOr<uint64_t> Size(const std::string&) override { return size_; }
  absl::Status ReadAt(const std::string& path, uint64_t, std::span<std::byte>) override {
    return absl::UnimplementedError(path);
  }

 private:
  const uint64_t size_;
};

inline constexpr uint64_t kSyntheticShardBytes = 1 << 20;

// Writes lengths and catalogue (no places, no facts) for one dataset of `num_shards` shards of `rows` samples
// with one image each, under `processor`. The result is the job that opens it. Lengths are a function of the
// row.
absl::StatusOr<Job> WriteSyntheticIndex(const std::string& folder, uint64_t num_shards, uint64_t rows,
                                        const Digest& processor);
SampleLengths SyntheticLengths(uint64_t row);

}  // namespace evenkeel::dataset
