#include "core/read_file.h"

#include <cerrno>
#include <fstream>
#include <system_error>

namespace evenkeel {

absl::StatusOr<std::string> ReadAtMost(const std::string& path, size_t most) {
  std::ifstream in(path, std::ios::binary);
  std::string bytes(most, '\0');
  const auto wanted = static_cast<std::streamsize>(most);
  // A folder opens but does not read.
  if (!in || (!in.read(bytes.data(), wanted) && in.bad()) || (in.gcount() == 0 && !in.eof())) {
    return absl::NotFoundError(std::generic_category().message(errno));
  }
  bytes.resize(static_cast<size_t>(in.gcount()));
  return bytes;
}

}  // namespace evenkeel
