// Where bytes come from: range reads by path. A file system now; an object store behind the same interface.
//
// Every error is a failure of the machine (core/failure.h: FailureKind::kMachine), also an object that is
// missing or shorter than asked for: whether the bytes are the right ones is for the reader's checksum to
// decide.
//
// Thread safety: all members may be called from many threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace evenkeel::dataset {

class ByteSource {
 public:
  virtual ~ByteSource() = default;

  // NotFound, PermissionDenied, Unavailable (try again).
  virtual absl::StatusOr<uint64_t> Size(const std::string& path) = 0;
  // An opaque text that changes whenever the object does (an ETag; time and inode of a file): a hint that
  // lets the index skip what it has already read, never part of an identity. Empty: unknown, read it again.
  virtual absl::StatusOr<std::string> Stamp(const std::string& path) {
    static_cast<void>(path);
    return std::string();
  }
  // Fills `out` from `offset`. OutOfRange where the object ends before; otherwise as Size.
  virtual absl::Status ReadAt(const std::string& path, uint64_t offset, std::span<std::byte> out) = 0;
  // Drops what is cached of an object, so that the next read sees what has that path then: a file that was
  // replaced by rename stays readable through a descriptor that is open.
  virtual void Forget(const std::string& path) { static_cast<void>(path); }
};

// Files by path, kept open in a bounded cache of descriptors.
std::unique_ptr<ByteSource> MakeFileSource(size_t max_open_files = 256);

}  // namespace evenkeel::dataset
