// One call of Describe at a time over a new channel; with TLS, a bare handshake if the certificate is
// refused.
#include "server/self_test.h"

#include <grpcpp/grpcpp.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "core/handle.h"
#include "core/status.h"
#include "core/steady_time.h"
#include "proto/service.grpc.pb.h"
#include "telemetry/event_log.h"
#include "transport/credentials.h"

namespace evenkeel::server {
namespace {

absl::Status Describe(const std::string& target, const std::shared_ptr<grpc::ChannelCredentials>& credentials,
                      absl::Duration deadline) {
  grpc::ChannelArguments arguments = transport::ClientArguments();
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  const auto stub = pb::Worker::NewStub(grpc::CreateCustomChannel(target, credentials, arguments));
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + absl::ToChronoMilliseconds(deadline));
  pb::DescribeReply reply;
  const grpc::Status status = stub->Describe(&context, pb::DescribeRequest(), &reply);
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
}

absl::Status ErrnoStatus(const char* what) {
  return absl::UnavailableError(absl::StrCat(what, ": ", std::strerror(errno)));
}

absl::StatusOr<Handle> ConnectUnix(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  Handle socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (connect(socket.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) {
    return ErrnoStatus("connect");
  }
  return socket;
}

// Starts to connect; the socket becomes writable when the connection is established.
absl::StatusOr<Handle> Connect(absl::string_view target) {
  if (absl::ConsumePrefix(&target, "unix:")) return ConnectUnix(std::string(target));
  target = target.substr(std::strlen("ipv4:"));
  const size_t colon = target.rfind(':');
  std::string host(target.substr(0, colon));
  if (host.front() == '[') host = host.substr(1, host.size() - 2);
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), std::string(target.substr(colon + 1)).c_str(), &hints, &found) != 0) {
    return absl::InternalError(absl::StrCat("not an address: ", target));
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> address(found, freeaddrinfo);
  Handle socket(::socket(found->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (connect(socket.get(), found->ai_addr, found->ai_addrlen) != 0 && errno != EINPROGRESS) {
    return ErrnoStatus("connect");
  }
  return socket;
}

bool WaitFor(const Handle& socket, short what, absl::Time deadline) {
  pollfd one{socket.get(), what, 0};
  const int64_t left = absl::ToInt64Milliseconds(deadline - SteadyNow());
  return left > 0 && poll(&one, 1, static_cast<int>(left)) == 1;
}

// Sends an empty handshake record. A working server answers with an alert, or closes the connection.
absl::Status BeginHandshake(const std::string& target, absl::Duration timeout) {
  const absl::Time deadline = SteadyNow() + timeout;
  EVENKEEL_ASSIGN_OR_RETURN(const Handle socket, Connect(target));
  if (!WaitFor(socket, POLLOUT, deadline)) return absl::DeadlineExceededError("no connection");
  constexpr char kRecord[] = {22, 3, 1, 0, 4, 1, 0, 0, 0};  // a ClientHello without content
  if (send(socket.get(), kRecord, sizeof(kRecord), MSG_NOSIGNAL) != sizeof(kRecord))
    return ErrnoStatus("send");
  if (!WaitFor(socket, POLLIN, deadline)) return absl::DeadlineExceededError("the handshake is not answered");
  return absl::OkStatus();
}

}  // namespace

SelfTest::SelfTest(Options options) : options_(std::move(options)) {
  thread_ = std::thread([this] { Run(); });
}

SelfTest::~SelfTest() { Stop(); }

void SelfTest::Stop() {
  if (!thread_.joinable()) return;
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    wake_.NotifyAll();
  }
  thread_.join();
}

std::string SelfTest::last_error() const {
  MutexLock lock(mutex_);
  return last_error_;
}

absl::Status SelfTest::Test() const {
  const absl::Status described = Describe(options_.target, options_.credentials, options_.deadline);
  if (!options_.tls || !absl::IsUnavailable(described)) return described;
  if (const absl::Status begun = BeginHandshake(options_.target, options_.deadline); !begun.ok())
    return begun;
  telemetry::LogEvent(telemetry::LogLevel::kDebug, "self_test_without_certificate",
                      {{"message", std::string(described.message())}});
  return absl::OkStatus();
}

void SelfTest::Run() {
  for (;;) {
    {
      MutexLock lock(mutex_);
      const absl::Time due = SteadyNow() + options_.interval;
      while (!stopping_ && wake_.WaitUntil(mutex_, due)) continue;
      if (stopping_) return;
    }
    const absl::Status tested = Test();
    if (tested.ok()) {
      failures_ = 0;
      continue;
    }
    telemetry::LogEvent(
        telemetry::LogLevel::kError, "self_test_failed",
        {{"failures", failures_ + 1}, {"target", options_.target}, {"message", tested.ToString()}});
    MutexLock lock(mutex_);
    last_error_ = tested.ToString();
    ++total_;
    ++failures_;
  }
}

}  // namespace evenkeel::server
