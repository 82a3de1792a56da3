// Reads local files with pread through a bounded cache of descriptors.
#include "dataset/source/byte_source.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <list>
#include <unordered_map>

#include "absl/strings/str_cat.h"
#include "core/annotated_mutex.h"
#include "core/failure.h"
#include "core/status.h"

namespace evenkeel::dataset {
namespace {

// The status code of an errno: missing, not allowed, or worth another attempt.
absl::StatusCode CodeOf(int error) {
  switch (error) {
    case ENOENT:
    case ENOTDIR:
      return absl::StatusCode::kNotFound;
    case EACCES:
    case EPERM:
      return absl::StatusCode::kPermissionDenied;
    case EISDIR:
    case EINVAL:
    case ENAMETOOLONG:
      return absl::StatusCode::kInvalidArgument;
    default:  // EIO, ESTALE, EMFILE, ENOMEM, ...
      return absl::StatusCode::kUnavailable;
  }
}

// An errno proves nothing about the bytes: a file that is missing now was there when it was indexed. So all
// errors are failures of the machine.
absl::Status MachineFailure(absl::StatusCode code, const std::string& path, absl::string_view what) {
  return WithKind(absl::Status(code, absl::StrCat(path, ": ", what)), FailureKind::kMachine);
}

absl::Status ErrnoStatus(int error, const std::string& path) {
  return MachineFailure(CodeOf(error), path, std::strerror(error));
}

absl::Status NotAFile(const std::string& path) {
  return MachineFailure(absl::StatusCode::kInvalidArgument, path, "not a regular file");
}

// An open file. It is closed when its last reader releases it, so the cache may drop it at any time.
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

struct FreeText {
  void operator()(char* text) const { std::free(text); }
};

bool IsConfined(const std::string& path) { return path.find(kConfined) != std::string::npos; }

// Compares where the open file really is with its folder. Looking at the open file instead of its path leaves no moment
// at which a link could be exchanged.
absl::Status CheckConfined(const std::string& path, int descriptor) {
  const std::string folder = path.substr(0, path.find(kConfined));
  const std::unique_ptr<char, FreeText> root(::realpath(folder.empty() ? "/" : folder.c_str(), nullptr));
  if (root == nullptr) return ErrnoStatus(errno, path);
  std::array<char, PATH_MAX> file;
  const ssize_t size =
      ::readlink(absl::StrCat("/proc/self/fd/", descriptor).c_str(), file.data(), file.size());
  if (size < 0) return ErrnoStatus(errno, path);
  const std::string_view real(file.data(), static_cast<size_t>(size));
  std::string_view inside = root.get();
  if (inside == "/") inside = "";
  if (real.substr(0, inside.size()) == inside && real.substr(inside.size(), 1) == "/")
    return absl::OkStatus();
  return MachineFailure(absl::StatusCode::kInvalidArgument, path,
                        absl::StrCat("leads out of ", folder, " by a symbolic link"));
}

absl::StatusOr<std::shared_ptr<OpenFile>> OpenForReading(const std::string& path) {
  int descriptor;
  do {
    // O_NONBLOCK: opening a FIFO of that name must not block. It has no effect on regular files.
    descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  } while (descriptor < 0 && errno == EINTR);
  if (descriptor < 0) return ErrnoStatus(errno, path);
  auto file = std::make_shared<OpenFile>(descriptor);
  struct stat info;
  if (::fstat(descriptor, &info) != 0) return ErrnoStatus(errno, path);
  if (!S_ISREG(info.st_mode)) return NotAFile(path);
  if (IsConfined(path)) EVENKEEL_RETURN_IF_ERROR(CheckConfined(path, descriptor));
  return file;
}

// Of the file that would be read.
absl::StatusOr<struct stat> StatOf(const std::string& path) {
  struct stat info;
  if (IsConfined(path)) {
    EVENKEEL_ASSIGN_OR_RETURN(const std::shared_ptr<OpenFile> file, OpenForReading(path));
    if (::fstat(file->descriptor(), &info) != 0) return ErrnoStatus(errno, path);
    return info;
  }
  if (::stat(path.c_str(), &info) != 0) return ErrnoStatus(errno, path);
  return info;
}

// Closes the least recently used descriptor first.
class FileSource : public ByteSource {
 public:
  explicit FileSource(size_t max_open_files) : max_open_files_(std::max<size_t>(max_open_files, 1)) {}

