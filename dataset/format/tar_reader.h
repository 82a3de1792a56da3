// Reads the headers of a tar archive (POSIX ustar, PAX, GNU, and the old V7 form) from a ByteSource, without
// the bodies of its members.
//
// It does not extract files. A name is never used as a path; at worst it is a strange key.
//
// Example:
//     TarReader reader(source, path, size);
//     for (;;) {
//       absl::StatusOr<std::optional<TarMember>> member = reader.Next();
//       if (!member.ok()) return member.status();  // DataLoss: damaged from reader.offset() on
//       if (!member->has_value()) break;           // the end marker was read
//     }
//
// Thread safety: none; one reader, one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "dataset/source/byte_source.h"

namespace evenkeel::dataset {

inline constexpr uint64_t kTarBlock = 512;
inline constexpr uint64_t kMaxTarName = 255;
inline constexpr uint64_t kMaxPaxHeader = 1 << 20;

struct TarMember {
  std::string name;            // as stored; it may be unsafe as a path and is never used as one
  uint64_t header_offset = 0;  // of its first header block, including extended headers
  uint64_t offset = 0;         // of its body
  uint64_t size = 0;           // of its body
  // Empty: a usable regular file. Otherwise the reason why it is not: "link", "device", "sparse file", "name
  // too long", ...
  std::string refused;
};

class TarReader {
 public:
  // `size`: of the whole shard. `source` must outlive the reader.
  TarReader(ByteSource& source, std::string path, uint64_t size)
      : source_(source), path_(std::move(path)), size_(size) {}

  // The next member that is not a directory; nullopt at the end marker. DataLoss: the archive is damaged at
  // byte offset(): bad checksum, a size beyond the end of the shard, no end marker, data after it. Reading
  // cannot continue after that. Otherwise the errors of the source.
  absl::StatusOr<std::optional<TarMember>> Next();

  // The byte of the next header, or of the damaged one.
  uint64_t offset() const { return offset_; }

 private:
  // Values of extended headers for the next member.
  struct Extended {
    std::optional<std::string> path;
    std::optional<uint64_t> size;
    bool sparse = false;
    bool too_long = false;
  };
  struct Header {
    std::string name;
    uint64_t size = 0;
    char type = 0;
  };

  absl::Status Damaged(const std::string& why) const;
  // nullopt: a block of zeros. Sets offset_ to the byte after the header.
  absl::StatusOr<std::optional<Header>> ReadHeader();
  absl::StatusOr<std::string> ReadBody(uint64_t size, uint64_t limit, const char* what);
  absl::Status ReadExtended(const Header& header, Extended& extended);
  absl::Status ReadPax(const std::string& records, Extended& extended) const;
  absl::Status CheckTail();
  // Moves to the end of a body of `size` bytes and its padding.
  void Skip(uint64_t size);

  ByteSource& source_;
  const std::string path_;
  const uint64_t size_;
  uint64_t offset_ = 0;
};

// The WebDataset key rule: ^((?:.*/|)[^.]+)[.]([^/]*)$ with the suffix in lower case. False: no
// match.
bool SplitWebDatasetName(const std::string& name, std::string* key, std::string* suffix);

// Why a member of this name cannot be part of a sample ("unsafe name", "name is not UTF-8", ...); empty: it
// can.
std::string RefuseName(const std::string& name);

}  // namespace evenkeel::dataset
