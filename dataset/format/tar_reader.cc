// Walks through the header blocks of a tar archive; errors name the byte where the archive is damaged.
#include "dataset/format/tar_reader.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "core/status.h"
#include "core/utf8.h"

namespace evenkeel::dataset {
namespace {

using Block = std::array<char, kTarBlock>;

struct Field {
  size_t begin;
  size_t size;
};
// The fields of a header block that are read (POSIX.1-2017, pax, "ustar Interchange Format").
constexpr Field kName{0, 100}, kSize{124, 12}, kChecksum{148, 8}, kType{156, 1}, kMagic{257, 6},
    kPrefix{345, 155};

std::string_view Text(const Block& block, Field field) {
  std::string_view text(block.data() + field.begin, field.size);
  return text.substr(0, text.find('\0'));
}

// Octal digits with spaces or zero bytes around them, or big-endian base-256 if the first bit is set.
std::optional<uint64_t> Number(const Block& block, Field field) {
  std::string_view bytes(block.data() + field.begin, field.size);
  uint64_t value = 0;
  if (static_cast<uint8_t>(bytes[0]) & 0x80) {
    if (bytes[0] & 0x40) return std::nullopt;  // negative
    for (size_t i = 0; i < bytes.size(); ++i) {
      uint64_t byte = static_cast<uint8_t>(bytes[i]) & (i == 0 ? 0x3F : 0xFF);
      if (value >> 55) return std::nullopt;
      value = value << 8 | byte;
    }
    return value;
  }
  size_t begin = std::min(bytes.find_first_not_of(' '), bytes.size());
  size_t end = begin;
  while (end < bytes.size() && bytes[end] >= '0' && bytes[end] <= '7') {
    value = value << 3 | static_cast<uint64_t>(bytes[end++] - '0');  // at most 12 digits: 36 bits
  }
  for (size_t i = end; i < bytes.size(); ++i) {
    if (bytes[i] != ' ' && bytes[i] != '\0') return std::nullopt;
  }
  return value;
}

bool AllZero(std::string_view bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](char c) { return c == 0; });
}

// The sum of the header's bytes, with spaces in place of the checksum. Some old writers summed signed bytes.
bool ChecksumAgrees(const Block& block) {
  std::optional<uint64_t> stored = Number(block, kChecksum);
  if (!stored) return false;
  int64_t with_unsigned = 0, with_signed = 0;
  for (size_t i = 0; i < block.size(); ++i) {
    bool inside = i >= kChecksum.begin && i < kChecksum.begin + kChecksum.size;
    char c = inside ? ' ' : block[i];
    with_unsigned += static_cast<uint8_t>(c);
    with_signed += static_cast<signed char>(c);
  }
  return static_cast<int64_t>(*stored) == with_unsigned || static_cast<int64_t>(*stored) == with_signed;
}

std::string RefuseType(char type) {
  switch (type) {
    case '\0':
    case '0':
    case '7':
      return "";
    case '1':
    case '2':
      return "link";
    case '3':
    case '4':
    case '6':
      return "device";
    case 'S':
      return "sparse file";
    default:
      return absl::StrCat("tar entry of type '", Printable(std::string_view(&type, 1)), "'");
  }
}

std::span<std::byte> Bytes(char* data, size_t size) { return {reinterpret_cast<std::byte*>(data), size}; }

}  // namespace

absl::Status TarReader::Damaged(const std::string& why) const {
  return absl::DataLossError(absl::StrCat(path_, ": shard damaged at byte ", offset_, ": ", why));
}

void TarReader::Skip(uint64_t size) {
  // Cannot overflow: callers have checked that `size` is within the shard. The last body may lack its
  // padding.
  offset_ = std::min(size_, offset_ + (size + kTarBlock - 1) / kTarBlock * kTarBlock);
}

