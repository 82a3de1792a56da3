// Bytes of far objects on a local disk, so that another epoch, and other workers of the machine, need no request.
//
// A range is one file, named by the digest of its address, offset and size, with a checksum at its end. Files are written
// under another name and renamed, so that a process that is killed leaves no half of one; damage is seen when a file is
// read, and the file removed. Each of 256 folders keeps within its share of the limit: about every time that all processes
// together have written a sixteenth of it, one of them (a lock on the folder) removes the files that were used longest ago.
//
// What is found is what once was read from that address. Whether the object has changed since is the reader's to see, by
// its own checksum.
//
// Example:
//     EVENKEEL_ASSIGN_OR_RETURN(std::unique_ptr<DiskCache> cache, DiskCache::Open("/mnt/nvme/evenkeel", 200ull << 30));
//     if (!cache->Find("s3://b/a.tar", 512, out)) cache->Keep("s3://b/a.tar", 512, out);  // filled in between
//
// Thread safety: all members may be called from many threads, and the folder used by many processes.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "core/annotated_mutex.h"

namespace evenkeel::dataset {

class DiskCache {
 public:
  struct Counts {
    uint64_t hits = 0;
    uint64_t misses = 0;
    uint64_t damaged = 0;    // among the misses
    uint64_t unwritten = 0;  // ranges that could not be written, as on a full disk
  };

  // Makes the folder where there is none. InvalidArgument: less than 256 MiB, or not a folder;
  // PermissionDenied: it cannot be written.
  static absl::StatusOr<std::unique_ptr<DiskCache>> Open(const std::string& folder, uint64_t max_bytes);

  // True: `out` is the range. Otherwise `out` may have been written to.
  bool Find(const std::string& address, uint64_t offset, std::span<std::byte> out);
  // Best effort: a disk that is full or fails is no error. After a failure nothing is written for ten seconds.
  void Keep(const std::string& address, uint64_t offset, std::span<const std::byte> bytes);

  Counts counts() const;

 private:
  static constexpr size_t kFolders = 256;

  DiskCache(std::string folder, uint64_t max_bytes);
  // Of a range: its folder, and its file.
  struct Place {
    size_t folder = 0;
    std::string path;
    uint64_t chance = 0;  // evenly distributed over the ranges
  };
  Place PlaceOf(const std::string& address, uint64_t offset, uint64_t size) const;
  std::string FolderPath(size_t folder) const;
  bool Write(const Place& place, std::span<const std::byte> bytes);
  // Removes the folder's oldest files, unless another process does.
  void Trim(size_t folder);

  const std::string folder_;
  const uint64_t folder_bytes_;  // the share of one of kFolders
  std::atomic<uint64_t> next_file_{0};
  std::atomic<uint64_t> hits_{0}, misses_{0}, damaged_{0}, unwritten_{0};
  Mutex mutex_;
  absl::Time silent_until_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
};

}  // namespace evenkeel::dataset
