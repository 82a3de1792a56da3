// What happens when a peer is killed, stopped, resumed, partitioned away or was never there. Real processes;
// moments are not exact, so whatever the moment was, nothing may hang, crash or write into memory that was
// given back.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "tests/transport/peer_process.h"

namespace evenkeel::transport {
namespace {

constexpr int kParts = 8;
constexpr size_t kPartBytes = 24 << 20;
// The first part must arrive, on a busy machine, too; the others meet what the test does.
constexpr int kFirstSendTimeoutMillis = 30'000, kSendTimeoutMillis = 2000;

class PeerFailure : public testing::TestWithParam<Backend> {
 protected:
  void StartBoth() {
    source_ = std::make_unique<PeerProcess>(true, GetParam());
    sink_ = std::make_unique<PeerProcess>(false, GetParam());
    ASSERT_TRUE(source_->Start()) << source_->address;
    ASSERT_TRUE(sink_->Start()) << sink_->address;
    ASSERT_TRUE(OpenSession(*source_, *sink_, 1));
  }
  void ExpectAndSendAll() {
    for (int i = 1; i <= kParts; ++i) {
      ASSERT_EQ(sink_->Ask(absl::StrCat("expect 1 ", i, " ", kPartBytes), "expecting"), "");
    }
    for (int i = 1; i <= kParts; ++i) {
      source_->Tell(absl::StrCat("send 1 ", i, " ", kPartBytes, " ",
                                 i == 1 ? kFirstSendTimeoutMillis : kSendTimeoutMillis));
    }
  }
  std::string Received(int request) { return sink_->Hear(absl::StrCat("received ", request)); }
  std::string Sent(int request) { return source_->Hear(absl::StrCat("sent ", request)); }
  // A fresh session between the same two processes still works.
  void ExpectANewSessionWorks(int session) {
    ASSERT_TRUE(OpenSession(*source_, *sink_, session));
    ASSERT_EQ(sink_->Ask(absl::StrCat("expect ", session, " 99 3000000"), "expecting"), "");
    source_->Tell(absl::StrCat("send ", session, " 99 3000000 30000"));
    EXPECT_EQ(Received(99), "OK");
    EXPECT_EQ(Sent(99), "OK");
  }
  void CancelTheRestAndCheck() {
    for (int i = 2; i <= kParts; ++i) {
      ASSERT_EQ(sink_->Ask(absl::StrCat("cancel 1 ", i), "cancelled"), "") << "cancel " << i << " hangs";
      std::string code = Received(i);
      EXPECT_TRUE(code == "OK" || code == "CANCELLED" || code == "UNAVAILABLE") << i << " " << code;
      RecordProperty(absl::StrCat("part_", i), code);  // which moment it was, for who wonders
    }
    ASSERT_EQ(sink_->Ask("fill", "filled"), "");
  }

