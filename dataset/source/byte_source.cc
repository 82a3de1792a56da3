#include "dataset/byte_source.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <list>
#include <unordered_map>

#include "absl/strings/str_cat.h"
#include "core/annotated_mutex.h"
#include "core/status.h"

namespace evenkeel {
namespace {

// What errno means for the caller: not there, not allowed, or worth another try.
absl::Status ErrnoStatus(int error, const std::string& path) {
  std::string message = absl::StrCat(path, ": ", std::strerror(error));
  switch (error) {
    case ENOENT:
    case ENOTDIR:
      return absl::NotFoundError(message);
    case EACCES:
    case EPERM:
      return absl::PermissionDeniedError(message);
    case EISDIR:
    case EINVAL:
    case ENAMETOOLONG:
      return absl::InvalidArgumentError(message);
    default:  // EIO, ESTALE, EMFILE, ENOMEM, ...
      return absl::UnavailableError(message);
  }
}

// An open file; closed when the last reader lets go, so the cache may forget it at any time.
class OpenFile {
 public:
  explicit OpenFile(int descriptor) : descriptor_(descriptor) {}
  ~OpenFile() { ::close(descriptor_); }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  int descriptor() const { return descriptor_; }

 private:
  const int descriptor_;
};

absl::StatusOr<std::shared_ptr<OpenFile>> OpenForReading(const std::string& path) {
  int descriptor;
  do {
    // O_NONBLOCK: a FIFO by that name must not block; it has no effect on regular files.
    descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  } while (descriptor < 0 && errno == EINTR);
  if (descriptor < 0) return ErrnoStatus(errno, path);
  auto file = std::make_shared<OpenFile>(descriptor);
  struct stat info;
  if (::fstat(descriptor, &info) != 0) return ErrnoStatus(errno, path);
  if (!S_ISREG(info.st_mode)) return absl::InvalidArgumentError(absl::StrCat(path, ": not a regular file"));
  return file;
}

// The least recently used descriptor is closed first.
class FileSource : public ByteSource {
 public:
  explicit FileSource(size_t max_open_files) : max_open_files_(std::max<size_t>(max_open_files, 1)) {}

  absl::StatusOr<uint64_t> Size(const std::string& path) override {
    struct stat info;
    if (::stat(path.c_str(), &info) != 0) return ErrnoStatus(errno, path);
    if (!S_ISREG(info.st_mode)) return absl::InvalidArgumentError(absl::StrCat(path, ": not a regular file"));
    return static_cast<uint64_t>(info.st_size);
  }

  absl::StatusOr<std::string> Stamp(const std::string& path) override {
    struct stat info;
    if (::stat(path.c_str(), &info) != 0) return ErrnoStatus(errno, path);
    return absl::StrCat(info.st_mtim.tv_sec, ".", info.st_mtim.tv_nsec, "-", info.st_ino);
  }

  absl::Status ReadAt(const std::string& path, uint64_t offset, std::span<std::byte> out) override {
    EVENKEEL_ASSIGN_OR_RETURN(std::shared_ptr<OpenFile> file, Get(path));
    while (!out.empty()) {
      // One call moves at most 0x7ffff000 bytes; shorter reads are legal and simply continue.
      ssize_t n = ::pread(file->descriptor(), out.data(), std::min<size_t>(out.size(), 1u << 30),
                          static_cast<off_t>(offset));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) {
        int error = errno;
        Forget(path, file);  // ESTALE and the like: open it anew next time
        return ErrnoStatus(error, path);
      }
      if (n == 0) {
        return absl::OutOfRangeError(
            absl::StrCat(path, ": ends at byte ", offset, ", ", out.size(), " bytes short"));
      }
      out = out.subspan(static_cast<size_t>(n));
      offset += static_cast<uint64_t>(n);
    }
    return absl::OkStatus();
  }

 private:
  struct Entry {
    std::string path;
    std::shared_ptr<OpenFile> file;
  };

  absl::StatusOr<std::shared_ptr<OpenFile>> Get(const std::string& path) {
    {
      MutexLock lock(mutex_);
      auto found = by_path_.find(path);
      if (found != by_path_.end()) {
        recent_.splice(recent_.begin(), recent_, found->second);
        return found->second->file;
      }
    }
    // Opened without the lock: a slow network file system must not hold up the others.
    EVENKEEL_ASSIGN_OR_RETURN(std::shared_ptr<OpenFile> file, OpenForReading(path));
    MutexLock lock(mutex_);
    if (by_path_.contains(path)) return file;
    recent_.push_front({path, file});
    by_path_[path] = recent_.begin();
    while (recent_.size() > max_open_files_) {
      by_path_.erase(recent_.back().path);
      recent_.pop_back();
    }
    return file;
  }

  void Forget(const std::string& path, const std::shared_ptr<OpenFile>& file) {
    MutexLock lock(mutex_);
    auto found = by_path_.find(path);
    if (found == by_path_.end() || found->second->file != file) return;
    recent_.erase(found->second);
    by_path_.erase(found);
  }

  const size_t max_open_files_;
  Mutex mutex_;
  std::list<Entry> recent_ ABSL_GUARDED_BY(mutex_);  // most recently used first
  std::unordered_map<std::string, std::list<Entry>::iterator> by_path_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

std::unique_ptr<ByteSource> MakeFileSource(size_t max_open_files) {
  return std::make_unique<FileSource>(max_open_files);
}

}  // namespace evenkeel
