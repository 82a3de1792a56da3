// The envelopes around addresses and messages, and who may speak on the control plane.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "transport/address.h"
#include "transport/credentials.h"
#include "transport/ucx_message.h"

namespace evenkeel::transport {
namespace {

TEST(Address, SurvivesTheWayThere) {
  for (bool memory : {false, true}) {
    for (bool rdma : {false, true}) {
      Address address{AddressRole::kSession, memory, rdma, 0x0123456789abcdef,
                      std::string("worker\0bytes", 12)};
      absl::StatusOr<Address> back = UnwrapAddress(WrapAddress(address));
      ASSERT_TRUE(back.ok()) << back.status();
      EXPECT_EQ(back->role, address.role);
      EXPECT_EQ(back->memory, memory);
      EXPECT_EQ(back->rdma, rdma);
      EXPECT_EQ(back->host, address.host);
      EXPECT_EQ(back->worker, address.worker);
    }
  }
}

TEST(Address, IsRefusedWhenAnyBitChangedOrAnyByteIsMissing) {
  std::string good = WrapAddress({AddressRole::kSource, false, false, 1, "0123456789"});
  for (size_t i = 0; i < good.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string bad = good;
      bad[i] = static_cast<char>(bad[i] ^ (1 << bit));
      EXPECT_FALSE(UnwrapAddress(bad).ok()) << i << " " << bit;
    }
    EXPECT_FALSE(UnwrapAddress(good.substr(0, i)).ok()) << i;
  }
  EXPECT_FALSE(UnwrapAddress(good + "x").ok());
  EXPECT_FALSE(UnwrapAddress(std::string(kMaxAddressBytes + 1, 'x')).ok());
}

TEST(Message, SurvivesTheWayThere) {
  PartMessage message{1, 2, 3, 4, DigestOf("x"), Secret{9}};
  std::optional<PartMessage> back = UnpackPartMessage(Pack(message));
  ASSERT_TRUE(back.has_value());
  EXPECT_EQ(back->session, 1);
  EXPECT_EQ(back->request, 2);
  EXPECT_EQ(back->length, 3);
  EXPECT_EQ(back->offset, 4);
  EXPECT_EQ(back->hash, message.hash);
  EXPECT_EQ(back->secret, message.secret);
}

TEST(Message, OfAnotherSizeMagicOrVersionIsRefused) {
  PartMessageBytes part = Pack(PartMessage{});
  GreetingBytes greeting = Pack(Greeting{});
  EXPECT_FALSE(UnpackPartMessage(std::span(part).first(kPartMessageBytes - 1)));
  EXPECT_FALSE(UnpackGreeting(std::span(greeting).first(kGreetingBytes - 1)));
  EXPECT_FALSE(UnpackPartMessage({}));
  EXPECT_FALSE(UnpackGreeting(part));
  for (size_t i = 0; i < 8; ++i) {
    PartMessageBytes bad = part;
    bad[i] ^= std::byte{1};
    EXPECT_FALSE(UnpackPartMessage(bad)) << i;
    GreetingBytes rude = greeting;
    rude[i] ^= std::byte{1};
    EXPECT_FALSE(UnpackGreeting(rude)) << i;
  }
}

TEST(Credentials, KnowWhatIsLoopback) {
  for (const char* address : {"127.0.0.1:1", "127.8.9.10", "localhost:80", "[::1]:5", "::1", "unix:/tmp/x",
                              "dns:///localhost:1", "ipv4:127.0.0.1:1,127.0.0.2:2"}) {
    EXPECT_TRUE(IsLoopback(address)) << address;
  }
  for (const char* address : {"0.0.0.0:1", "[::]:1", "10.0.0.1:1", "127.evil.example:1",
                              "127.0.0.1.evil.example", "localhost.evil.example:1", "", ":80", "[::1",
                              "ipv4:127.0.0.1:1,10.0.0.1:2", "dns:///worker:1", "128.0.0.1", "127.0.0.256"}) {
    EXPECT_FALSE(IsLoopback(address)) << address;
  }
}

TEST(Credentials, AreNeededBeyondLoopback) {
  EXPECT_TRUE(CheckAddress({}, "127.0.0.1:1").ok());
  EXPECT_TRUE(absl::IsPermissionDenied(CheckAddress({}, "0.0.0.0:1")));
  EXPECT_TRUE(CheckAddress({"c", "k", "a"}, "0.0.0.0:1").ok());
}

TEST(Credentials, NameTheFileThatIsMissingOrIsNoPem) {
  EXPECT_TRUE(absl::IsInvalidArgument(OpenCertificates({"only", "", ""}, nullptr).status()));
  absl::Status missing =
      OpenCertificates({"/nowhere/c.pem", "/nowhere/k.pem", "/nowhere/a.pem"}, nullptr).status();
  EXPECT_TRUE(absl::IsNotFound(missing)) << missing;
  EXPECT_NE(missing.message().find("/nowhere/c.pem"), absl::string_view::npos);
  std::string path = testing::TempDir() + "/not.pem";
  std::ofstream(path) << "hello";
  EXPECT_TRUE(absl::IsInvalidArgument(OpenCertificates({path, path, path}, nullptr).status()));
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace evenkeel::transport
