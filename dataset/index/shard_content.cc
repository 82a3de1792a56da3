// Reads a shard in hashed pieces and keeps the last few of them.
#include "dataset/index/shard_content.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/status.h"

namespace evenkeel::dataset {

ShardContent::ShardContent(ByteSource& source, std::string path, uint64_t size)
    : source_(source), path_(std::move(path)), size_(size) {
  const uint64_t pieces = size_ / kContentPieceBytes + (size_ % kContentPieceBytes != 0);
  digests_.resize(pieces);
  hashed_.resize(pieces);
}

absl::Status ShardContent::CheckPath(const std::string& path) const {
  if (path == path_) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(path, ": this reader has only the content of ", path_));
}

absl::StatusOr<uint64_t> ShardContent::Size(const std::string& path) {
  EVENKEEL_RETURN_IF_ERROR(CheckPath(path));
  return size_;
}

absl::StatusOr<std::span<const std::byte>> ShardContent::Piece(uint64_t piece) {
  ++requests_;
  Kept* oldest = &kept_[0];
  for (Kept& kept : kept_) {
    if (kept.filled && kept.piece == piece) {
      kept.used = requests_;
      return std::span<const std::byte>(kept.bytes);
    }
    if (kept.used < oldest->used) oldest = &kept;
  }
  const uint64_t begin = piece * kContentPieceBytes;
  oldest->filled = false;
  oldest->bytes.resize(std::min(kContentPieceBytes, size_ - begin));
  EVENKEEL_RETURN_IF_ERROR(source_.ReadAt(path_, begin, oldest->bytes));
  oldest->filled = true;
  oldest->piece = piece;
  oldest->used = requests_;
  if (!hashed_[piece]) digests_[piece] = DigestOf(std::span<const std::byte>(oldest->bytes));
  hashed_[piece] = true;
  return std::span<const std::byte>(oldest->bytes);
}

absl::Status ShardContent::ReadAt(const std::string& path, uint64_t offset, std::span<std::byte> out) {
  EVENKEEL_RETURN_IF_ERROR(CheckPath(path));
  if (offset > size_ || out.size() > size_ - offset) {
    return absl::OutOfRangeError(absl::StrCat(path_, ": ends at byte ", size_));
  }
  while (!out.empty()) {
    EVENKEEL_ASSIGN_OR_RETURN(std::span<const std::byte> piece, Piece(offset / kContentPieceBytes));
    piece = piece.subspan(offset % kContentPieceBytes);
    const size_t count = std::min(piece.size(), out.size());
    std::memcpy(out.data(), piece.data(), count);
    out = out.subspan(count);
    offset += count;
  }
  return absl::OkStatus();
}

absl::StatusOr<Digest> ShardContent::Finish() {
  Digester digester;
  for (uint64_t piece = 0; piece < digests_.size(); ++piece) {
    if (!hashed_[piece]) EVENKEEL_RETURN_IF_ERROR(Piece(piece).status());
    digester.Update(std::as_bytes(std::span(digests_[piece].bytes)));
  }
  return digester.Finish();
}

}  // namespace evenkeel::dataset
