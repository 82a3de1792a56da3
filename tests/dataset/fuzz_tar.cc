// Any bytes as a shard: the scanner ends, every member lies within the shard, and a compressed one is read as it was measured.
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "dataset/format/shard_scanner.h"
#include "dataset/source/packed_member.h"

namespace {

constexpr uint64_t kMaxUnpackedBytes = 1 << 20;

class OneObject : public evenkeel::dataset::ByteSource {
 public:
  explicit OneObject(std::span<const uint8_t> bytes) : bytes_(bytes) {}
  absl::StatusOr<uint64_t> Size(const std::string&) override { return bytes_.size(); }
  absl::Status ReadAt(const std::string&, uint64_t offset, std::span<std::byte> out) override {
    if (offset > bytes_.size() || out.size() > bytes_.size() - offset) return absl::OutOfRangeError("end");
    if (!out.empty()) std::memcpy(out.data(), bytes_.data() + offset, out.size());
    return absl::OkStatus();
  }

 private:
  std::span<const uint8_t> bytes_;
};

// A fuzzer does not find checksums: every block that could be a header gets a right one.
void MendChecksums(std::vector<uint8_t>& bytes) {
  for (size_t at = 0; at + 512 <= bytes.size(); at += 512) {
    if (std::memcmp(&bytes[at + 257], "ustar", 5) != 0) continue;
    std::memset(&bytes[at + 148], ' ', 8);
    unsigned sum = 0;
    for (size_t i = 0; i < 512; ++i) sum += bytes[at + i];
    char text[9];
    std::snprintf(text, sizeof text, "%06o", sum);
    std::memcpy(&bytes[at + 148], text, 7);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::vector<uint8_t> bytes(data, data + size);
  MendChecksums(bytes);
  OneObject source(bytes);
  evenkeel::Limits limits;
  evenkeel::dataset::ShardScanner scanner(source, "fuzz.tar", bytes.size(), limits);
  for (;;) {
    auto sample = scanner.Next();
    if (!sample.ok()) std::abort();
    if (!sample->has_value()) return 0;
    for (const auto& member : (*sample)->members) {
      evenkeel::dataset::ByteRange range{.path = "", .offset = member.offset, .size = member.size};
      evenkeel::dataset::LocatePackedMember(range);
      if (range.offset > bytes.size() || range.size > bytes.size() - range.offset) std::abort();
      if (!evenkeel::dataset::IsPackedMember(member.offset)) continue;
      const auto unpacked = scanner.SizeOf(member, kMaxUnpackedBytes);
      if (!unpacked.ok()) continue;
      if (*unpacked > kMaxUnpackedBytes) std::abort();
      std::vector<std::byte> out(*unpacked);
      if (!scanner.ReadMember(member, out).ok()) std::abort();
    }
  }
}
