// Sends and receives messages with file descriptors over a SOCK_SEQPACKET socket, and checks the replies.
#include "isolation/decoder_message.h"

#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/status.h"

namespace evenkeel::isolation {
namespace {

constexpr size_t kMaxFiles = 4;

absl::Status Gone(const char* what) {
  return absl::UnavailableError(absl::StrCat("decoder process: ", what, ": ", std::strerror(errno)));
}

}  // namespace

DecoderReply DecoderReply::Of(const absl::Status& status) {
  DecoderReply reply;
  reply.code = static_cast<int32_t>(status.code());
  CopyText(std::string_view(status.message().data(), status.message().size()), reply.message);
  return reply;
}

absl::Status DecoderReply::status() const {
  if (code == 0) return absl::OkStatus();
  const auto known = static_cast<absl::StatusCode>(code);
  if (code < 0 || absl::StatusCodeToString(known).empty()) {
    return absl::InternalError("decoder process returned an invalid status code");
  }
  const std::string_view text = TextOf(message);
  return absl::Status(known, absl::string_view(text.data(), text.size()));
}

absl::Status CheckFacts(const MediaFacts& facts, Medium asked) {
  if (facts.medium != asked) {
    return absl::InternalError("decoder process returned facts of the wrong medium");
  }
  // Only what later computations rely on: no divisor is zero, and the rotation is a quarter turn.
  const bool has_pixels =
      facts.width > 0 && facts.height > 0 && facts.rotation % 90 == 0 && facts.rotation < 360;
  const bool has_frames = facts.num_frames > 0 && facts.fps_num > 0 && facts.fps_den > 0;
  const bool has_samples = facts.sample_rate > 0 && facts.channels > 0;
  const bool could_be = asked == Medium::kAudio   ? has_samples
                        : asked == Medium::kVideo ? has_pixels && has_frames
                                                  : has_pixels;
  return could_be ? absl::OkStatus() : absl::InternalError("decoder process returned impossible media facts");
}

absl::Status SendBytes(int socket, std::span<const std::byte> bytes, std::span<const int> files) {
  // Descriptors travel as SCM_RIGHTS next to the bytes, so the receiver gets handles of its own.
  iovec part{const_cast<std::byte*>(bytes.data()), bytes.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  alignas(cmsghdr) char control[CMSG_SPACE(kMaxFiles * sizeof(int))] = {};
  if (!files.empty()) {
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(files.size_bytes());
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(files.size_bytes());
    std::memcpy(CMSG_DATA(header), files.data(), files.size_bytes());
  }
  ssize_t sent = -1;
  do {
    sent = sendmsg(socket, &message, MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  if (sent != static_cast<ssize_t>(bytes.size())) return Gone("send");
  return absl::OkStatus();
}

absl::Status ReceiveBytes(int socket, std::span<std::byte> bytes, std::vector<Handle>* files) {
  iovec part{bytes.data(), bytes.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  alignas(cmsghdr) char control[CMSG_SPACE(kMaxFiles * sizeof(int))] = {};
  if (files != nullptr) {
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
  }
  ssize_t received = -1;
  do {
    received = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  } while (received < 0 && errno == EINTR);
  if (received < 0) return Gone("receive");
  // Take every descriptor that came, also with a message of the wrong size: whoever closes it must own it.
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); files != nullptr && header != nullptr;
       header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    for (size_t at = 0; at + sizeof(int) <= header->cmsg_len - CMSG_LEN(0); at += sizeof(int)) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(header) + at, sizeof(fd));
      files->emplace_back(fd);
    }
  }
  if (received != static_cast<ssize_t>(bytes.size()) || (message.msg_flags & MSG_TRUNC) != 0) {
    return absl::UnavailableError(received == 0 ? "decoder process ended"
                                                : "decoder process sent a message of the wrong size");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::pair<Handle, Handle>> MakeSocketPair() {
  int ends[2] = {-1, -1};
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) return Gone("socketpair");
  return std::pair(Handle(ends[0]), Handle(ends[1]));
}

}  // namespace evenkeel::isolation
