// Checks names of media before they become paths, and recognises media by their first bytes.
#include "dataset/format/media_file.h"

#include <algorithm>
#include <array>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "core/utf8.h"
#include "dataset/source/byte_source.h"

namespace evenkeel::dataset {
namespace {

constexpr size_t kMaxNameBytes = 4096;
constexpr size_t kPrintedBytes = 200;

absl::Status Unusable(std::string_view name, absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat("'", Printable(name, kPrintedBytes), "': ", why));
}

// "scheme:" of RFC 3986 before anything else; a single letter is not taken for one.
bool HasScheme(std::string_view name) {
  const size_t colon = name.find(':');
  if (colon == std::string_view::npos || colon < 2) return false;
  for (char c : name.substr(0, colon))
    if (!absl::ascii_isalnum(static_cast<unsigned char>(c)) && c != '+' && c != '-') return false;
  return name.substr(colon + 1).starts_with("//") || name.starts_with("data:");
}

struct Magic {
  size_t offset;
  std::string_view bytes;
  std::string_view suffix;
};
using namespace std::string_view_literals;
// The first that matches. Brands of ISO media files: audio alone is "M4A ".
constexpr std::array kMagic = {
    Magic{0, "\xff\xd8\xff"sv, "jpg"},
    Magic{0, "\x89PNG\r\n\x1a\n"sv, "png"},
    Magic{0, "GIF87a"sv, "gif"},
    Magic{0, "GIF89a"sv, "gif"},
    Magic{8, "WEBP"sv, "webp"},
    Magic{0, "BM"sv, "bmp"},
    Magic{0, "II*\0"sv, "tiff"},
    Magic{0, "MM\0*"sv, "tiff"},
    Magic{0, "II+\0"sv, "tiff"},
    Magic{0, "MM\0+"sv, "tiff"},
    Magic{8, "WAVE"sv, "wav"},
    Magic{8, "AVI "sv, "avi"},
    Magic{8, "AIFF"sv, "aiff"},
    Magic{8, "AIFC"sv, "aifc"},
    Magic{0, "fLaC"sv, "flac"},
    Magic{0, "OggS"sv, "ogg"},
    Magic{0, "ID3"sv, "mp3"},
    Magic{0, "\xff\xfb"sv, "mp3"},
    Magic{0, "\xff\xf3"sv, "mp3"},
    Magic{0, "\xff\xf2"sv, "mp3"},
    Magic{0, "\xff\xf1"sv, "aac"},
    Magic{0, "\xff\xf9"sv, "aac"},
    Magic{4, "ftypM4A "sv, "m4a"},
    Magic{4, "ftypqt  "sv, "mov"},
    Magic{4, "ftypavif"sv, "avif"},
    Magic{4, "ftypavis"sv, "avif"},
    Magic{4, "ftypheic"sv, "heic"},
    Magic{4, "ftypheix"sv, "heic"},
    Magic{4, "ftypmif1"sv, "heif"},
    Magic{4, "ftyp"sv, "mp4"},
    Magic{0, "\x1a\x45\xdf\xa3"sv, "mkv"},
    Magic{0, "\x00\x00\x01\xba"sv, "mpg"},
};

}  // namespace

std::string MediaFolder(const DatasetSpec& dataset, std::string_view shard_path) {
  if (!dataset.media.empty()) return dataset.media;
  const size_t slash = shard_path.rfind('/');
  if (slash == std::string_view::npos) return ".";
  return std::string(shard_path.substr(0, slash == 0 ? 1 : slash));
}

absl::StatusOr<std::string> RelativeMediaName(std::string_view name, std::string_view folder) {
  std::string_view path = name;
  constexpr std::string_view kFile = "file://";
  if (path.starts_with(kFile)) {
    path.remove_prefix(kFile.size());
  } else if (HasScheme(path)) {
    return Unusable(name, "an address; media of rows are files");
  }
  if (path.empty()) return Unusable(name, "an empty name");
  if (path.size() > kMaxNameBytes) return Unusable(name, "longer than 4096 bytes");
  if (!IsUtf8(path)) return Unusable(name, "not UTF-8");
  for (char c : path)
    if (static_cast<uint8_t>(c) < 0x20 || c == 0x7F) return Unusable(name, "a control character in the name");
  if (path[0] == '/') {
    while (folder.size() > 1 && folder.back() == '/') folder.remove_suffix(1);
    const bool is_below = folder == "/" || (path.starts_with(folder) && path.substr(folder.size(), 1) == "/");
    if (!is_below) {
      return Unusable(name, absl::StrCat("not below the dataset's folder of media, ", std::string(folder)));
    }
    path.remove_prefix(folder == "/" ? 0 : folder.size());
  }
  std::vector<absl::string_view> parts;
  for (absl::string_view part : absl::StrSplit(absl::string_view(path.data(), path.size()), '/')) {
    if (part == "..") return Unusable(name, "path traversal");
    if (!part.empty() && part != ".") parts.push_back(part);
  }
  if (parts.empty() || path.back() == '/') return Unusable(name, "a folder, not a file");
  return absl::StrJoin(parts, "/");
}

std::string MediaPath(std::string_view folder, std::string_view relative_name) {
  return absl::StrCat(absl::string_view(folder.data(), folder.size()),
                      absl::string_view(kConfined.data(), kConfined.size()),
                      absl::string_view(relative_name.data(), relative_name.size()));
}

std::string_view SuffixOfBytes(std::span<const std::byte> bytes) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()),
                              std::min<size_t>(bytes.size(), 16));
  for (const Magic& magic : kMagic) {
    if (text.size() >= magic.offset && text.substr(magic.offset).starts_with(magic.bytes))
      return magic.suffix;
  }
  return "";
}

std::string SuffixOfName(std::string_view name) {
  name.remove_prefix(name.rfind('/') + 1);  // npos + 1 is 0
  const size_t dot = name.rfind('.');
  if (dot == std::string_view::npos) return "";
  name.remove_prefix(dot + 1);
  return absl::AsciiStrToLower(absl::string_view(name.data(), name.size()));
}

}  // namespace evenkeel::dataset