  absl::StatusOr<uint64_t> Size(const std::string& path) override {
    EVENKEEL_ASSIGN_OR_RETURN(const struct stat info, StatOf(path));
    if (!S_ISREG(info.st_mode)) return NotAFile(path);
    return static_cast<uint64_t>(info.st_size);
  }

  absl::StatusOr<std::string> Stamp(const std::string& path) override {
    EVENKEEL_ASSIGN_OR_RETURN(const struct stat info, StatOf(path));
    return absl::StrCat(info.st_mtim.tv_sec, ".", info.st_mtim.tv_nsec, "-", info.st_ino);
  }

  absl::Status ReadAt(const std::string& path, uint64_t offset, std::span<std::byte> out) override {
    EVENKEEL_ASSIGN_OR_RETURN(std::shared_ptr<OpenFile> file, Get(path));
    while (!out.empty()) {
      // One call reads at most 0x7ffff000 bytes. Shorter reads are legal; the loop continues.
      ssize_t n = ::pread(file->descriptor(), out.data(), std::min<size_t>(out.size(), 1u << 30),
                          static_cast<off_t>(offset));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) {
        int error = errno;
        Drop(path, file);  // ESTALE and similar errors: open it again next time
        return ErrnoStatus(error, path);
      }
      if (n == 0) {
        Drop(path, file);  // another file may have replaced it
        return MachineFailure(absl::StatusCode::kOutOfRange, path,
                              absl::StrCat("ends at byte ", offset, ", ", out.size(), " bytes short"));
      }
      out = out.subspan(static_cast<size_t>(n));
      offset += static_cast<uint64_t>(n);
    }
    return absl::OkStatus();
  }

  void Forget(const std::string& path) override { Drop(path, nullptr); }

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
    // Opened without the lock: a slow network file system must not block other threads.
    EVENKEEL_ASSIGN_OR_RETURN(std::shared_ptr<OpenFile> file, OpenForReading(path));
    // A file that holds one medium is read once; it must not push a shard out.
    if (IsConfined(path)) return file;
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

  // Closes the cached file of `path` if it is `file`, or any if `file` is null.
  void Drop(const std::string& path, const std::shared_ptr<OpenFile>& file) {
    MutexLock lock(mutex_);
    auto found = by_path_.find(path);
    if (found == by_path_.end() || (file != nullptr && found->second->file != file)) return;
    recent_.erase(found->second);
    by_path_.erase(found);
  }

  const size_t max_open_files_;
  Mutex mutex_;
  std::list<Entry> recent_ ABSL_GUARDED_BY(mutex_);  // most recently used first
  std::unordered_map<std::string, std::list<Entry>::iterator> by_path_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

absl::StatusOr<WholeObject> ByteSource::ReadWhole(const std::string& path, uint64_t max_bytes) {
  WholeObject object;
  // Before it is read: an object that changes meanwhile gets another stamp.
  EVENKEEL_ASSIGN_OR_RETURN(object.stamp, Stamp(path));
  EVENKEEL_ASSIGN_OR_RETURN(object.size, Size(path));
  if (object.size > max_bytes) return object;
  object.bytes.resize(object.size);
  EVENKEEL_RETURN_IF_ERROR(ReadAt(path, 0, object.bytes));
  return object;
}

std::unique_ptr<ByteSource> MakeFileSource(size_t max_open_files) {
  return std::make_unique<FileSource>(max_open_files);
}

}  // namespace evenkeel::dataset
