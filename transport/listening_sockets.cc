// Finds listening sockets among the process's handles, and checks them later by handle and inode.
#include "transport/listening_sockets.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <iterator>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"

namespace evenkeel::transport {
namespace {

std::optional<ino_t> InodeOf(int handle) {
  struct stat status;
  if (fstat(handle, &status) != 0 || !S_ISSOCK(status.st_mode)) return std::nullopt;
  return status.st_ino;
}

// Returns nullopt if the handle is not a listening TCP socket.
std::optional<uint16_t> ListeningPort(int handle) {
  int listens = 0;
  socklen_t length = sizeof(listens);
  if (getsockopt(handle, SOL_SOCKET, SO_ACCEPTCONN, &listens, &length) != 0 || listens == 0) {
    return std::nullopt;
  }
  sockaddr_storage address{};
  length = sizeof(address);
  if (getsockname(handle, reinterpret_cast<sockaddr*>(&address), &length) != 0) return std::nullopt;
  if (address.ss_family == AF_INET) return ntohs(reinterpret_cast<const sockaddr_in&>(address).sin_port);
  if (address.ss_family == AF_INET6) return ntohs(reinterpret_cast<const sockaddr_in6&>(address).sin6_port);
  return std::nullopt;
}

}  // namespace

ListeningSockets ListeningSockets::OfProcess() {
  ListeningSockets found;
  std::error_code error;
  for (std::filesystem::directory_iterator entry("/proc/self/fd", error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename();
    int handle = -1;
    std::from_chars(name.data(), name.data() + name.size(), handle);
    const std::optional<ino_t> inode = InodeOf(handle);
    const std::optional<uint16_t> port = ListeningPort(handle);
    if (inode.has_value() && port.has_value()) found.sockets_.insert({handle, *inode, *port});
  }
  return found;
}

ListeningSockets ListeningSockets::Without(const ListeningSockets& others) const {
  ListeningSockets rest;
  std::ranges::set_difference(sockets_, others.sockets_, std::inserter(rest.sockets_, rest.sockets_.end()));
  return rest;
}

std::set<uint16_t> ListeningSockets::ports() const {
  std::set<uint16_t> ports;
  for (const Socket& socket : sockets_) ports.insert(socket.port);
  return ports;
}

absl::Status ListeningSockets::CheckOpen() const {
  for (const Socket& socket : sockets_) {
    if (InodeOf(socket.handle) == socket.inode) continue;
    return absl::UnavailableError(
        absl::StrCat("the socket that listens on port ", socket.port, " was closed"));
  }
  return absl::OkStatus();
}

}  // namespace evenkeel::transport
