// A worker or a consumer that sends over the socket of sealed memory what it should not, and strangers that
// connect to it: the session ends, nobody's memory changes, and no descriptor is leaked.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/digest.h"
#include "core/steady_time.h"
#include "tests/transport/peer_process.h"
#include "tests/transport/peers.h"
#include "transport/address.h"
#include "transport/memory_socket.h"
#include "transport/sealed_memory.h"

namespace evenkeel::transport {
namespace {

constexpr size_t kBytes = 100'000;
constexpr uid_t kStranger = 65534;

size_t OpenHandles() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return static_cast<size_t>(std::distance(begin(all), end(all)));
}

// Waits for the next message of a socket that does not block.
absl::StatusOr<MemoryMessage> Next(int socket) {
  const absl::Time deadline = SteadyNow() + absl::Seconds(30);
  while (SteadyNow() < deadline) {
    absl::StatusOr<std::optional<ReceivedMessage>> received = ReceiveMessage(socket);
    if (!received.ok()) return received.status();
    if (received->has_value()) return (*received)->message;
    absl::SleepFor(absl::Milliseconds(1));
  }
  return absl::DeadlineExceededError("the test waited in vain");
}

MemoryMessage Part(const std::vector<std::byte>& content) {
  return {.kind = MemoryMessageKind::kPart,
          .session = 1,
          .request = 1,
          .length = content.size(),
          .hash = DigestOf(content),
          .secret = SecretOf(1)};
}

// Sends `bytes` with the descriptors in one message.
void SendRaw(int socket, std::string bytes, const std::vector<int>& handles) {
  iovec from{bytes.data(), bytes.size()};
  msghdr header{};
  header.msg_iov = &from;
  header.msg_iovlen = 1;
  std::vector<char> control(CMSG_SPACE(handles.size() * sizeof(int)));
  if (!handles.empty()) {
    header.msg_control = control.data();
    header.msg_controllen = control.size();
    cmsghdr* part = CMSG_FIRSTHDR(&header);
    part->cmsg_level = SOL_SOCKET;
    part->cmsg_type = SCM_RIGHTS;
    part->cmsg_len = CMSG_LEN(handles.size() * sizeof(int));
    std::memcpy(CMSG_DATA(part), handles.data(), handles.size() * sizeof(int));
  }
  ASSERT_GE(sendmsg(socket, &header, MSG_NOSIGNAL), 0) << strerror(errno);
}

// The bytes of a valid message, read back from a socket pair.
std::string BytesOf(const MemoryMessage& message) {
  int pair[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) abort();
  const Handle one(pair[0]), two(pair[1]);
  EXPECT_TRUE(SendMessage(one.get(), message).ok());
  char bytes[256];
  return std::string(bytes, static_cast<size_t>(read(two.get(), bytes, sizeof(bytes))));
}

// Memory with all of these bytes and only these seals.
Handle MemoryWith(const std::vector<std::byte>& content, int seals) {
  Handle memory(memfd_create("x", MFD_ALLOW_SEALING | MFD_CLOEXEC));
  EXPECT_EQ(write(memory.get(), content.data(), content.size()), static_cast<ssize_t>(content.size()));
  EXPECT_EQ(fcntl(memory.get(), F_ADD_SEALS, seals), 0);
  return memory;
}

struct Attack {
  std::string name;
  // Gets the worker's end of the connection after kReady, the part's content and it as sealed memory.
  std::function<void(int socket, const std::vector<std::byte>& content, const SealedMemory& sealed)> send;
  absl::StatusCode outcome = absl::StatusCode::kUnavailable;
};

std::vector<Attack> Attacks() {
  using Content = std::vector<std::byte>;
  return {
      {"NoDescriptor", [](int to, const Content& c, const SealedMemory&) { (void)SendMessage(to, Part(c)); }},
      {"UnsealedMemory", [](int to, const Content& c,
                            const SealedMemory&) { (void)SendMessage(to, Part(c), MemoryWith(c, 0).get()); }},
      {"MemoryThatCanStillBeWritten",
       [](int to, const Content& c, const SealedMemory&) {
         const Handle open = MemoryWith(c, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
         (void)SendMessage(to, Part(c), open.get());
       }},
      {"MemoryThatCanStillShrink",
       [](int to, const Content& c, const SealedMemory&) {
         const Handle open = MemoryWith(c, F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SEAL);
         (void)SendMessage(to, Part(c), open.get());
       }},
      {"AnotherKindOfDescriptor",
       [](int to, const Content& c, const SealedMemory&) {
         const Handle null(open("/dev/zero", O_RDWR | O_CLOEXEC));
         (void)SendMessage(to, Part(c), null.get());
       }},
      {"ItsOwnSocket",
       [](int to, const Content& c, const SealedMemory&) { (void)SendMessage(to, Part(c), to); }},
      {"AShorterFile",
       [](int to, const Content& c, const SealedMemory&) {
         const SealedMemory cut = *SealedMemory::CopyOf(std::span(c).first(c.size() - 1));
         (void)SendMessage(to, Part(c), cut.handle());
       }},
      {"ALongerFile",
       [](int to, const Content& c, const SealedMemory&) {
         Content more = c;
         more.push_back(std::byte{0});
         const SealedMemory longer = *SealedMemory::CopyOf(more);
         (void)SendMessage(to, Part(c), longer.handle());
       }},
      {"AHugeLength",
       [](int to, const Content& c, const SealedMemory& sealed) {
         MemoryMessage part = Part(c);
         part.length = uint64_t{1} << 62;
         (void)SendMessage(to, part, sealed.handle());
       },
       absl::StatusCode::kDataLoss},
      {"TwoDescriptors",
       [](int to, const Content& c, const SealedMemory& sealed) {
         SendRaw(to, BytesOf(Part(c)), {sealed.handle(), sealed.handle()});
       }},
      {"ManyDescriptors",
       [](int to, const Content& c, const SealedMemory& sealed) {
         SendRaw(to, BytesOf(Part(c)), std::vector<int>(200, sealed.handle()));
       }},
      {"ManyDescriptorsWithoutAMessage",
       [](int to, const Content&, const SealedMemory& sealed) {
         SendRaw(to, "x", std::vector<int>(200, sealed.handle()));
       }},
      {"AShortMessage",
       [](int to, const Content& c, const SealedMemory& sealed) {
         SendRaw(to, BytesOf(Part(c)).substr(0, 63), {sealed.handle()});
       }},
      {"ALongMessage",
       [](int to, const Content& c, const SealedMemory& sealed) {
         SendRaw(to, BytesOf(Part(c)) + std::string(1000, 'x'), {sealed.handle()});
       }},
      {"Rubbish", [](int to, const Content&, const SealedMemory&) { SendRaw(to, std::string(64, 'x'), {}); }},
      {"AnUnknownKind",
       [](int to, const Content& c, const SealedMemory& sealed) {
         MemoryMessage part = Part(c);
         part.kind = static_cast<MemoryMessageKind>(9);
         (void)SendMessage(to, part, sealed.handle());
       }},
      {"AnotherSession",
       [](int to, const Content& c, const SealedMemory& sealed) {
         MemoryMessage part = Part(c);
         part.session = 2;
         (void)SendMessage(to, part, sealed.handle());
       }},
      {"AnotherSecret",
       [](int to, const Content& c, const SealedMemory& sealed) {
         MemoryMessage part = Part(c);
         part.secret = SecretOf(2);
         (void)SendMessage(to, part, sealed.handle());
       }},
      {"TheEnd", [](int to, const Content&, const SealedMemory&) { shutdown(to, SHUT_RDWR); }},
  };
}

// A worker of the test's own: everything up to the attack is right.
class HostileWorker : public testing::TestWithParam<Attack> {};

TEST_P(HostileWorker, EndsItsSessionAndNothingElse) {
  const std::vector<std::byte> content = Payload(kBytes, 1);
  const SealedMemory sealed = *SealedMemory::CopyOf(content);
  std::vector<std::byte> buffer(kBytes, std::byte{0x5a}), untouched = buffer;
  const size_t handles = OpenHandles();
  {
    std::string name;
    const Handle listening = *ListenForMemory(&name);
    const std::string address =
        WrapAddress({.role = AddressRole::kSource, .memory = true, .host = ThisHost(), .worker = name});
    std::unique_ptr<Sink> sink = *MakeSink(Backend::kMemory, OptionsFor(Backend::kMemory));
    ASSERT_TRUE(sink->Connect(1, "worker:1", address, SecretOf(1)).ok());
    Outcome arrived;
    sink->Expect(1, 1, buffer, arrived.callback());
    const Handle socket(accept4(listening.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    ASSERT_TRUE(Next(socket.get()).ok());
    ASSERT_TRUE(
        *SendMessage(socket.get(), {.kind = MemoryMessageKind::kReady, .session = 1, .secret = SecretOf(1)}));
    GetParam().send(socket.get(), content, sealed);
    const absl::Status status = arrived.Wait();
    EXPECT_EQ(status.code(), GetParam().outcome) << status;
    EXPECT_TRUE(buffer == untouched);
    if (GetParam().outcome == absl::StatusCode::kUnavailable) {
      EXPECT_TRUE(absl::IsUnavailable(Next(socket.get()).status())) << "the connection is open";
      Outcome later;
      sink->Expect(1, 2, buffer, later.callback());
      EXPECT_TRUE(absl::IsUnavailable(later.Wait())) << later.Wait();
    }
  }
  EXPECT_EQ(OpenHandles(), handles) << "descriptors are leaked";
}

INSTANTIATE_TEST_SUITE_P(Sends, HostileWorker, testing::ValuesIn(Attacks()),
                         [](const auto& info) { return info.param.name; });

TEST(HostileWorkers, CannotSendBeforeTheySaidWhoTheyAre) {
  const std::vector<std::byte> content = Payload(kBytes, 1);
  const SealedMemory sealed = *SealedMemory::CopyOf(content);
  std::string name;
  const Handle listening = *ListenForMemory(&name);
  std::unique_ptr<Sink> sink = *MakeSink(Backend::kMemory, OptionsFor(Backend::kMemory));
  ASSERT_TRUE(
      sink->Connect(
              1, "worker:1",
              WrapAddress({.role = AddressRole::kSource, .memory = true, .host = ThisHost(), .worker = name}),
              SecretOf(1))
          .ok());
  std::vector<std::byte> buffer(kBytes);
  Outcome arrived;
  sink->Expect(1, 1, buffer, arrived.callback());
  const Handle socket(accept4(listening.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  (void)SendMessage(socket.get(), Part(content), sealed.handle());
  EXPECT_TRUE(absl::IsUnavailable(arrived.Wait())) << arrived.Wait();
}

// ---- Consumers

class HostileConsumer : public testing::Test {
 protected:
  void SetUp() override {
    options_.connect_timeout = absl::Seconds(30);
    absl::StatusOr<std::unique_ptr<WorkerSide>> worker = WorkerSide::Start(Backend::kMemory, options_);
    ASSERT_TRUE(worker.ok()) << worker.status();
    worker_ = *std::move(worker);
    name_ = UnwrapAddress(source().address())->worker;
  }
  Source& source() { return worker_->source(); }
  static std::string SinkAddress() {
    return WrapAddress({.role = AddressRole::kSink, .memory = true, .host = ThisHost()});
  }
  // A connection whose session is open.
  Handle Open(SessionId session) {
    EXPECT_TRUE(source().Connect(session, SinkAddress(), SecretOf(1)).ok());
    Handle socket = *DialForMemory(name_);
    EXPECT_TRUE(*SendMessage(socket.get(),
                             {.kind = MemoryMessageKind::kHello, .session = session, .secret = SecretOf(1)}));
    absl::StatusOr<MemoryMessage> ready = Next(socket.get());
    EXPECT_TRUE(ready.ok()) << ready.status();
    return socket;
  }
  void ExpectASessionWorks(SessionId session) {
    const std::unique_ptr<Sink> sink = *MakeSink(Backend::kMemory, options_);
    ASSERT_TRUE(source().Connect(session, sink->address(), SecretOf(1)).ok());
    ASSERT_TRUE(sink->Connect(session, "worker:1", source().address(), SecretOf(1)).ok());
    const std::vector<std::byte> content = Payload(kBytes, 1);
    std::vector<std::byte> buffer(kBytes);
    Outcome sent, arrived;
    sink->Expect(session, 1, buffer, arrived.callback());
    source().Send(session, 1, content, DigestOf(content), absl::Seconds(50), sent.callback());
    EXPECT_TRUE(arrived.Wait().ok()) << arrived.Wait();
    EXPECT_TRUE(sent.Wait().ok());
    source().Disconnect(session);
  }

  Options options_ = OptionsFor(Backend::kMemory);
  std::unique_ptr<WorkerSide> worker_;
  std::string name_;
};

TEST_F(HostileConsumer, ThatAnswersForWhatItDidNotGetIsClosed) {
  const Handle socket = Open(1);
  ASSERT_TRUE(*SendMessage(
      socket.get(), {.kind = MemoryMessageKind::kTaken, .session = 1, .request = 7, .secret = SecretOf(1)}));
  EXPECT_TRUE(absl::IsUnavailable(Next(socket.get()).status()));
  EXPECT_EQ(source().messages_dropped(), 1);
  ExpectASessionWorks(2);
}

TEST_F(HostileConsumer, ThatSendsDescriptorsLeaksNone) {
  const size_t handles = OpenHandles();
  const SealedMemory memory = *SealedMemory::CopyOf(Payload(10, 1));
  for (SessionId session = 1; session <= 20; ++session) {
    const Handle socket = Open(session);
    SendRaw(socket.get(), std::string(64, 'x'), std::vector<int>(100, memory.handle()));
    EXPECT_TRUE(absl::IsUnavailable(Next(socket.get()).status()));
    const Handle another = *DialForMemory(name_);
    SendRaw(another.get(), std::string(64, 'x'), std::vector<int>(100, memory.handle()));
    EXPECT_TRUE(absl::IsUnavailable(Next(another.get()).status()));
  }
  ExpectASessionWorks(100);
  for (SessionId session = 1; session <= 20; ++session) source().Disconnect(session);
  EXPECT_EQ(OpenHandles(), handles + 1) << "descriptors are leaked";  // `memory`
}

TEST_F(HostileConsumer, ThatNeverSaysWhoItIsTakesNoPlaceFromOthers) {
  std::vector<Handle> silent;
  for (int i = 0; i < 300; ++i) {
    absl::StatusOr<Handle> socket = DialForMemory(name_);
    ASSERT_TRUE(socket.ok()) << socket.status();
    silent.push_back(*std::move(socket));
  }
  ExpectASessionWorks(1);
  EXPECT_GE(source().messages_dropped(), 300 - 256) << "the oldest leave";
}

TEST_F(HostileConsumer, ThatKeepsAPartCannotChangeIt) {
  const std::vector<std::byte> content = Payload(kBytes, 1);
  const Handle socket = Open(1);
  Outcome sent;
  source().Send(1, 1, content, DigestOf(content), absl::Seconds(50), sent.callback());
  std::optional<ReceivedMessage> part;
  while (!part.has_value()) part = *ReceiveMessage(socket.get());
  ASSERT_EQ(part->handles.size(), 1);
  const int handle = part->handles[0].get();
  EXPECT_EQ(mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, handle, 0), MAP_FAILED);
  EXPECT_EQ(pwrite(handle, "x", 1, 0), -1);
  EXPECT_EQ(ftruncate(handle, 0), -1);
  // Neither through a second descriptor of the same file.
  const Handle again(open(absl::StrCat("/proc/self/fd/", handle).c_str(), O_RDWR | O_CLOEXEC));
  EXPECT_EQ(pwrite(again.get(), "x", 1, 0), -1);
  EXPECT_FALSE(sent.done()) << "the consumer has not taken it";
}

TEST_F(HostileConsumer, ThatDoesNotAnswerIsClosedAtTheDeadline) {
  const std::vector<std::byte> content = Payload(kBytes, 1);
  const Handle socket = Open(1);
  std::vector<Outcome> sent(10);
  for (size_t i = 0; i < sent.size(); ++i) {
    source().Send(1, i + 1, content, DigestOf(content), absl::Milliseconds(300), sent[i].callback());
  }
  for (Outcome& outcome : sent) {
    const absl::Status status = outcome.Wait();
    EXPECT_TRUE(absl::IsDeadlineExceeded(status) || absl::IsUnavailable(status)) << status;
  }
  int parts = 0;
  while (Next(socket.get()).ok()) ++parts;
  EXPECT_LE(parts, 4) << "parts that are not answered for are bounded";
  ExpectASessionWorks(2);
}

// The number of parts that arrive at `socket`. Waits for `expected`, and a moment for one that should not come.
int PartsAt(int socket, int expected) {
  constexpr absl::Duration kMoment = absl::Milliseconds(200);
  int parts = 0;
  absl::Time end = absl::Now() + (expected > 0 ? absl::Seconds(50) : kMoment);
  while (absl::Now() < end) {
    if (ReceiveMessage(socket)->has_value() && ++parts == expected) end = absl::Now() + kMoment;
    absl::SleepFor(absl::Milliseconds(1));
  }
  return parts;
}

TEST_F(HostileConsumer, ThatDoesNotAnswerHoldsABoundedNumberOfCopies) {
  options_.max_copied_bytes = 4 * kBytes;
  SetUp();
  const std::vector<std::byte> content = Payload(kBytes, 1), large = Payload(5 * kBytes, 1);
  std::vector<Outcome> sent(16);
  std::vector<Handle> sockets;
  // The first session takes the half that is for all; each later one a part of the half that is for sessions
  // without any, as long as there is room.
  for (const int expected : {2, 1, 1, 0}) {
    const SessionId session = sockets.size() + 1;
    sockets.push_back(Open(session));
    for (RequestId request = 1; request <= 4; ++request) {
      source().Send(session, request, content, DigestOf(content), absl::Seconds(50),
                    sent[(session - 1) * 4 + request - 1].callback());
    }
    EXPECT_EQ(PartsAt(sockets.back().get(), expected), expected) << "session " << session;
  }
  // A part that is larger than the limit waits until there is no other copy.
  const std::unique_ptr<Sink> sink = *MakeSink(Backend::kMemory, options_);
  ASSERT_TRUE(source().Connect(9, sink->address(), SecretOf(1)).ok());
  ASSERT_TRUE(sink->Connect(9, "worker:1", source().address(), SecretOf(1)).ok());
  std::vector<std::byte> buffer(large.size());
  Outcome arrived, large_sent;
  sink->Expect(9, 1, buffer, arrived.callback());
  source().Send(9, 1, large, DigestOf(large), absl::Seconds(50), large_sent.callback());
  absl::SleepFor(absl::Milliseconds(200));
  EXPECT_FALSE(arrived.done());
  sockets.clear();
  EXPECT_TRUE(arrived.Wait().ok()) << arrived.Wait();
  EXPECT_TRUE(buffer == large);
  EXPECT_TRUE(large_sent.Wait().ok());
  for (Outcome& outcome : sent) EXPECT_TRUE(absl::IsUnavailable(outcome.Wait())) << outcome.Wait();
}

// Runs `body` in a child process as another user; returns what it wrote, "" where that is not permitted.
std::string AsStranger(const std::function<std::string()>& body,
                       const std::function<void(std::string)>& use) {
  int out[2], go_on[2];
  if (pipe2(out, O_CLOEXEC) != 0 || pipe2(go_on, O_CLOEXEC) != 0) abort();
  const pid_t child = fork();
  if (child == 0) {
    close(go_on[1]);
    if (setgid(kStranger) != 0 || setuid(kStranger) != 0) _exit(1);
    const std::string said = body();
    (void)!write(out[1], said.data(), said.size());
    close(out[1]);
    char end;
    (void)!read(go_on[0], &end, 1);  // until the test has used what it said
    _exit(0);
  }
  close(out[1]);
  close(go_on[0]);
  std::string said;
  char bytes[256];
  for (ssize_t count; (count = read(out[0], bytes, sizeof(bytes))) > 0;) said.append(bytes, count);
  if (!said.empty()) use(said);
  close(go_on[1]);
  close(out[0]);
  waitpid(child, nullptr, 0);
  return said;
}

TEST_F(HostileConsumer, OfAnotherUserIsClosedAtOnce) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  ASSERT_TRUE(source().Connect(1, SinkAddress(), SecretOf(1)).ok());
  const std::string name = name_;
  const std::string said = AsStranger(
      [name] {
        absl::StatusOr<Handle> socket = DialForMemory(name);
        if (!socket.ok()) return std::string("cannot connect");
        // The right session and the right secret.
        (void)SendMessage(socket->get(),
                          {.kind = MemoryMessageKind::kHello, .session = 1, .secret = SecretOf(1)});
        return absl::StrCat(absl::StatusCodeToString(Next(socket->get()).status().code()));
      },
      [](const std::string&) {});
  EXPECT_EQ(said, "UNAVAILABLE");
  EXPECT_EQ(source().messages_dropped(), 1);
  ExpectASessionWorks(2);
}

TEST(HostileWorkers, OfAnotherUserGetNoSecret) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  Handle listening;
  const std::string said = AsStranger(
      [&listening] {
        std::string name;
        listening = *ListenForMemory(&name);
        return name;
      },
      [](const std::string& name) {
        const std::unique_ptr<Sink> sink = *MakeSink(Backend::kMemory, OptionsFor(Backend::kMemory));
        const absl::Status status = sink->Connect(
            1, "worker:1",
            WrapAddress({.role = AddressRole::kSource, .memory = true, .host = ThisHost(), .worker = name}),
            SecretOf(1));
        EXPECT_TRUE(absl::IsPermissionDenied(status)) << status;
        EXPECT_TRUE(absl::StrContains(status.message(), "user 65534")) << status;
      });
  EXPECT_FALSE(said.empty());
}

// ---- What is left of the dead

uint64_t SharedMemoryKibibytes() {
  std::ifstream file("/proc/meminfo");
  for (std::string line; std::getline(file, line);) {
    if (absl::StartsWith(line, "Shmem:")) return std::stoull(line.substr(6));
  }
  return 0;
}

TEST(AKilledConsumer, LeavesNoSharedMemory) {
  constexpr uint64_t kParts = 4, kPartKibibytes = 24 << 10;
  PeerProcess source(true, Backend::kMemory), sink(false, Backend::kMemory);
  ASSERT_TRUE(source.Start()) << source.address;
  ASSERT_TRUE(sink.Start()) << sink.address;
  ASSERT_TRUE(OpenSession(source, sink, 1));
  uint64_t least =
      SharedMemoryKibibytes();  // of the whole machine, where others may give back theirs meanwhile
  sink.Signal(SIGSTOP);
  for (uint64_t i = 1; i <= kParts; ++i) {
    source.Tell(absl::StrCat("send 1 ", i, " ", kPartKibibytes << 10, " 60000"));
  }
  const auto wait_until = [](const std::function<bool()>& condition) {
    const absl::Time deadline = SteadyNow() + absl::Seconds(60);
    while (!condition() && SteadyNow() < deadline) absl::SleepFor(absl::Milliseconds(20));
    return condition();
  };
  ASSERT_TRUE(wait_until([&] {
    const uint64_t now = SharedMemoryKibibytes();
    least = std::min(least, now);
    return now > least + 3 * kPartKibibytes;
  })) << "the parts are not on their way";
  sink.Signal(SIGKILL);
  for (uint64_t i = 1; i <= kParts; ++i) {
    EXPECT_EQ(source.Hear(absl::StrCat("sent ", i)), "UNAVAILABLE");
  }
  EXPECT_TRUE(wait_until([&] { return SharedMemoryKibibytes() < least + kPartKibibytes; }))
      << least << " KiB of shared memory became " << SharedMemoryKibibytes();
}

}  // namespace
}  // namespace evenkeel::transport