  std::unique_ptr<PeerProcess> source_, sink_;
};

TEST_P(PeerFailure, AKilledSourceEndsWhatItWasAskedFor) {
  ASSERT_NO_FATAL_FAILURE(StartBoth());
  ASSERT_NO_FATAL_FAILURE(ExpectAndSendAll());
  ASSERT_EQ(Received(1), "OK");
  source_->Signal(SIGKILL);
  for (int i = 2; i <= kParts; ++i) {
    std::string code = Received(i);
    EXPECT_TRUE(code == "OK" || code == "UNAVAILABLE") << i << " " << code;
  }
  ASSERT_EQ(sink_->Ask("fill", "filled"), "");
  source_ = std::make_unique<PeerProcess>(true, GetParam());
  ASSERT_TRUE(source_->Start()) << source_->address;
  ExpectANewSessionWorks(2);
}

TEST_P(PeerFailure, CancelEndsAStoppedSourceWhichThenHasNoMemoryToWrite) {
  ASSERT_NO_FATAL_FAILURE(StartBoth());
  ASSERT_NO_FATAL_FAILURE(ExpectAndSendAll());
  ASSERT_EQ(Received(1), "OK");
  source_->Signal(SIGSTOP);
  ASSERT_NO_FATAL_FAILURE(CancelTheRestAndCheck());
  source_->Signal(SIGCONT);
  for (int i = 1; i <= kParts; ++i) EXPECT_NE(Sent(i), "timeout") << i;
  EXPECT_EQ(sink_->Ask("disconnect 1", "disconnected"), "");
  EXPECT_EQ(source_->Ask("disconnect 1", "disconnected"), "");
  EXPECT_EQ(sink_->Ask("check", "buffers"), "intact");
  ExpectANewSessionWorks(2);
}

TEST_P(PeerFailure, ASinkWithAStoppedSourceCanBeDestroyed) {
  ASSERT_NO_FATAL_FAILURE(StartBoth());
  ASSERT_NO_FATAL_FAILURE(ExpectAndSendAll());
  ASSERT_EQ(Received(1), "OK");
  source_->Signal(SIGSTOP);
  EXPECT_EQ(sink_->Ask("stop", "stopped"), "");
  for (int i = 2; i <= kParts; ++i) EXPECT_NE(Received(i), "timeout");
  ASSERT_EQ(sink_->Ask("fill", "filled"), "");
  source_->Signal(SIGCONT);
  for (int i = 1; i <= kParts; ++i) EXPECT_NE(Sent(i), "timeout") << i;
  EXPECT_EQ(sink_->Ask("check", "buffers"), "intact");
}

TEST_P(PeerFailure, AStoppedSinkIsEndedByTheSendersDeadline) {
  ASSERT_NO_FATAL_FAILURE(StartBoth());
  ASSERT_NO_FATAL_FAILURE(ExpectAndSendAll());
  ASSERT_EQ(Received(1), "OK");
  sink_->Signal(SIGSTOP);
  for (int i = 1; i <= kParts; ++i) {
    std::string code = Sent(i);
    EXPECT_TRUE(code == "OK" || code == "DEADLINE_EXCEEDED" || code == "UNAVAILABLE") << i << " " << code;
  }
  sink_->Signal(SIGCONT);
  EXPECT_EQ(sink_->Ask("disconnect 1", "disconnected"), "");
  for (int i = 2; i <= kParts; ++i) EXPECT_NE(Received(i), "timeout");
  ExpectANewSessionWorks(2);
}

TEST_P(PeerFailure, AKilledSinkEndsWhatWasBeingSent) {
  ASSERT_NO_FATAL_FAILURE(StartBoth());
  ASSERT_NO_FATAL_FAILURE(ExpectAndSendAll());
  ASSERT_EQ(Received(1), "OK");
  sink_->Signal(SIGKILL);
  for (int i = 1; i <= kParts; ++i) {
    std::string code = Sent(i);
    EXPECT_TRUE(code == "OK" || code == "UNAVAILABLE" || code == "DEADLINE_EXCEEDED") << i << " " << code;
  }
  EXPECT_EQ(source_->Ask("stop", "stopped"), "");
}

TEST_P(PeerFailure, ASourceWithAStoppedSinkCanBeDestroyed) {
  ASSERT_NO_FATAL_FAILURE(StartBoth());
  ASSERT_NO_FATAL_FAILURE(ExpectAndSendAll());
  ASSERT_EQ(Received(1), "OK");
  sink_->Signal(SIGSTOP);
  EXPECT_EQ(source_->Ask("stop", "stopped"), "");
  for (int i = 2; i <= kParts; ++i) EXPECT_NE(Sent(i), "timeout");
}

// The survivor is one process throughout, so that what the dead leave behind adds up.
TEST_P(PeerFailure, APeerThatDiesInTheHandshakeHarmsNobody) {
  auto survivor = std::make_unique<PeerProcess>(true, GetParam());
  ASSERT_TRUE(survivor->Start()) << survivor->address;
  for (int i = 1; i <= 12; ++i) {
    PeerProcess sink(false, GetParam());
    ASSERT_TRUE(sink.Start()) << sink.address;
    ASSERT_EQ(survivor->Ask(absl::StrCat("connect ", i, " ", sink.address, " none"), "connected"), "OK");
    sink.Tell(absl::StrCat("connect ", i, " ", survivor->address, " ", survivor->endpoint));
    survivor->Tell(absl::StrCat("send ", i, " ", i, " 3000000 1000"));
    usleep(i * 700);
    sink.Signal(SIGKILL);
    ASSERT_EQ(survivor->Ask(absl::StrCat("disconnect ", i), "disconnected"), "");
  }
  source_ = std::move(survivor);
  sink_ = std::make_unique<PeerProcess>(false, GetParam());
  ASSERT_TRUE(sink_->Start()) << sink_->address;
  ExpectANewSessionWorks(100);
  for (int i = 101; i <= 112; ++i) {
    PeerProcess source(true, GetParam());
    ASSERT_TRUE(source.Start()) << source.address;
    ASSERT_EQ(source.Ask(absl::StrCat("connect ", i, " ", sink_->address, " none"), "connected"), "OK");
    sink_->Tell(absl::StrCat("connect ", i, " ", source.address, " ", source.endpoint));
    usleep((i - 100) * 700);
    source.Signal(SIGKILL);
    ASSERT_EQ(sink_->Ask(absl::StrCat("disconnect ", i), "disconnected"), "");
    sink_->Hear("connected");  // in time or not: the next session must not take it for its own answer
  }
  ExpectANewSessionWorks(200);
}

// Two processes, each in a network of its own, joined by a wire that the test can cut.
class NetworkFailure : public PeerFailure {
 protected:
  static constexpr absl::Duration kConnectTimeout = absl::Seconds(4);

