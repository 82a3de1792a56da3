// Connections: what is handed over, what is closed, and that running out of handles is not the end.
#include "server/acceptor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <vector>

#include "core/annotated_mutex.h"
#include "tests/server/dial.h"

namespace evenkeel::server {
namespace {

constexpr std::string_view kPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

// What an acceptor hands over stays open here.
class Accepting {
 public:
  explicit Accepting(const Acceptor::Options& options, const std::string& address = "127.0.0.1:0")
      : acceptor_(*Listen("test", address), options, [this](Handle connection) {
          MutexLock lock(mutex_);
          taken_.push_back(std::move(connection));
        }) {}

  Handle Dial() { return evenkeel::server::Dial(acceptor_.address()); }
  Handle DialAndBegin() {
    Handle connection = Dial();
    SendAll(connection, kPreface);
    return connection;
  }
  size_t taken() const {
    MutexLock lock(mutex_);
    return taken_.size();
  }
  void CloseTaken() {
    MutexLock lock(mutex_);
    taken_.clear();
  }
  uint64_t refused(telemetry::Refusal refusal) const { return acceptor_.refused(refusal); }
  Acceptor& acceptor() { return acceptor_; }

 private:
  mutable Mutex mutex_;
  std::vector<Handle> taken_ ABSL_GUARDED_BY(mutex_);
  Acceptor acceptor_;
};

TEST(Acceptor, HandsOverAConnectionOnceItHasBegun) {
  Accepting accepting({});
  const Handle silent = accepting.Dial();
  const Handle half = accepting.Dial();
  SendAll(half, kPreface.substr(0, 10));
  const Handle begun = accepting.DialAndBegin();
  ASSERT_TRUE(Eventually([&] { return accepting.taken() == 1; }));
  SendAll(half, kPreface.substr(10));
  ASSERT_TRUE(Eventually([&] { return accepting.taken() == 2; }));
  EXPECT_FALSE(IsClosed(silent));
}

TEST(Acceptor, ClosesWhatBeginsWithAnotherProtocol) {
  Accepting accepting({});
  const Handle web = accepting.Dial();
  SendAll(web, "GET / HTTP/1.1\r\n\r\n");
  EXPECT_TRUE(Eventually([&] { return IsClosed(web); }));
  EXPECT_EQ(accepting.refused(telemetry::Refusal::kProtocol), 1u);
  EXPECT_EQ(accepting.taken(), 0u);
}

TEST(Acceptor, WaitsForTheWholeFirstRecordOfTls) {
  Accepting accepting({.tls = true});
  const Handle plain = accepting.DialAndBegin();
  EXPECT_TRUE(Eventually([&] { return IsClosed(plain); }));
  const Handle record = accepting.Dial();
  SendAll(record, std::string_view("\x16\x03\x01\x00\x04\x01\x00", 7));
  const Handle large = accepting.Dial();
  SendAll(large, std::string_view("\x16\x03\x01\xff\xff", 5));
  EXPECT_TRUE(Eventually([&] { return IsClosed(large); }));
  EXPECT_EQ(accepting.taken(), 0u);
  SendAll(record, std::string_view("\x00\x00", 2));
  EXPECT_TRUE(Eventually([&] { return accepting.taken() == 1; }));
}

TEST(Acceptor, ClosesWhatStaysSilent) {
  Accepting accepting({.silence = absl::Milliseconds(200)});
  const Handle silent = accepting.Dial();
  EXPECT_TRUE(Eventually([&] { return IsClosed(silent); }));
  EXPECT_EQ(accepting.refused(telemetry::Refusal::kSilent), 1u);
}

TEST(Acceptor, ServesWhoSpeaksWhileManyAreSilent) {
  Accepting accepting({.max_silent = 8, .silence = absl::Hours(1)});
  std::vector<Handle> flood;
  for (int i = 0; i < 100; ++i) flood.push_back(accepting.Dial());
  const Handle begun = accepting.DialAndBegin();
  EXPECT_TRUE(Eventually([&] { return accepting.taken() == 1; }));
  EXPECT_TRUE(Eventually([&] { return accepting.refused(telemetry::Refusal::kSilent) >= 92; }));
  EXPECT_FALSE(IsClosed(begun));
}

TEST(Acceptor, TakesNoMoreThanItsPlacesAndCountsThoseThatAreClosed) {
  Accepting accepting({.max_connections = 2});
  std::vector<Handle> begun;
  for (size_t i = 0; i < 3; ++i) {
    begun.push_back(accepting.DialAndBegin());
    ASSERT_TRUE(Eventually(
        [&] { return accepting.taken() + accepting.refused(telemetry::Refusal::kPlaces) == i + 1; }));
  }
  EXPECT_EQ(accepting.refused(telemetry::Refusal::kPlaces), 1u);
  EXPECT_TRUE(Eventually([&] { return accepting.acceptor().connections() == 2; }));
  accepting.CloseTaken();
  EXPECT_TRUE(Eventually([&] { return accepting.acceptor().connections() == 0; }));
  begun.push_back(accepting.DialAndBegin());
  EXPECT_TRUE(Eventually([&] { return accepting.taken() == 1; }));
}

TEST(Acceptor, LeavesTheReservedHandlesToOthers) {
  Accepting accepting({.reserved_from = 0});
  const Handle refused = accepting.Dial();
  EXPECT_TRUE(Eventually([&] { return IsClosed(refused); }));
  EXPECT_EQ(accepting.refused(telemetry::Refusal::kHandles), 1u);
}

TEST(Acceptor, AcceptsAgainAfterTheProcessHadNoHandleLeft) {
  Accepting accepting({});
  std::vector<Handle> dialled;
  for (int i = 0; i < 4; ++i) dialled.push_back(UnconnectedSocket(accepting.acceptor().address()));
  {
    const NoHandleLeft no_handle;
    for (const Handle& socket : dialled) Connect(socket, accepting.acceptor().address());
    // They are told at once, and do not wait for a handle.
    for (const Handle& socket : dialled) EXPECT_TRUE(Eventually([&] { return IsClosed(socket); }));
    EXPECT_EQ(accepting.refused(telemetry::Refusal::kHandles), 4u);
  }
  const Handle begun = accepting.DialAndBegin();
  EXPECT_TRUE(Eventually([&] { return accepting.taken() == 1; }));
}

TEST(Acceptor, ServesUnixSocketsAndRemovesTheirFile) {
  const std::string path = testing::TempDir() + "/acceptor.socket";
  {
    const mode_t before = umask(0);
    Accepting accepting({}, "unix:" + path);
    umask(before);
    struct stat status {};
    ASSERT_EQ(stat(path.c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 0777, 0600u) << "for this user alone";
    const Handle begun = accepting.DialAndBegin();
    EXPECT_TRUE(Eventually([&] { return accepting.taken() == 1; }));
    EXPECT_TRUE(absl::IsAlreadyExists(Listen("--listen", "unix:" + path).status()));
  }
  EXPECT_NE(access(path.c_str(), F_OK), 0);
}

TEST(Listen, ReplacesTheFileOfASocketThatNobodyListensAt) {
  const std::string path = testing::TempDir() + "/stale.socket";
  (void)unlink(path.c_str());
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  {
    const Handle killed(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    ASSERT_EQ(bind(killed.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  }
  EXPECT_TRUE(Listen("--listen", "unix:" + path).ok());
}

TEST(Listen, SaysWhatIsWrongWithAnAddress) {
  const auto code = [](const std::string& address) { return Listen("--listen", address).status().code(); };
  for (const char* wrong : {"", "nonsense", "127.0.0.1", "127.0.0.1:65536", "127.0.0.1:-1", "192.0.2.1:0",
                            "unix:", "no.such.host.invalid:0"}) {
    EXPECT_EQ(code(wrong), absl::StatusCode::kInvalidArgument) << wrong;
  }
  const auto first = Listen("--listen", "127.0.0.1:0");
  ASSERT_TRUE(first.ok()) << first.status();
  const absl::Status taken = Listen("--listen", first->address).status();
  EXPECT_EQ(taken.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(std::string(taken.message()), testing::StartsWith("--listen: cannot listen on " +
                                                                first->address + ": address already in use"));
}

TEST(Listen, OnAWildcardIsReachedByEitherFamily) {
  const auto listener = Listen("--listen", "0.0.0.0:0");
  ASSERT_TRUE(listener.ok()) << listener.status();
  const std::string port = listener->address.substr(listener->address.rfind(':'));
  EXPECT_EQ(listener->dial, "ipv4:127.0.0.1" + port);
  EXPECT_GE(Dial("127.0.0.1" + port).get(), 0);
}

}  // namespace
}  // namespace evenkeel::server
