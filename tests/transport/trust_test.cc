// UCX without RDMA opens nothing unless its network is trusted.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "tests/transport/peers.h"
#include "transport/factory.h"
#include "transport/listening_sockets.h"

namespace evenkeel::transport {
namespace {

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
  EXPECT_EQ(ListeningSockets::OfProcess().size(), 0u);
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
  EXPECT_GT(ListeningSockets::OfProcess().size(), 0u) << "what the other tests count is there to be counted";
}

}  // namespace
}  // namespace evenkeel::transport
