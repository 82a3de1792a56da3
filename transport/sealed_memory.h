// Memory that can be handed to another process of this node: a file without a name (memfd), sealed, so that
// nobody can change its bytes or its size any more, neither the sender nor a receiver.
//
//   sender                                   receiver
//   memory = SealedMemory::CopyOf(bytes)
//   sends memory->handle()  --------------->  memory = ReceivedMemory::Map(handle, num_bytes)
//                                             checks memory->bytes(), memory->MoveTo(buffer)
//
// MoveTo maps the pages in place of the buffer's own and copies nothing.
//
// The kernel frees the memory when the last handle and the last mapping are gone, also when processes are
// killed. A received mapping is private: writing to it copies the page and changes nothing for others.
//
// Thread safety: none; each object belongs to one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/handle.h"

namespace evenkeel::transport {

class SealedMemory {
 public:
  // A sealed copy of `bytes`, which is not mapped here. ResourceExhausted: no memory or no file handle left.
  static absl::StatusOr<SealedMemory> CopyOf(std::span<const std::byte> bytes);

  int handle() const { return file_.get(); }

 private:
  explicit SealedMemory(Handle file) : file_(std::move(file)) {}

  Handle file_;
};

class ReceivedMemory {
 public:
  // Checks that `handle` is sealed memory of this size and maps it. InvalidArgument: it is something else;
  // ResourceExhausted: no memory or no address space left. The handle may be closed afterwards.
  static absl::StatusOr<ReceivedMemory> Map(int handle, uint64_t num_bytes);

  ReceivedMemory(ReceivedMemory&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}
  ReceivedMemory& operator=(ReceivedMemory&&) = delete;
  ~ReceivedMemory();

  std::span<const std::byte> bytes() const { return bytes_; }

  // True if MoveTo can map pages at `to`: it begins at a page.
  static bool CanMoveTo(std::span<std::byte> to);
  // Maps the whole pages in place of those at `to`, which must be private memory of the same size, and copies
  // the rest of the last page. If the process has too many mappings, everything is copied. bytes() are empty
  // afterwards.
  void MoveTo(std::span<std::byte> to);

 private:
  explicit ReceivedMemory(std::span<std::byte> bytes) : bytes_(bytes) {}

  std::span<std::byte> bytes_;
};

}  // namespace evenkeel::transport
