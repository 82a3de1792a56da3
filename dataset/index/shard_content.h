// The bytes of one shard, read once for two purposes: its digest and its members.
//
// The shard is read in pieces of 4 MiB, each hashed when it is first read. The last few pieces stay in
// memory, so that headers and members near each other in the archive need no second read.
//
// Thread safety: none; one reader, one thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/digest.h"
#include "dataset/source/byte_source.h"

namespace evenkeel::dataset {

inline constexpr uint64_t kContentPieceBytes = 4 << 20;

class ShardContent : public ByteSource {
 public:
  // `source` must outlive it. `size`: of the shard, in bytes.
  ShardContent(ByteSource& source, std::string path, uint64_t size);

  const std::string& path() const { return path_; }

  // Only for this shard: InvalidArgument for another path.
  absl::StatusOr<uint64_t> Size(const std::string& path) override;
  absl::Status ReadAt(const std::string& path, uint64_t offset, std::span<std::byte> out) override;

  // The digest of the digests of all pieces, in order. Reads the pieces that were not read yet.
  absl::StatusOr<Digest> Finish();

 private:
  struct Kept {
    bool filled = false;
    uint64_t piece = 0;
    uint64_t used = 0;  // time of its last use, counted in requests
    std::vector<std::byte> bytes;
  };

  absl::Status CheckPath(const std::string& path) const;
  // Valid until the next call.
  absl::StatusOr<std::span<const std::byte>> Piece(uint64_t piece);

  ByteSource& source_;
  const std::string path_;
  const uint64_t size_;
  std::array<Kept, 4> kept_;
  uint64_t requests_ = 0;
  std::vector<Digest> digests_;  // of the pieces
  std::vector<bool> hashed_;
};

}  // namespace evenkeel::dataset
