// Writing the whole of a text to an open file.
//
// Thread safety: a pure function of the handle.
#pragma once

#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <string_view>

namespace evenkeel {

// False, with errno: not all of it could be written.
inline bool WriteAll(int handle, std::string_view content) {
  while (!content.empty()) {
    const ssize_t written = ::write(handle, content.data(), content.size());
    if (written < 0 && errno == EINTR) continue;
    if (written == 0) errno = EIO;
    if (written <= 0) return false;
    content.remove_prefix(static_cast<size_t>(written));
  }
  return true;
}

}  // namespace evenkeel
