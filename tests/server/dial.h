// Plain sockets of clients, and a process without handles, for tests of what listens.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "core/handle.h"
#include "core/steady_time.h"

namespace evenkeel::server {

// "127.0.0.1:port" or "unix:/path".
inline Handle UnconnectedSocket(const std::string& address) {
  const int family = address.rfind("unix:", 0) == 0 ? AF_UNIX : AF_INET;
  return Handle(socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
}

inline void Connect(const Handle& socket, const std::string& address) {
  if (address.rfind("unix:", 0) == 0) {
    sockaddr_un place{};
    place.sun_family = AF_UNIX;
    address.copy(place.sun_path, sizeof(place.sun_path) - 1, 5);
    EXPECT_EQ(connect(socket.get(), reinterpret_cast<sockaddr*>(&place), sizeof(place)), 0)
        << strerror(errno);
    return;
  }
  sockaddr_in place{};
  place.sin_family = AF_INET;
  place.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  place.sin_port = htons(static_cast<uint16_t>(std::stoi(address.substr(address.rfind(':') + 1))));
  EXPECT_EQ(connect(socket.get(), reinterpret_cast<sockaddr*>(&place), sizeof(place)), 0) << strerror(errno);
}

inline Handle Dial(const std::string& address) {
  Handle socket = UnconnectedSocket(address);
  Connect(socket, address);
  return socket;
}

inline void SendAll(const Handle& socket, std::string_view bytes) {
  EXPECT_EQ(send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
}

inline bool IsClosed(const Handle& socket) {
  char byte = 0;
  const ssize_t got = recv(socket.get(), &byte, 1, MSG_DONTWAIT | MSG_PEEK);
  return got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR);
}

// Until the other end closes.
inline std::string ReadAll(const Handle& socket) {
  std::string all;
  char bytes[4096];
  for (ssize_t got; (got = recv(socket.get(), bytes, sizeof(bytes), 0)) > 0;) all.append(bytes, got);
  return all;
}

// While it exists, this process has no handle left: every one below a limit of 100 is taken.
class NoHandleLeft {
 public:
  NoHandleLeft() {
    EXPECT_EQ(getrlimit(RLIMIT_NOFILE, &before_), 0);
    const rlimit few{100, before_.rlim_max};
    EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
    for (;;) {
      Handle one(dup(STDERR_FILENO));
      if (one.get() < 0) break;
      taken_.push_back(std::move(one));
    }
    EXPECT_EQ(errno, EMFILE) << strerror(errno);
  }
  ~NoHandleLeft() { EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &before_), 0); }
  NoHandleLeft(const NoHandleLeft&) = delete;
  NoHandleLeft& operator=(const NoHandleLeft&) = delete;

 private:
  rlimit before_{};
  std::vector<Handle> taken_;
};

template <typename Condition>
bool Eventually(const Condition& condition) {
  const absl::Time deadline = SteadyNow() + absl::Seconds(60);
  while (!condition()) {
    if (SteadyNow() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

}  // namespace evenkeel::server
