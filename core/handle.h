// A file descriptor that is closed at the end.
//
// Example:
//     Handle file(open(path, O_RDONLY | O_CLOEXEC));
//     if (file.get() < 0) return absl::ErrnoToStatus(errno, path);
//
// Thread safety: as of an int.
#pragma once

#include <unistd.h>

#include <utility>

namespace evenkeel {

class Handle {
 public:
  Handle() = default;
  explicit Handle(int fd) : fd_(fd) {}
  Handle(Handle&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Handle& operator=(Handle&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Handle() {
    if (fd_ >= 0) close(fd_);
  }

  int get() const { return fd_; }
  // The caller closes it.
  int Release() { return std::exchange(fd_, -1); }

 private:
  int fd_ = -1;
};

}  // namespace evenkeel
