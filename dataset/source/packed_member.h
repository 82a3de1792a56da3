// Compressed members of tar archives: their addresses in the index, and what they decompress to.
//
// The bytes of such a member are a range of the shard, but its sample is what they decompress to. So its place is an
// address, which MakePackedMemberSource reads like an offset: how it is compressed, where it begins in the shard, and how
// many bytes of the shard it has. The size that the index has for it is that of the decompressed bytes.
//
// Example:
//     const std::optional<uint64_t> address = PackedMemberAddress(Packing::kGzip, member.offset, member.size);
//     absl::StatusOr<uint64_t> size = UnpackedSize(source, path, *address, limits.max_image_bytes);
//     absl::Status read = ReadPackedMember(source, path, *address, out);  // `out` has *size bytes
//
// Thread safety: functions without state; the source may be used from many threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/packing.h"
#include "dataset/source/byte_source.h"

namespace evenkeel::dataset {

// The top two bits of an address are 01, which neither tables nor MDS shards have. Then: whether it is Zstandard (1 bit), the
// tar block of 512 bytes that it begins at (29), its compressed bytes (32).
inline bool IsPackedMember(uint64_t offset) { return offset >> 62 == 1; }

// Of a member of `size` bytes at `offset` of the shard. nullopt: it begins beyond 256 GiB, is larger than 4 GiB, or is not at
// a block.
std::optional<uint64_t> PackedMemberAddress(Packing packing, uint64_t offset, uint64_t size);

// Makes offset and size of an address those of the compressed bytes; leaves another range as it is.
void LocatePackedMember(ByteRange& range);

// How many bytes the member at `address` decompresses to. ResourceExhausted: more than `max_bytes`, found without
// decompressing the rest. DataLoss: damaged or cut off. Errors of the source.
absl::StatusOr<uint64_t> UnpackedSize(ByteSource& source, const std::string& path, uint64_t address,
                                      uint64_t max_bytes);
// Fills `out`, which has that size. DataLoss: damaged, cut off, or of another size. Errors of the source.
absl::Status ReadPackedMember(ByteSource& source, const std::string& path, uint64_t address,
                              std::span<std::byte> out);

// `files`, and in addition compressed members by their addresses. What a member does not decompress to is DataLoss of
// FailureKind::kData.
std::unique_ptr<ByteSource> MakePackedMemberSource(std::unique_ptr<ByteSource> files);

}  // namespace evenkeel::dataset
