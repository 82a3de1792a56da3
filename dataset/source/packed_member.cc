// Decompresses members of tar archives as they are read, each from its own range of the shard.
#include "dataset/source/packed_member.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "core/failure.h"
#include "core/status.h"
#include "dataset/source/source_over.h"
#include "dataset/source/unpack.h"

namespace evenkeel::dataset {
namespace {

constexpr uint64_t kBlockBytes = 512;
constexpr int kBlockBits = 29, kSizeBits = 32;
constexpr uint64_t kMark = 1ull << 62, kIsZstd = 1ull << 61;
constexpr uint64_t kMaxSize = (1ull << kSizeBits) - 1;

// Decompresses the member at `address`, piece by piece into `write`.
absl::Status UnpackMember(ByteSource& source, const std::string& path, uint64_t address,
                          absl::FunctionRef<absl::Status(std::span<const std::byte>)> write) {
  ByteRange range{.path = path, .offset = address};
  LocatePackedMember(range);
  return Unpack(
      (address & kIsZstd) != 0 ? Packing::kZstd : Packing::kGzip, range.size,
      [&](uint64_t at, std::span<std::byte> out) { return source.ReadAt(path, range.offset + at, out); },
      write);
}

class PackedMemberSource : public SourceOver {
 public:
  explicit PackedMemberSource(std::unique_ptr<ByteSource> files)
      : SourceOver(*files), files_(std::move(files)) {}

  absl::Status ReadAt(const std::string& path, uint64_t offset, std::span<std::byte> out) override {
    if (!IsPackedMember(offset)) return files_->ReadAt(path, offset, out);
    const absl::Status read = ReadPackedMember(*files_, path, offset, out);
    if (!absl::IsDataLoss(read)) return read;
    return WithKind(AddContext(read, path), FailureKind::kData);
  }

  // In the pieces in which Unpack reads.
  std::unique_ptr<Expected> Expect(std::vector<ByteRange> ranges, uint64_t turn) override {
    std::vector<ByteRange> wanted;
    for (ByteRange& range : ranges) {
      if (!IsPackedMember(range.offset)) {
        wanted.push_back(std::move(range));
        continue;
      }
      LocatePackedMember(range);
      for (uint64_t at = 0; at < range.size; at += kUnpackPieceBytes) {
        ByteRange& piece = wanted.emplace_back(range);
        piece.offset += at;
        piece.size = std::min(kUnpackPieceBytes, range.size - at);
      }
    }
    return files_->Expect(std::move(wanted), turn);
  }

 private:
  const std::unique_ptr<ByteSource> files_;
};

}  // namespace

std::optional<uint64_t> PackedMemberAddress(Packing packing, uint64_t offset, uint64_t size) {
  if (packing == Packing::kNone || offset % kBlockBytes != 0 || offset / kBlockBytes >> kBlockBits != 0 ||
      size > kMaxSize) {
    return std::nullopt;
  }
  return kMark | (packing == Packing::kZstd ? kIsZstd : 0) | offset / kBlockBytes << kSizeBits | size;
}

void LocatePackedMember(ByteRange& range) {
  if (!IsPackedMember(range.offset)) return;
  range.size = range.offset & kMaxSize;
  range.offset = (range.offset >> kSizeBits & ((1ull << kBlockBits) - 1)) * kBlockBytes;
}

absl::StatusOr<uint64_t> UnpackedSize(ByteSource& source, const std::string& path, uint64_t address,
                                      uint64_t max_bytes) {
  uint64_t count = 0;
  EVENKEEL_RETURN_IF_ERROR(
      UnpackMember(source, path, address, [&](std::span<const std::byte> bytes) -> absl::Status {
        count += bytes.size();
        if (count <= max_bytes) return absl::OkStatus();
        return absl::ResourceExhaustedError(absl::StrCat("decompresses to more than ", max_bytes, " bytes"));
      }));
  return count;
}

absl::Status ReadPackedMember(ByteSource& source, const std::string& path, uint64_t address,
                              std::span<std::byte> out) {
  size_t done = 0;
  EVENKEEL_RETURN_IF_ERROR(
      UnpackMember(source, path, address, [&](std::span<const std::byte> bytes) -> absl::Status {
        if (bytes.size() > out.size() - done)
          return absl::DataLossError(absl::StrCat("decompresses to more than ", out.size(), " bytes"));
        std::memcpy(out.data() + done, bytes.data(), bytes.size());
        done += bytes.size();
        return absl::OkStatus();
      }));
  if (done == out.size()) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("decompresses to ", done, " bytes instead of ", out.size()));
}

std::unique_ptr<ByteSource> MakePackedMemberSource(std::unique_ptr<ByteSource> files) {
  return std::make_unique<PackedMemberSource>(std::move(files));
}

}  // namespace evenkeel::dataset
