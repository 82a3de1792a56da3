// A source whose listening socket is gone says so.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "core/handle.h"
#include "tests/transport/peers.h"
#include "transport/factory.h"
#include "transport/listening_sockets.h"

namespace evenkeel::transport {
namespace {

Handle Listen() {
  Handle socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{.sin_family = AF_INET, .sin_port = 0, .sin_addr = {htonl(INADDR_LOOPBACK)}};
  EXPECT_EQ(bind(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  EXPECT_EQ(listen(socket.get(), 1), 0);
  return socket;
}

TEST(ListeningSockets, NoticeOneThatWasClosedAlsoWhenItsNumberIsUsedAgain) {
  const Handle of_others = Listen();
  const ListeningSockets others = ListeningSockets::OfProcess();
  EXPECT_EQ(others.size(), 1u);
  Handle a = Listen(), b = Listen();
  const ListeningSockets own = ListeningSockets::OfProcess().Without(others);
  EXPECT_EQ(own.size(), 2u);
  EXPECT_TRUE(own.CheckOpen().ok());
  const int number = b.get();
  b = Handle();
  const Handle another = Listen();
  ASSERT_EQ(another.get(), number) << "the lowest free number is taken";
  EXPECT_EQ(own.CheckOpen().code(), absl::StatusCode::kUnavailable);
}

TEST(ListeningSockets, AreNeitherConnectionsNorUnixSockets) {
  const Handle unconnected(::socket(AF_INET, SOCK_STREAM, 0));
  int pair[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
  const Handle first(pair[0]), second(pair[1]);
  EXPECT_EQ(ListeningSockets::OfProcess().size(), 0u);
}

// Connections that UCX cannot accept for want of handles: it closes its listening socket for ever.
TEST(UcxSource, SaysThatNobodyCanConnectAnyMore) {
  auto source = MakeUcxSource(OptionsFor(Backend::kUcx));
  ASSERT_TRUE(source.ok()) << source.status();
  const std::set<uint16_t> ports = ListeningSockets::OfProcess().ports();
  ASSERT_FALSE(ports.empty());
  EXPECT_TRUE((*source)->health().ok());

  std::vector<Handle> strangers;
  for (int i = 0; i < 8; ++i)
    strangers.emplace_back(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit few{.rlim_cur = static_cast<rlim_t>(strangers.back().get()) + 1, .rlim_max = before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  sockaddr_in address{
      .sin_family = AF_INET, .sin_port = htons(*ports.begin()), .sin_addr = {htonl(INADDR_LOOPBACK)}};
  for (const Handle& stranger : strangers) {
    (void)connect(stranger.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address));
  }
  const absl::Time end = absl::Now() + absl::Seconds(20);
  while ((*source)->health().ok() && absl::Now() < end) absl::SleepFor(absl::Milliseconds(10));
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  const absl::Status health = (*source)->health();
  EXPECT_EQ(health.code(), absl::StatusCode::kUnavailable) << health;
  EXPECT_NE(health.message().find("port " + std::to_string(*ports.begin())), absl::string_view::npos)
      << health;
}

}  // namespace
}  // namespace evenkeel::transport