absl::StatusOr<std::optional<TarReader::Header>> TarReader::ReadHeader() {
  if (size_ == 0) return Damaged("the file is empty");
  if (offset_ == size_) return Damaged("no end marker; the archive is truncated");
  if (size_ - offset_ < kTarBlock) return Damaged("the archive ends inside a header");
  Block block;
  EVENKEEL_RETURN_IF_ERROR(source_.ReadAt(path_, offset_, Bytes(block.data(), block.size())));
  if (AllZero({block.data(), block.size()})) {
    if (offset_ == 0) return Damaged("the archive is empty: an end marker and no members");
    return std::nullopt;
  }
  if (!ChecksumAgrees(block)) return Damaged("bad header checksum; not a tar header");
  Header header;
  header.type = block[kType.begin];
  std::optional<uint64_t> size = Number(block, kSize);
  if (!size) return Damaged("the size field is not a number");
  header.size = *size;
  header.name = std::string(Text(block, kName));
  // Only POSIX ("ustar\0") has the prefix field; GNU ("ustar ") stores times there.
  if (std::memcmp(block.data() + kMagic.begin, "ustar\0", kMagic.size) == 0) {
    std::string_view prefix = Text(block, kPrefix);
    if (!prefix.empty()) header.name = absl::StrCat(std::string(prefix), "/", header.name);
  }
  return header;
}

absl::StatusOr<std::string> TarReader::ReadBody(uint64_t size, uint64_t limit, const char* what) {
  uint64_t body = offset_ + kTarBlock;
  if (size > size_ - body)
    return Damaged(absl::StrCat("size ", size, " of ", what, " is beyond the end of the shard"));
  if (size > limit) return Damaged(absl::StrCat(what, " of ", size, " bytes; the limit is ", limit));
  std::string bytes(size, '\0');
  EVENKEEL_RETURN_IF_ERROR(source_.ReadAt(path_, body, Bytes(bytes.data(), bytes.size())));
  return bytes;
}

absl::Status TarReader::ReadPax(const std::string& records, Extended& extended) const {
  // A record is "length key=value\n"; its length is that of the whole record.
  std::string_view rest = records;
  while (!rest.empty()) {
    if (AllZero(rest)) break;  // some writers pad within the size
    size_t space = rest.find(' ');
    uint64_t length = 0;
    if (space == std::string_view::npos || space == 0 || space > 8 ||
        rest.find_first_not_of("0123456789") != space ||
        !absl::SimpleAtoi(absl::string_view(rest.data(), space), &length) || length <= space + 1 ||
        length > rest.size() || rest[length - 1] != '\n') {
      return Damaged("malformed PAX record");
    }
    std::string_view record = rest.substr(space + 1, length - space - 2);
    rest.remove_prefix(length);
    size_t equals = record.find('=');
    if (equals == std::string_view::npos) return Damaged("malformed PAX record");
    std::string_view key = record.substr(0, equals), value = record.substr(equals + 1);
    if (key == "path") {
      extended.too_long = value.size() > kMaxTarName;
      extended.path = std::string(value.substr(0, kMaxTarName));
    } else if (key == "size") {
      uint64_t size = 0;
      if (value.empty() || value.size() > 19 ||
          value.find_first_not_of("0123456789") != std::string_view::npos ||
          !absl::SimpleAtoi(absl::string_view(value.data(), value.size()), &size)) {
        return Damaged("the PAX size is not a number");
      }
      extended.size = size;
    } else if (key.substr(0, 10) == "GNU.sparse") {
      extended.sparse = true;
    }
  }
  return absl::OkStatus();
}

absl::Status TarReader::ReadExtended(const Header& header, Extended& extended) {
  if (header.type == 'x') {
    EVENKEEL_ASSIGN_OR_RETURN(std::string records, ReadBody(header.size, kMaxPaxHeader, "a PAX header"));
    EVENKEEL_RETURN_IF_ERROR(ReadPax(records, extended));
  } else if (header.type == 'L') {
    EVENKEEL_ASSIGN_OR_RETURN(std::string name, ReadBody(header.size, kMaxPaxHeader, "a GNU long name"));
    name.resize(std::min(name.find('\0'), name.size()));
    extended.too_long = name.size() > kMaxTarName;
    extended.path = name.substr(0, kMaxTarName);
  } else {  // 'g' has defaults for all members, which are not needed; 'K' has the target of a link
    EVENKEEL_RETURN_IF_ERROR(ReadBody(header.size, kMaxPaxHeader, "an extended header").status());
  }
  offset_ += kTarBlock;
  Skip(header.size);
  return absl::OkStatus();
}

