// A file in memory, for a library that reads its input by path and reads it again when it changes.
//
// Example:
//     EVENKEEL_ASSIGN_OR_RETURN(MemoryFile file, MemoryFile::Create("key", text));
//     library.Watch(file.path());
//     EVENKEEL_RETURN_IF_ERROR(file.Replace(other));
//
// A reader that opens the path sees one complete content, never a mixture: Replace creates a second file and
// redirects the path in one step. The modification time is the content's number (1, 2, 3, ... seconds since
// the epoch), so a reader that compares the times before and after reading notices every replacement. Nothing
// is written to disk. Only this process can open the path (/proc/self/fd).
//
// Costs one file handle, which is never closed: a library may still read the path after the object is
// destroyed, and must not find another file there. The next object reuses it, so a process keeps as many
// handles as it ever had objects at once; until reuse the last content stays in memory. Thread safety:
// readers may open the path at any time; Replace needs external locking.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace evenkeel::transport {

class MemoryFile {
 public:
  // `name` appears in /proc/PID/fd; at most 200 characters. ResourceExhausted: no memory or no file handle
  // left; FailedPrecondition: the system has no /proc or no memfd_create.
  static absl::StatusOr<MemoryFile> Create(const char* name, std::string_view content);
  ~MemoryFile();
  MemoryFile(MemoryFile&& other) noexcept;
  MemoryFile& operator=(MemoryFile&&) = delete;

  // ResourceExhausted: as Create; the old content stays.
  absl::Status Replace(std::string_view content);
  std::string path() const;  // "/proc/self/fd/7", the same for the life of the object

 private:
  explicit MemoryFile(const char* name);

  std::string name_;
  int handle_ = -1;  // -1: no content yet, or moved from
  int version_ = 0;
};

}  // namespace evenkeel::transport
