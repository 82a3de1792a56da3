// UCX without RDMA opens nothing unless its network is trusted.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "tests/transport/peers.h"
#include "transport/factory.h"

namespace evenkeel::transport {
namespace {

// Sockets of this process that accept connections over IP.
int Listening() {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const int descriptor = std::atoi(entry.path().filename().c_str());
    int listens = 0;
    int domain = 0;
    socklen_t length = sizeof(int);
    if (getsockopt(descriptor, SOL_SOCKET, SO_ACCEPTCONN, &listens, &length) != 0) continue;
    length = sizeof(int);
    getsockopt(descriptor, SOL_SOCKET, SO_DOMAIN, &domain, &length);
    if (listens != 0 && (domain == AF_INET || domain == AF_INET6)) ++count;
  }
  return count;
}

Options Untrusted(bool loopback_only) {
  Options options = OptionsFor(Backend::kUcx);
  options.trusted_network = false;
  options.loopback_only = loopback_only;
  return options;
}

bool HasRdma() {
  std::error_code error;
  return std::filesystem::directory_iterator("/sys/class/infiniband", error) !=
             std::filesystem::directory_iterator() &&
         !error;
}

void ExpectRefused(const Options& options) {
  for (const absl::Status& status : {MakeUcxSource(options).status(), MakeUcxSink(options).status()}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
    EXPECT_NE(status.message().find("--trusted-data-network"), absl::string_view::npos) << status;
  }
  EXPECT_EQ(Listening(), 0);
}

TEST(Trust, UcxOnLoopbackNeedsIt) { ExpectRefused(Untrusted(/*loopback_only=*/true)); }

TEST(Trust, UcxWithoutRdmaNeedsIt) {
  if (HasRdma()) GTEST_SKIP() << "this machine has RDMA";
  ExpectRefused(Untrusted(/*loopback_only=*/false));
}

TEST(Trust, IsNotGivenByTheEnvironment) {
  if (HasRdma()) GTEST_SKIP() << "this machine has RDMA";
  for (const char* transports : {"tcp", "all", "^ib", "ib,tcp"}) {
    setenv("UCX_TLS", transports, 1);
    ExpectRefused(Untrusted(/*loopback_only=*/false));
  }
  unsetenv("UCX_TLS");
}

TEST(Trust, UcxOverTcpListensWithIt) {
  Options options = Untrusted(/*loopback_only=*/true);
  options.trusted_network = true;
  auto source = MakeUcxSource(options);
  ASSERT_TRUE(source.ok()) << source.status();
  EXPECT_GT(Listening(), 0) << "what the other tests count is there to be counted";
}

}  // namespace
}  // namespace evenkeel::transport