// After the end marker only zeros are accepted: other data would be ignored silently.
absl::Status TarReader::CheckTail() {
  std::vector<char> chunk(64 << 10);
  for (uint64_t at = offset_; at < size_; at += chunk.size()) {
    chunk.resize(std::min<uint64_t>(chunk.size(), size_ - at));
    EVENKEEL_RETURN_IF_ERROR(source_.ReadAt(path_, at, Bytes(chunk.data(), chunk.size())));
    if (!AllZero({chunk.data(), chunk.size()})) {
      offset_ = at;
      return Damaged("data after the end marker");
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::optional<TarMember>> TarReader::Next() {
  Extended extended;
  uint64_t first_header = offset_;
  for (;;) {
    EVENKEEL_ASSIGN_OR_RETURN(std::optional<Header> header, ReadHeader());
    if (!header) {
      if (first_header != offset_) return Damaged("an extended header without its member");
      EVENKEEL_RETURN_IF_ERROR(CheckTail());
      return std::nullopt;
    }
    if (header->type == 'x' || header->type == 'g' || header->type == 'L' || header->type == 'K') {
      EVENKEEL_RETURN_IF_ERROR(ReadExtended(*header, extended));
      // A chain of extended headers is legal, but never long.
      if (offset_ - first_header > 4 * kMaxPaxHeader) return Damaged("too many extended headers");
      continue;
    }
    TarMember member;
    member.header_offset = first_header;
    member.name = extended.path.value_or(header->name);
    member.refused =
        extended.too_long || member.name.size() > kMaxTarName ? "name too long" : RefuseType(header->type);
    if (extended.sparse) member.refused = "sparse file";
    // Links and devices have no body; their size field is ignored.
    bool has_body = member.refused != "link" && member.refused != "device" && header->type != '5';
    member.size = has_body ? extended.size.value_or(header->size) : 0;
    if (member.size > size_ - offset_ - kTarBlock) {
      return Damaged(absl::StrCat("member '", Printable(member.name), "' claims ", member.size,
                                  " bytes; only ", size_ - offset_ - kTarBlock, " are left in the shard"));
    }
    offset_ += kTarBlock;
    member.offset = offset_;
    Skip(member.size);
    if (header->type == '5') {
      extended = {};
      first_header = offset_;
      continue;
    }
    return member;
  }
}

bool SplitWebDatasetName(const std::string& name, std::string* key, std::string* suffix) {
  // The regular expression tries the longest folder first, then shorter ones, then none.
  size_t folder = name.rfind('/');
  for (;;) {
    size_t begin = folder == std::string::npos ? 0 : folder + 1;
    size_t dot = name.find('.', begin);
    if (dot != std::string::npos && dot > begin && name.find('/', dot) == std::string::npos) {
      *key = name.substr(0, dot);
      *suffix = absl::AsciiStrToLower(name.substr(dot + 1));
      return true;
    }
    if (folder == std::string::npos) return false;
    folder = folder == 0 ? std::string::npos : name.rfind('/', folder - 1);
  }
}

std::string RefuseName(const std::string& name) {
  if (!IsUtf8(name)) return "name is not UTF-8";
  for (char c : name) {
    if (static_cast<uint8_t>(c) < 0x20 || c == 0x7F) return "control character in the name";
  }
  if (!name.empty() && name[0] == '/') return "absolute path";
  for (size_t begin = 0; begin <= name.size();) {
    size_t end = std::min(name.find('/', begin), name.size());
    if (name.compare(begin, end - begin, "..") == 0) return "path traversal";
    begin = end + 1;
  }
  return "";
}

}  // namespace evenkeel::dataset
