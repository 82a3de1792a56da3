// Messages with descriptors (SCM_RIGHTS) over sockets with abstract names.
#include "transport/memory_socket.h"

#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <system_error>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace evenkeel::transport {
namespace {

constexpr std::array<char, 4> kMagic = {'E', 'V', 'K', 'M'};
constexpr size_t kNameBytes = 16;  // random

// What travels. Its layout is fixed, and nothing in it is padding.
struct Wire {
  std::array<char, 4> magic;
  uint32_t kind;
  uint64_t session;
  uint64_t request;
  uint64_t length;
  std::array<uint8_t, 16> hash;
  Secret secret;
};
static_assert(sizeof(Wire) == 64);

std::string ErrorText() { return std::generic_category().message(errno); }

absl::StatusOr<socklen_t> FillAddress(const std::string& name, sockaddr_un* address) {
  if (name.empty() || name.size() > sizeof(address->sun_path) - 1) {
    return absl::InvalidArgumentError(absl::StrCat("not the name of a socket: ", name.size(), " bytes"));
  }
  *address = {};
  address->sun_family = AF_UNIX;
  // The leading zero byte makes the name abstract.
  std::memcpy(address->sun_path + 1, name.data(), name.size());
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
}

absl::StatusOr<Handle> MakeSocket() {
  Handle made(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (made.get() >= 0) return made;
  const bool scarce = errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS;
  const std::string text = absl::StrCat("cannot open a Unix socket: ", ErrorText());
  return scarce ? absl::ResourceExhaustedError(text) : absl::UnavailableError(text);
}

// All descriptors of the message, so that none is leaked, however many there are.
std::vector<Handle> TakeHandles(msghdr& header) {
  std::vector<Handle> handles;
  for (cmsghdr* part = CMSG_FIRSTHDR(&header); part != nullptr; part = CMSG_NXTHDR(&header, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int handle;
      std::memcpy(&handle, CMSG_DATA(part) + i * sizeof(int), sizeof(int));
      handles.emplace_back(handle);
    }
  }
  return handles;
}

}  // namespace

absl::StatusOr<Handle> ListenForMemory(std::string* name) {
  absl::StatusOr<Handle> listening = MakeSocket();
  if (!listening.ok()) return listening;
  std::array<char, kNameBytes> random{};
  if (getrandom(random.data(), random.size(), 0) != static_cast<ssize_t>(random.size())) {
    return absl::UnavailableError(absl::StrCat("no random name for a socket: ", ErrorText()));
  }
  *name = absl::StrCat("evenkeel-", absl::BytesToHexString(absl::string_view(random.data(), random.size())));
  sockaddr_un address;
  absl::StatusOr<socklen_t> length = FillAddress(*name, &address);
  if (!length.ok()) return length.status();
  if (bind(listening->get(), reinterpret_cast<const sockaddr*>(&address), *length) != 0 ||
      listen(listening->get(), SOMAXCONN) != 0) {
    return absl::UnavailableError(absl::StrCat("cannot listen on a Unix socket: ", ErrorText()));
  }
  return listening;
}

absl::StatusOr<Handle> DialForMemory(const std::string& name) {
  sockaddr_un address;
  absl::StatusOr<socklen_t> length = FillAddress(name, &address);
  if (!length.ok()) return length.status();
  absl::StatusOr<Handle> dialled = MakeSocket();
  if (!dialled.ok()) return dialled;
  // Never blocks: a Unix socket is connected at once or not at all.
  if (connect(dialled->get(), reinterpret_cast<const sockaddr*>(&address), *length) != 0) {
    return absl::UnavailableError(
        absl::StrCat("cannot connect to the worker's Unix socket: ", ErrorText(),
                     "; both processes must be in one network namespace of one machine"));
  }
  return dialled;
}

absl::Status CheckPeer(int socket) {
  ucred peer{};
  socklen_t length = sizeof(peer);
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) {
    return absl::PermissionDeniedError(absl::StrCat("the peer's user is unknown: ", ErrorText()));
  }
  if (peer.uid == geteuid()) return absl::OkStatus();
  return absl::PermissionDeniedError(absl::StrCat("the peer runs as user ", peer.uid, ", this process as ",
                                                  geteuid(),
                                                  "; sealed memory is handed over between processes of one "
                                                  "user"));
}

absl::StatusOr<bool> SendMessage(int socket, const MemoryMessage& message, int handle) {
  Wire wire{kMagic,          static_cast<uint32_t>(message.kind),
            message.session, message.request,
            message.length,  message.hash.bytes,
            message.secret};
  iovec bytes{&wire, sizeof(wire)};
  msghdr header{};
  header.msg_iov = &bytes;
  header.msg_iovlen = 1;
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  if (handle >= 0) {
    header.msg_control = control.data();
    header.msg_controllen = control.size();
    cmsghdr* part = CMSG_FIRSTHDR(&header);
    part->cmsg_level = SOL_SOCKET;
    part->cmsg_type = SCM_RIGHTS;
    part->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(part), &handle, sizeof(int));
  }
  for (;;) {
    if (sendmsg(socket, &header, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0) return true;
    if (errno == EINTR) continue;
    // ETOOMANYREFS: this user has too many descriptors on their way.
    if (errno == EAGAIN || errno == ENOBUFS || errno == ETOOMANYREFS) return false;
    return absl::UnavailableError(absl::StrCat("the peer is gone: ", ErrorText()));
  }
}

absl::StatusOr<std::optional<ReceivedMessage>> ReceiveMessage(int socket) {
  // One byte more than a message, so that a longer one is noticed.
  std::array<char, sizeof(Wire) + 1> bytes{};
  iovec into{bytes.data(), bytes.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr header{};
  header.msg_iov = &into;
  header.msg_iovlen = 1;
  header.msg_control = control.data();
  header.msg_controllen = control.size();
  ssize_t count = -1;
  do {
    count = recvmsg(socket, &header, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
  } while (count < 0 && errno == EINTR);
  if (count < 0 && errno == EAGAIN) return std::nullopt;
  if (count < 0) return absl::UnavailableError(absl::StrCat("the peer is gone: ", ErrorText()));
  ReceivedMessage received;
  received.handles = TakeHandles(header);
  if (count == 0 && received.handles.empty()) return absl::UnavailableError("the peer closed the connection");
  if ((header.msg_flags & MSG_CTRUNC) != 0) {
    return absl::InvalidArgumentError(
        "a message with more descriptors than one, or with one for which no file handle is left");
  }
  Wire wire;
  if (static_cast<size_t>(count) != sizeof(wire)) {
    return absl::InvalidArgumentError(absl::StrCat("a message of another size than ", sizeof(wire)));
  }
  std::memcpy(&wire, bytes.data(), sizeof(wire));
  if (wire.magic != kMagic || wire.kind < 1 || wire.kind > 4) {
    return absl::InvalidArgumentError("a message of another protocol");
  }
  received.message = {
      static_cast<MemoryMessageKind>(wire.kind), wire.session, wire.request, wire.length, {}, wire.secret};
  received.message.hash.bytes = wire.hash;
  return received;
}

}  // namespace evenkeel::transport