  static bool Shell(const std::string& command) {
    return std::system((command + " >/dev/null 2>&1").c_str()) == 0;
  }
  static std::string In(const PeerProcess& peer) { return absl::StrCat("nsenter -t ", peer.pid(), " -n "); }

  void SetUp() override {
    if (geteuid() != 0 || !Shell("unshare -n true") || !Shell("ip -V")) {
      GTEST_SKIP() << "network namespaces need root, unshare and ip (iproute2)";
    }
    source_ =
        std::make_unique<PeerProcess>(true, GetParam(), true, std::vector<std::string>{"wire", "10.231.0.1"});
    sink_ = std::make_unique<PeerProcess>(false, GetParam(), true,
                                          std::vector<std::string>{"wire", "10.231.0.2"});
  }
  void StartBothOnTheWire() {
    // They entered their networks before they could answer.
    ASSERT_EQ(source_->Ask("hello", "here"), "");
    ASSERT_EQ(sink_->Ask("hello", "here"), "");
    if (!Shell(absl::StrCat("ip link add wire netns ", source_->pid(), " type veth peer name wire netns ",
                            sink_->pid()))) {
      GTEST_SKIP() << "no veth devices here";
    }
    for (const std::string& command :
         {In(*source_) + "ip addr add 10.231.0.1/24 dev wire",
          In(*sink_) + "ip addr add 10.231.0.2/24 dev wire", In(*source_) + "ip link set wire up",
          In(*sink_) + "ip link set wire up"}) {
      ASSERT_TRUE(Shell(command)) << command;
    }
    // A device that was just set up counts as running a moment later.
    for (PeerProcess* peer : {source_.get(), sink_.get()}) {
      bool started = peer->Start(kConnectTimeout);
      for (int i = 0; i < 100 && !started; ++i) {
        usleep(50'000);
        started = peer->Start(kConnectTimeout);
      }
      ASSERT_TRUE(started) << peer->address;
    }
  }
  // Everything sent from now on, in both directions, is addressed to a card that is not there.
  void Cut() {
    ASSERT_TRUE(
        Shell(In(*source_) + "ip neigh replace 10.231.0.2 lladdr 02:00:00:00:00:fe nud permanent dev wire"));
    ASSERT_TRUE(
        Shell(In(*sink_) + "ip neigh replace 10.231.0.1 lladdr 02:00:00:00:00:fe nud permanent dev wire"));
  }
  void Mend() {
    ASSERT_TRUE(Shell(In(*source_) + "ip neigh del 10.231.0.2 dev wire"));
    ASSERT_TRUE(Shell(In(*sink_) + "ip neigh del 10.231.0.1 dev wire"));
  }
};

TEST_P(NetworkFailure, APartitionIsEndedByCancelAndTheSendersDeadline) {
  ASSERT_NO_FATAL_FAILURE(StartBothOnTheWire());
  if (IsSkipped()) return;
  ASSERT_TRUE(OpenSession(*source_, *sink_, 1));
  ASSERT_NO_FATAL_FAILURE(ExpectAndSendAll());
  ASSERT_EQ(Received(1), "OK");
  ASSERT_NO_FATAL_FAILURE(Cut());
  ASSERT_NO_FATAL_FAILURE(CancelTheRestAndCheck());
  for (int i = 1; i <= kParts; ++i) {
    std::string code = Sent(i);
    EXPECT_TRUE(code == "OK" || code == "DEADLINE_EXCEEDED" || code == "UNAVAILABLE") << i << " " << code;
  }
  ASSERT_NO_FATAL_FAILURE(Mend());
  EXPECT_EQ(sink_->Ask("disconnect 1", "disconnected"), "");
  EXPECT_EQ(source_->Ask("disconnect 1", "disconnected"), "");
  ExpectANewSessionWorks(2);
  sink_->Tell("disconnect 2");
  EXPECT_EQ(source_->Ask("disconnect 2", "disconnected"), "");
}

TEST_P(NetworkFailure, ABlackHoledAddressEndsWithTheConnectTimeout) {
  ASSERT_NO_FATAL_FAILURE(StartBothOnTheWire());
  if (IsSkipped()) return;
  ASSERT_NO_FATAL_FAILURE(Cut());
  ASSERT_TRUE(OpenSession(*source_, *sink_, 1));
  ASSERT_EQ(sink_->Ask("expect 1 5 1000", "expecting"), "");
  source_->Tell("send 1 5 1000 20000");
  EXPECT_EQ(Received(5), "UNAVAILABLE");
  EXPECT_EQ(Sent(5), "UNAVAILABLE");
  EXPECT_EQ(sink_->Ask("disconnect 1", "disconnected"), "");
  EXPECT_EQ(source_->Ask("disconnect 1", "disconnected"), "");
  ASSERT_NO_FATAL_FAILURE(Mend());
  ExpectANewSessionWorks(2);
}

TEST_P(NetworkFailure, ASinkThatDialsIntoTheVoidCanBeDestroyed) {
  ASSERT_NO_FATAL_FAILURE(StartBothOnTheWire());
  if (IsSkipped()) return;
  ASSERT_NO_FATAL_FAILURE(Cut());
  ASSERT_TRUE(OpenSession(*source_, *sink_, 1));
  ASSERT_EQ(sink_->Ask("expect 1 5 1000", "expecting"), "");
  EXPECT_EQ(sink_->Ask("stop", "stopped"), "");
  EXPECT_EQ(Received(5), "CANCELLED");
}

std::string NameOfFailure(const testing::TestParamInfo<Backend>& info) { return BackendName(info.param); }
INSTANTIATE_TEST_SUITE_P(Over, PeerFailure, testing::Values(Backend::kUcx, Backend::kGrpc, Backend::kMemory),
                         NameOfFailure);
INSTANTIATE_TEST_SUITE_P(Over, NetworkFailure, testing::Values(Backend::kUcx, Backend::kGrpc), NameOfFailure);

}  // namespace
}  // namespace evenkeel::transport
