// Reads a file up to a given size, so that a wrong path (a device, a shard) cannot use up the memory.
#include "core/read_file.h"

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <system_error>

namespace evenkeel {
namespace {

constexpr size_t kFirstBytes = 16 << 10;

}  // namespace

absl::StatusOr<std::string> ReadAtMost(const std::string& path, size_t most) {
  std::ifstream in(path, std::ios::binary);
  std::string bytes;
  // The buffer doubles, so that a small file takes little memory whatever limit is given.
  while (in && bytes.size() < most) {
    const size_t before = bytes.size();
    bytes.resize(std::min(most, std::max(kFirstBytes, 2 * before)));
    in.read(bytes.data() + before, static_cast<std::streamsize>(bytes.size() - before));
    bytes.resize(before + static_cast<size_t>(in.gcount()));
  }
  // A folder can be opened, but reading it fails.
  if (in.bad() || (bytes.empty() && !in && !in.eof())) {
    return absl::NotFoundError(std::generic_category().message(errno));
  }
  return bytes;
}

}  // namespace evenkeel
