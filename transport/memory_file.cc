// Memory files by memfd_create. Replace swaps the content with dup3, which redirects a descriptor in one
// step.
#include "transport/memory_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <ctime>
#include <system_error>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/annotated_mutex.h"
#include "core/status.h"
#include "core/write_all.h"

namespace evenkeel::transport {
namespace {

absl::Status Error(const std::string& name, const char* call) {
  const int error = errno;
  const std::string text =
      absl::StrCat("memory file ", name, ": ", call, ": ", std::generic_category().message(error));
  const bool scarce = error == EMFILE || error == ENFILE || error == ENOMEM || error == ENOSPC;
  return scarce
             ? absl::ResourceExhaustedError(absl::StrCat(text, "; raise the limit (ulimit -n) or free some"))
             : absl::FailedPreconditionError(text);
}

// Handles without an object, with the number of their last content.
struct Unused {
  Mutex mutex;
  std::vector<std::pair<int, int>> handles ABSL_GUARDED_BY(mutex);
};

Unused& UnusedHandles() {
  static Unused* const unused = new Unused;  // never destroyed: objects may outlive static ones
  return *unused;
}

}  // namespace

absl::StatusOr<MemoryFile> MemoryFile::Create(const char* name, std::string_view content) {
  MemoryFile file(name);
  EVENKEEL_RETURN_IF_ERROR(file.Replace(content));
  struct stat seen {};
  if (stat(file.path().c_str(), &seen) != 0) return Error(name, "/proc/self/fd (is /proc mounted?)");
  return file;
}

MemoryFile::MemoryFile(MemoryFile&& other) noexcept
    : name_(std::move(other.name_)), handle_(std::exchange(other.handle_, -1)), version_(other.version_) {}

MemoryFile::MemoryFile(const char* name) : name_(name) {
  Unused& unused = UnusedHandles();
  MutexLock lock(unused.mutex);
  if (unused.handles.empty()) return;
  std::tie(handle_, version_) = unused.handles.back();
  unused.handles.pop_back();
}

MemoryFile::~MemoryFile() {
  if (handle_ < 0) return;
  Unused& unused = UnusedHandles();
  MutexLock lock(unused.mutex);
  unused.handles.emplace_back(handle_, version_);
}

absl::Status MemoryFile::Replace(std::string_view content) {
  const int fresh = memfd_create(name_.c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fresh < 0) return Error(name_, "memfd_create");
  // The content's number becomes the file's modification time; the seals make the content immutable.
  timespec number{};
  number.tv_sec = version_ + 1;
  const std::array<timespec, 2> times = {number, number};
  const char* failed = nullptr;
  if (!WriteAll(fresh, content)) {
    failed = "write";
  } else if (futimens(fresh, times.data()) != 0) {
    failed = "futimens";
  } else if (fcntl(fresh, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK) != 0) {
    failed = "fcntl(F_ADD_SEALS)";
  } else if (handle_ >= 0 && dup3(fresh, handle_, O_CLOEXEC) < 0) {
    failed = "dup3";
  }
  const absl::Status status = failed == nullptr ? absl::OkStatus() : Error(name_, failed);
  if (failed == nullptr && handle_ < 0) {
    handle_ = fresh;
  } else {
    close(fresh);
  }
  if (status.ok()) ++version_;
  return status;
}

std::string MemoryFile::path() const { return absl::StrCat("/proc/self/fd/", handle_); }

}  // namespace evenkeel::transport
