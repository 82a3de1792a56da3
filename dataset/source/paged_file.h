// The container of all index files: pages of 4096 bytes, each with its own checksum, so that a row costs one
// or two small reads and damage is located. docs/index-format.md has the bytes.
//
// A file has a header page and up to eight sections, each of which starts on a page.
//
// Thread safety: PageCache and const PagedFile may be used from many threads.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/annotated_mutex.h"
#include "core/digest.h"
#include "dataset/source/byte_source.h"

namespace evenkeel::dataset {

inline constexpr uint64_t kPageBytes = 4096;
inline constexpr uint64_t kPagePayload =
    4080;  // then u64 page number and u64 checksum; 255*16 = 340*12 = 85*48
inline constexpr size_t kMaxSections = 8;

enum class FileKind : uint32_t { kPlaces = 1, kFacts = 2, kLengths = 3, kSteps = 4 };

struct PagedHeader {
  FileKind kind = FileKind::kPlaces;
  Digest key;      // of everything in addition to the shard that determines the content
  Digest content;  // defined by the kind
  std::array<uint64_t, 8> numbers{};
};

// The bytes of a file.
std::string WritePaged(const PagedHeader& header, const std::vector<std::string_view>& sections);

// A bounded cache of pages: direct-mapped, so a page costs no allocation and no list.
class PageCache {
 public:
  explicit PageCache(size_t bytes);

  uint64_t NewFileId() { return next_id_.fetch_add(1, std::memory_order_relaxed); }
  // Copies payload bytes [offset, offset + out.size()) of a page. Reads and checks the page if it is not
  // cached.
  absl::Status Read(ByteSource& source, const std::string& path, uint64_t file_id, uint64_t page,
                    uint64_t offset, std::span<std::byte> out);

 private:
  struct Slot {
    uint64_t file_id = 0;  // 0: empty
    uint64_t page = 0;
    std::array<std::byte, kPagePayload> payload;
  };
  static constexpr size_t kStripes = 64;

  std::array<Mutex, kStripes> mutexes_;  // slot i is guarded by mutexes_[i % kStripes]; never two at once
  std::vector<std::unique_ptr<Slot>> slots_;  // allocated on first use
  std::atomic<uint64_t> next_id_{1};
};

class PagedFile {
 public:
  // Reads and checks the header page. DataLoss: damaged or not of `kind`; otherwise the errors of the source.
  // `source` and `cache` must outlive the file.
  static absl::StatusOr<std::unique_ptr<PagedFile>> Open(ByteSource& source, PageCache& cache,
                                                         const std::string& path, FileKind kind);

  const PagedHeader& header() const { return header_; }
  size_t num_sections() const { return sections_.size(); }
  uint64_t section_bytes(size_t section) const {
    return section < sections_.size() ? sections_[section].bytes : 0;
  }
  // DataLoss: the section is shorter than that, or a page is damaged.
  absl::Status Read(size_t section, uint64_t offset, std::span<std::byte> out) const;
  absl::Status Damaged(std::string_view why) const;

 private:
  struct Section {
    uint64_t first_page = 0;
    uint64_t bytes = 0;
  };
  PagedFile(ByteSource& source, PageCache& cache, std::string path)
      : source_(source), cache_(cache), path_(std::move(path)), id_(cache.NewFileId()) {}
  absl::Status ParseHeader(FileKind kind, uint64_t file_bytes);

  ByteSource& source_;
  PageCache& cache_;
  const std::string path_;
  const uint64_t id_;
  PagedHeader header_;
  std::vector<Section> sections_;
};

}  // namespace evenkeel::dataset
