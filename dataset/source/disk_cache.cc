// Keeps ranges as files, and removes those that were used longest ago.
#include "dataset/source/disk_cache.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/digest.h"
#include "core/status.h"
#include "core/steady_time.h"
#include "core/write_all.h"

namespace evenkeel::dataset {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMinBytes = 256ull << 20;
// A file's time of use is written once in this many seconds.
constexpr int64_t kTouchSeconds = 60;
// What a process that was killed left half written.
constexpr int64_t kLeftoverSeconds = 3600;
constexpr absl::Duration kSilence = absl::Seconds(10);
// Disks give a file whole blocks.
constexpr uint64_t kBlock = 4096;

uint64_t OnDisk(uint64_t bytes) { return (bytes + kBlock - 1) / kBlock * kBlock; }

bool ReadAll(int file, std::span<std::byte> out) {
  while (!out.empty()) {
    const ssize_t count = ::read(file, out.data(), out.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    out = out.subspan(static_cast<size_t>(count));
  }
  return true;
}

bool WriteBytes(int file, std::span<const std::byte> bytes) {
  return WriteAll(file, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

// Set apart from the bytes of an empty range and from zeros, which a file system may leave after a crash.
Digest TrailerOf(std::span<const std::byte> bytes) {
  Digester digester;
  digester.Update("evenkeel cache 1");
  digester.Update(bytes);
  return digester.Finish();
}

struct Found {
  std::string path;
  uint64_t bytes = 0;
  timespec used{};
};

bool Older(const Found& a, const Found& b) {
  return std::pair(a.used.tv_sec, a.used.tv_nsec) < std::pair(b.used.tv_sec, b.used.tv_nsec);
}

}  // namespace

DiskCache::DiskCache(std::string folder, uint64_t max_bytes)
    : folder_(std::move(folder)), folder_bytes_(max_bytes / kFolders) {}

absl::StatusOr<std::unique_ptr<DiskCache>> DiskCache::Open(const std::string& folder, uint64_t max_bytes) {
  if (max_bytes < kMinBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("cache ", folder, ": ", max_bytes, " bytes; at least ", kMinBytes, " are of use"));
  }
  std::unique_ptr<DiskCache> cache(new DiskCache(folder, max_bytes));
  std::error_code error;
  for (size_t i = 0; i < kFolders && !error; ++i) fs::create_directories(cache->FolderPath(i), error);
  if (error == std::errc::not_a_directory || error == std::errc::file_exists) {
    return absl::InvalidArgumentError(absl::StrCat("cache ", folder, ": not a folder"));
  }
  const auto refused = [&folder](const std::string& why) {
    return absl::PermissionDeniedError(absl::StrCat("cache ", folder, ": cannot be written: ", why));
  };
  if (error) return refused(error.message());
  if (::access(cache->FolderPath(0).c_str(), R_OK | W_OK | X_OK) != 0) return refused(std::strerror(errno));
  return cache;
}

std::string DiskCache::FolderPath(size_t folder) const { return absl::StrFormat("%s/%02x", folder_, folder); }

DiskCache::Place DiskCache::PlaceOf(const std::string& address, uint64_t offset, uint64_t size) const {
  Digester digester;
  digester.Update(address);
  digester.UpdateU64(offset);
  digester.UpdateU64(size);
  const Digest name = digester.Finish();
  const size_t folder = name.bytes[0];
  uint64_t chance = 0;
  std::memcpy(&chance, &name.bytes[8], sizeof(chance));
  return {folder, absl::StrCat(FolderPath(folder), "/", name.Hex()), chance};
}

bool DiskCache::Find(const std::string& address, uint64_t offset, std::span<std::byte> out) {
  const Place place = PlaceOf(address, offset, out.size());
  const int file = ::open(place.path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) {
    ++misses_;
    return false;
  }
  const absl::Cleanup close = [file] { ::close(file); };
  Digest trailer;
  if (!ReadAll(file, out) || !ReadAll(file, std::as_writable_bytes(std::span(trailer.bytes))) ||
      trailer != TrailerOf(out)) {
    ::unlink(place.path.c_str());
    ++damaged_;
    ++misses_;
    return false;
  }
  // The file system's own time of reading is off on most machines.
  struct stat info;
  timespec now;
  ::clock_gettime(CLOCK_REALTIME, &now);
  if (::fstat(file, &info) == 0 && now.tv_sec - info.st_mtim.tv_sec > kTouchSeconds) {
    ::utimensat(AT_FDCWD, place.path.c_str(), nullptr, 0);
  }
  ++hits_;
  return true;
}

void DiskCache::Keep(const std::string& address, uint64_t offset, std::span<const std::byte> bytes) {
  if (OnDisk(bytes.size()) > folder_bytes_ / 4) return;  // it would push out most of its folder
  {
    MutexLock lock(mutex_);
    if (SteadyNow() < silent_until_) return;
  }
  const Place place = PlaceOf(address, offset, bytes.size());
  if (!Write(place, bytes)) {
    ++unwritten_;
    MutexLock lock(mutex_);
    silent_until_ = SteadyNow() + kSilence;
    return;
  }
  // By chance and not by a count, because no process knows what the others have written.
  const double share = static_cast<double>(OnDisk(bytes.size())) / (static_cast<double>(folder_bytes_) / 16);
  if (static_cast<double>(place.chance) < share * 0x1p64) Trim(place.folder);
}

bool DiskCache::Write(const Place& place, std::span<const std::byte> bytes) {
  const std::string temporary = absl::StrCat(place.path, ".", ::getpid(), ".", next_file_++);
  const int file = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (file < 0) return false;
  const Digest trailer = TrailerOf(bytes);
  bool written = WriteBytes(file, bytes) && WriteBytes(file, std::as_bytes(std::span(trailer.bytes)));
  written = ::close(file) == 0 && written;
  written = written && ::rename(temporary.c_str(), place.path.c_str()) == 0;
  if (!written) ::unlink(temporary.c_str());
  return written;
}

void DiskCache::Trim(size_t folder) {
  const std::string path = FolderPath(folder);
  const int handle = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (handle < 0) return;
  const absl::Cleanup close = [handle] { ::close(handle); };
  if (::flock(handle, LOCK_EX | LOCK_NB) != 0) return;
  timespec now;
  ::clock_gettime(CLOCK_REALTIME, &now);
  std::vector<Found> found;
  uint64_t bytes = 0;
  std::error_code error;
  for (fs::directory_iterator it(path, error), end; !error && it != end; it.increment(error)) {
    Found file{.path = it->path().string()};
    struct stat info;
    if (::stat(file.path.c_str(), &info) != 0) continue;
    const bool is_half = it->path().has_extension();
    if (is_half && now.tv_sec - info.st_mtim.tv_sec > kLeftoverSeconds) ::unlink(file.path.c_str());
    if (is_half) continue;
    file.bytes = OnDisk(static_cast<uint64_t>(info.st_size));
    file.used = info.st_mtim;
    bytes += file.bytes;
    found.push_back(std::move(file));
  }
  // Room for what is written until the next look.
  const uint64_t wanted = folder_bytes_ - folder_bytes_ / 8;
  if (bytes <= wanted) return;
  std::sort(found.begin(), found.end(), Older);
  for (const Found& file : found) {
    if (bytes <= wanted) break;
    if (::unlink(file.path.c_str()) == 0) bytes -= file.bytes;
  }
}

DiskCache::Counts DiskCache::counts() const {
  return {.hits = hits_, .misses = misses_, .damaged = damaged_, .unwritten = unwritten_};
}

}  // namespace evenkeel::dataset
