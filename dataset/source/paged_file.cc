// Writes and reads files of checksummed pages, and caches pages.
#include "dataset/source/paged_file.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "core/failure.h"
#include "core/status.h"
#include "dataset/source/little_endian.h"

namespace evenkeel::dataset {
namespace {

constexpr std::string_view kMagic = "EVENKEEL";
constexpr uint64_t kFormatVersion = 2;
// Offsets in the payload of the header page.
constexpr size_t kKindAt = 8, kVersionAt = 12, kKeyAt = 16, kContentAt = 32, kNumbersAt = 48,
                 kSectionCountAt = 112, kSectionsAt = 120;

uint64_t PagesOf(uint64_t bytes) { return bytes / kPagePayload + (bytes % kPagePayload != 0); }

void AppendPage(std::string_view payload, uint64_t number, std::string& out) {
  size_t begin = out.size();
  out.append(payload);
  out.resize(begin + kPagePayload, '\0');
  PutLittle(number, 8, out);
  PutLittle(ChecksumOf(std::as_bytes(std::span(out.data() + begin, kPagePayload + 8))), 8, out);
}

}  // namespace

std::string WritePaged(const PagedHeader& header, const std::vector<std::string_view>& sections) {
  std::string head(kMagic);
  PutLittle(static_cast<uint32_t>(header.kind), 4, head);
  PutLittle(kFormatVersion, 4, head);
  head.append(reinterpret_cast<const char*>(header.key.bytes.data()), header.key.bytes.size());
  head.append(reinterpret_cast<const char*>(header.content.bytes.data()), header.content.bytes.size());
  for (uint64_t number : header.numbers) PutLittle(number, 8, head);
  PutLittle(sections.size(), 8, head);
  uint64_t page = 1;
  for (std::string_view section : sections) {
    PutLittle(page, 8, head);
    PutLittle(section.size(), 8, head);
    page += PagesOf(section.size());
  }
  std::string out;
  out.reserve(page * kPageBytes);
  AppendPage(head, 0, out);
  page = 1;
  for (std::string_view section : sections) {
    for (size_t at = 0; at < section.size(); at += kPagePayload) {
      AppendPage(section.substr(at, kPagePayload), page++, out);
    }
  }
  return out;
}

PageCache::PageCache(size_t bytes) : slots_(std::max<size_t>(bytes / sizeof(Slot), kStripes)) {}

absl::Status PageCache::Read(ByteSource& source, const std::string& path, uint64_t file_id, uint64_t page,
                             uint64_t offset, std::span<std::byte> out) {
  uint64_t mixed = (file_id * 0x9E3779B97F4A7C15u) ^ (page * 0xC2B2AE3D27D4EB4Fu);
  size_t index = (mixed ^ mixed >> 29) % slots_.size();
  Mutex& mutex = mutexes_[index % kStripes];
  {
    MutexLock lock(mutex);
    const Slot* slot = slots_[index].get();
    if (slot != nullptr && slot->file_id == file_id && slot->page == page) {
      std::memcpy(out.data(), slot->payload.data() + offset, out.size());
      return absl::OkStatus();
    }
  }
  std::array<std::byte, kPageBytes> bytes;
  absl::Status read = source.ReadAt(path, page * kPageBytes, bytes);
  if (absl::IsOutOfRange(read)) {
    return WithKind(absl::DataLossError(absl::StrCat(path, ": damaged index file: truncated")), KindOf(read));
  }
  EVENKEEL_RETURN_IF_ERROR(read);
  if (GetLittle(bytes.data() + kPagePayload, 8) != page ||
      GetLittle(bytes.data() + kPagePayload + 8, 8) != ChecksumOf(std::span(bytes).first(kPagePayload + 8))) {
    return absl::DataLossError(absl::StrCat(path, ": damaged index file: bad checksum at byte ",
                                            page * kPageBytes,
                                            "; remove the file and run 'evenkeel index' again"));
  }
  std::memcpy(out.data(), bytes.data() + offset, out.size());
  MutexLock lock(mutex);
  std::unique_ptr<Slot>& slot = slots_[index];
  if (slot == nullptr) slot = std::make_unique<Slot>();
  slot->file_id = file_id;
  slot->page = page;
  std::memcpy(slot->payload.data(), bytes.data(), kPagePayload);
  return absl::OkStatus();
}

absl::Status PagedFile::Damaged(std::string_view why) const {
  return absl::DataLossError(absl::StrCat(path_, ": damaged index file: ", std::string(why),
                                          "; remove the file and run 'evenkeel index' again"));
}

absl::Status PagedFile::ParseHeader(FileKind kind, uint64_t file_bytes) {
  std::array<std::byte, kSectionsAt + 16 * kMaxSections> head;
  EVENKEEL_RETURN_IF_ERROR(cache_.Read(source_, path_, id_, 0, 0, head));
  if (std::memcmp(head.data(), kMagic.data(), kMagic.size()) != 0) return Damaged("not an index file");
  if (GetLittle(head.data() + kVersionAt, 4) != kFormatVersion) return Damaged("made by another release");
  header_.kind = static_cast<FileKind>(GetLittle(head.data() + kKindAt, 4));
  if (header_.kind != kind) return Damaged("of another kind");
  std::memcpy(header_.key.bytes.data(), head.data() + kKeyAt, 16);
  std::memcpy(header_.content.bytes.data(), head.data() + kContentAt, 16);
  for (size_t i = 0; i < header_.numbers.size(); ++i)
    header_.numbers[i] = GetLittle(&head[kNumbersAt + 8 * i], 8);
  uint64_t count = GetLittle(head.data() + kSectionCountAt, 8);
  if (count > kMaxSections) return Damaged("too many sections");
  uint64_t page = 1;
  for (uint64_t i = 0; i < count; ++i) {
    Section section;
    section.first_page = GetLittle(&head[kSectionsAt + 16 * i], 8);
    section.bytes = GetLittle(&head[kSectionsAt + 16 * i + 8], 8);
    if (section.first_page != page || PagesOf(section.bytes) > file_bytes / kPageBytes)
      return Damaged("bad section");
    page += PagesOf(section.bytes);
    sections_.push_back(section);
  }
  if (page * kPageBytes != file_bytes) return Damaged("its size differs from its header");
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<PagedFile>> PagedFile::Open(ByteSource& source, PageCache& cache,
                                                           const std::string& path, FileKind kind) {
  EVENKEEL_ASSIGN_OR_RETURN(uint64_t bytes, source.Size(path));
  std::unique_ptr<PagedFile> file(new PagedFile(source, cache, path));
  EVENKEEL_RETURN_IF_ERROR(file->ParseHeader(kind, bytes));
  return file;
}

absl::Status PagedFile::Read(size_t section, uint64_t offset, std::span<std::byte> out) const {
  if (section >= sections_.size() || offset > sections_[section].bytes ||
      out.size() > sections_[section].bytes - offset) {
    return Damaged("a read beyond the end of a section");
  }
  while (!out.empty()) {
    uint64_t within = offset % kPagePayload;
    size_t n = std::min<uint64_t>(out.size(), kPagePayload - within);
    EVENKEEL_RETURN_IF_ERROR(cache_.Read(
        source_, path_, id_, sections_[section].first_page + offset / kPagePayload, within, out.first(n)));
    out = out.subspan(n);
    offset += n;
  }
  return absl::OkStatus();
}

}  // namespace evenkeel::dataset
