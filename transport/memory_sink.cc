// The receiving side over sealed memory: it gets a descriptor of a part's memory, checks and maps it.
//
// Whole pages of a part take the place of the expected buffer's own pages, if the buffer lies in registered
// memory and begins at a page; otherwise the bytes are copied from the file into the buffer. Both happen on
// the loop's thread, and so does Cancel: once a request is no longer expected, nothing writes to its buffer,
// and no session has to be closed for that.
//
// Locking: the mutex guards `sessions_`; all that is inside a session belongs to the loop's thread.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <map>
#include <unordered_map>

#include "absl/strings/str_cat.h"
#include "core/status.h"
#include "transport/address.h"
#include "transport/deadline.h"
#include "transport/factory.h"
#include "transport/memory_socket.h"
#include "transport/sealed_memory.h"
#include "transport/secret.h"
#include "transport/socket_loop.h"

namespace evenkeel::transport {
namespace {

// A piece that is copied and hashed while it is in the core's cache.
constexpr size_t kPieceBytes = 256 << 10;
// Smaller parts are copied: mapping a page costs more than copying it.
constexpr size_t kMappedBytes = 64 << 10;

struct Expectation {
  std::span<std::byte> buffer;
  Done done;
};

struct SinkSession {
  SessionId id = 0;
  Secret secret{};
  std::string endpoint;  // for messages
  Clock::time_point deadline;
  Handle socket;
  bool ready = false;
  absl::Status failure;  // not OK: dead
  std::map<RequestId, Expectation> expected;
  std::atomic<uint64_t> arrived{0};  // bytes; may be read by any thread
};
using SessionPtr = std::shared_ptr<SinkSession>;

std::string Where(const SinkSession& session) {
  return absl::StrCat("session ", session.id, " with ", session.endpoint);
}

class MemorySink final : public Sink {
 public:
  explicit MemorySink(const Options& options) : options_(options) {}
  ~MemorySink() override;
  absl::Status Start();

  Info info() const override { return {.name = "memory", .detail = "sealed", .is_rdma = false}; }
  std::string address() const override {
    return WrapAddress({.role = AddressRole::kSink, .memory = true, .host = ThisHost()});
  }
  absl::Status Connect(SessionId session, const std::string& endpoint, const std::string& peer_address,
                       const Secret& secret) override;
  void Expect(SessionId session, RequestId request, std::span<std::byte> buffer, Done done) override;
  void Cancel(SessionId session, RequestId request) override;
  void Disconnect(SessionId session) override { EndSessions({session}); }
  absl::Status RegisterMemory(std::span<std::byte> memory) override;
  void UnregisterMemory(std::span<std::byte> memory) override;
  bool replaces_pages(SessionId) const override { return replaces_pages_; }
  uint64_t bytes_received() const override { return bytes_received_; }
  uint64_t bytes_arrived(SessionId session) const override {
    const SessionPtr found = Find(session);
    return found == nullptr ? 0 : found->arrived.load();
  }
  uint64_t messages_dropped() const override { return messages_dropped_; }

 private:
  SessionPtr Find(SessionId session) const ABSL_LOCKS_EXCLUDED(mutex_);
  void Open(const SessionPtr& session);
  void TakeNext(const SessionPtr& session);
  absl::Status TakeMessage(SinkSession& session, const ReceivedMessage& received);
  absl::Status TakePart(SinkSession& session, const MemoryMessage& part, int handle);
  // DataLoss: the hash differs; other errors: the descriptor is not what it must be.
  absl::Status Receive(const MemoryMessage& part, int handle, std::span<std::byte> buffer);
  bool MayReplacePages(std::span<std::byte> buffer) const;
  void Kill(const SessionPtr& session, const absl::Status& status);
  void EndSessions(const std::vector<SessionId>& ids);
  void Finish(Done done, absl::Status status);
  Clock::time_point Tick(Clock::time_point now);

  const Options options_;
  std::atomic<uint64_t> bytes_received_{0};
  std::atomic<uint64_t> messages_dropped_{0};
  std::atomic<bool> replaces_pages_{false};  // memory was registered
  std::unique_ptr<SocketLoop> loop_;
  std::vector<std::span<std::byte>> registered_;  // used by the loop's thread alone

  mutable Mutex mutex_;
  std::unordered_map<SessionId, SessionPtr> sessions_ ABSL_GUARDED_BY(mutex_);
};

absl::Status MemorySink::Start() {
  EVENKEEL_ASSIGN_OR_RETURN(
      loop_, SocketLoop::Start("evenkeel-memory", [this](Clock::time_point now) { return Tick(now); }));
  return absl::OkStatus();
}

MemorySink::~MemorySink() {
  if (loop_ == nullptr) return;
  std::vector<SessionId> ids;
  {
    MutexLock lock(mutex_);
    for (const auto& [id, session] : sessions_) ids.push_back(id);
  }
  EndSessions(ids);
  loop_->Stop();
}

SessionPtr MemorySink::Find(SessionId session) const {
  MutexLock lock(mutex_);
  const auto found = sessions_.find(session);
  return found == sessions_.end() ? nullptr : found->second;
}

absl::Status MemorySink::Connect(SessionId id, const std::string& endpoint, const std::string& peer_address,
                                 const Secret& secret) {
  absl::StatusOr<Address> peer = UnwrapAddress(peer_address);
  if (!peer.ok()) return AddContext(peer.status(), endpoint);
  if (peer->role != AddressRole::kSource || !peer->memory) {
    return absl::InvalidArgumentError(
        absl::StrCat(endpoint, ": the address is not that of a source of sealed memory"));
  }
  if (peer->host != ThisHost()) {
    return absl::FailedPreconditionError(
        absl::StrCat(endpoint,
                     ": the worker is on another machine, where sealed memory cannot be handed over; use "
                     "--transport auto"));
  }
  if (Find(id) != nullptr) {
    return absl::AlreadyExistsError(absl::StrCat("session ", id, " exists already"));
  }
  auto session = std::make_shared<SinkSession>();
  session->id = id;
  session->secret = secret;
  session->endpoint = endpoint;
  session->deadline = DeadlineAfter(options_.connect_timeout);
  absl::StatusOr<Handle> socket = DialForMemory(peer->worker);
  if (!socket.ok()) return AddContext(socket.status(), endpoint);
  // Before the secret is sent: the name might be another user's by now.
  if (absl::Status checked = CheckPeer(socket->get()); !checked.ok()) return AddContext(checked, endpoint);
  session->socket = *std::move(socket);
  absl::StatusOr<bool> greeted = SendMessage(
      session->socket.get(), {.kind = MemoryMessageKind::kHello, .session = id, .secret = secret});
  if (!greeted.ok() || !*greeted) {
    return absl::UnavailableError(absl::StrCat(endpoint, ": the worker closed its Unix socket"));
  }
  {
    MutexLock lock(mutex_);
    if (!sessions_.emplace(id, session).second) {
      return absl::AlreadyExistsError(absl::StrCat("session ", id, " exists already"));
    }
  }
  loop_->Post([this, session] { Open(session); });
  return absl::OkStatus();
}

void MemorySink::Open(const SessionPtr& session) {
  if (!session->failure.ok()) return;
  loop_->Watch(session->socket.get(), [this, session] { TakeNext(session); });
}

void MemorySink::Expect(SessionId id, RequestId request, std::span<std::byte> buffer, Done done) {
  loop_->Post([this, id, request, buffer, done = std::move(done)]() mutable {
    const SessionPtr session = Find(id);
    if (session == nullptr) {
      Finish(std::move(done), absl::UnavailableError(absl::StrCat("unknown session ", id)));
    } else if (buffer.size() > options_.max_message_bytes) {
      Finish(std::move(done), absl::InvalidArgumentError(
                                  absl::StrCat("request ", request, ": longer than max_message_bytes")));
    } else if (!session->failure.ok()) {
      Finish(std::move(done), session->failure);
    } else if (session->expected.contains(request)) {
      Finish(std::move(done), absl::AlreadyExistsError(absl::StrCat(Where(*session), ": request ", request,
                                                                    " is expected already")));
    } else {
      session->expected[request] = {buffer, std::move(done)};
    }
  });
}

// ---- Messages

// One message at a time: before the next one, the loop runs what was posted before that was sent, so that its
// request is expected.
void MemorySink::TakeNext(const SessionPtr& session) {
  absl::StatusOr<std::optional<ReceivedMessage>> received = ReceiveMessage(session->socket.get());
  absl::Status status = received.status();
  if (status.ok() && received->has_value()) status = TakeMessage(*session, **received);
  if (status.ok()) return;
  if (!absl::IsUnavailable(status)) ++messages_dropped_;
  Kill(session, absl::UnavailableError(absl::StrCat(
                    Where(*session), absl::IsUnavailable(status) ? " ended: " : " ended: the worker sent ",
                    status.message())));
}

// An error ends the session.
absl::Status MemorySink::TakeMessage(SinkSession& session, const ReceivedMessage& received) {
  const MemoryMessage& message = received.message;
  if (message.session != session.id || !SameSecret(message.secret, session.secret)) {
    return absl::InvalidArgumentError("a message of another session");
  }
  if (message.kind == MemoryMessageKind::kReady && received.handles.empty()) {
    session.ready = true;
    return absl::OkStatus();
  }
  if (message.kind != MemoryMessageKind::kPart || !session.ready || received.handles.size() != 1) {
    return absl::InvalidArgumentError(absl::StrCat("a message of kind ", static_cast<int>(message.kind),
                                                   " with ", received.handles.size(), " descriptors"));
  }
  EVENKEEL_RETURN_IF_ERROR(TakePart(session, message, received.handles.front().get()));
  // From here on the part is this process's memory. There is room for the answer: the worker waits for the
  // answers to a few parts.
  EVENKEEL_ASSIGN_OR_RETURN(const bool answered,
                            SendMessage(session.socket.get(), {.kind = MemoryMessageKind::kTaken,
                                                               .session = session.id,
                                                               .request = message.request,
                                                               .secret = session.secret}));
  return answered ? absl::OkStatus() : absl::InvalidArgumentError("more parts than it reads answers to");
}

absl::Status MemorySink::TakePart(SinkSession& session, const MemoryMessage& part, int handle) {
  const auto found = session.expected.find(part.request);
  if (found == session.expected.end()) {
    ++messages_dropped_;
    return absl::OkStatus();
  }
  const std::span<std::byte> buffer = found->second.buffer;
  absl::Status status;
  if (part.length != buffer.size()) {
    ++messages_dropped_;
    status = absl::DataLossError(absl::StrCat(Where(session), ": request ", part.request, " brought ",
                                              part.length, " bytes, announced were ", buffer.size()));
  } else {
    status = Receive(part, handle, buffer);
    if (!status.ok() && !absl::IsDataLoss(status)) return status;
    bytes_received_ += buffer.size();
    session.arrived += buffer.size();
  }
  Finish(std::move(found->second.done), std::move(status));
  session.expected.erase(found);
  return absl::OkStatus();
}

bool MemorySink::MayReplacePages(std::span<std::byte> buffer) const {
  return buffer.size() >= kMappedBytes && ReceivedMemory::CanMoveTo(buffer) &&
         std::ranges::any_of(registered_, [&](std::span<std::byte> memory) {
           return buffer.data() >= memory.data() &&
                  buffer.data() + buffer.size() <= memory.data() + memory.size();
         });
}

absl::Status MemorySink::Receive(const MemoryMessage& part, int handle, std::span<std::byte> buffer) {
  EVENKEEL_ASSIGN_OR_RETURN(ReceivedMemory memory, ReceivedMemory::Map(handle, part.length));
  const absl::Status damaged =
      absl::DataLossError(absl::StrCat("request ", part.request, ": ", part.length,
                                       " bytes arrived, but their hash differs from the sender's"));
  if (MayReplacePages(buffer)) {
    // Nobody can change the bytes any more, so what is hashed is what the buffer will have.
    if (DigestOf(memory.bytes()) != part.hash) return damaged;
    memory.MoveTo(buffer);
    return absl::OkStatus();
  }
  Digester digester;
  for (size_t at = 0; at < buffer.size(); at += kPieceBytes) {
    const std::span<const std::byte> piece =
        memory.bytes().subspan(at, std::min(kPieceBytes, buffer.size() - at));
    digester.Update(piece);
    std::copy(piece.begin(), piece.end(), buffer.begin() + static_cast<ptrdiff_t>(at));
  }
  return digester.Finish() == part.hash ? absl::OkStatus() : damaged;
}

// ---- Ends

void MemorySink::Cancel(SessionId id, RequestId request) {
  loop_->Run([&] {
    const SessionPtr session = Find(id);
    if (session == nullptr) return;
    const auto found = session->expected.find(request);
    if (found == session->expected.end()) return;
    Finish(std::move(found->second.done),
           absl::CancelledError(absl::StrCat("request ", request, " was cancelled")));
    session->expected.erase(found);
  });
  loop_->Run([] {});  // `done` has run
}

void MemorySink::Kill(const SessionPtr& session, const absl::Status& status) {
  if (!session->failure.ok()) return;
  session->failure = status;
  for (auto& [request, expectation] : session->expected) Finish(std::move(expectation.done), status);
  session->expected.clear();
  loop_->Unwatch(session->socket.get());
  session->socket = Handle();  // whose end the worker sees
}

void MemorySink::EndSessions(const std::vector<SessionId>& ids) {
  loop_->Run([&] {
    for (const SessionId id : ids) {
      const SessionPtr session = Find(id);
      if (session == nullptr) continue;
      {
        MutexLock lock(mutex_);
        sessions_.erase(id);
      }
      Kill(session, absl::CancelledError(absl::StrCat(Where(*session), " was disconnected")));
    }
  });
  loop_->Run([] {});  // the callbacks that were posted have run
}

void MemorySink::Finish(Done done, absl::Status status) {
  loop_->Post([done = std::move(done), status = std::move(status)] { done(status); });
}

absl::Status MemorySink::RegisterMemory(std::span<std::byte> memory) {
  replaces_pages_ = true;
  loop_->Run([&] { registered_.push_back(memory); });
  return absl::OkStatus();
}

void MemorySink::UnregisterMemory(std::span<std::byte> memory) {
  loop_->Run([&] {
    std::erase_if(registered_, [&](std::span<std::byte> one) { return one.data() == memory.data(); });
  });
}

Clock::time_point MemorySink::Tick(Clock::time_point now) {
  std::vector<SessionPtr> sessions;
  {
    MutexLock lock(mutex_);
    for (const auto& [id, session] : sessions_) sessions.push_back(session);
  }
  Clock::time_point next = Clock::time_point::max();
  for (const SessionPtr& session : sessions) {
    if (session->ready || !session->failure.ok()) continue;
    if (session->deadline > now) {
      next = std::min(next, session->deadline);
      continue;
    }
    Kill(session,
         absl::UnavailableError(absl::StrCat(Where(*session), ": no answer on the data plane within ",
                                             absl::FormatDuration(options_.connect_timeout))));
  }
  return next;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Sink>> MakeMemorySink(const Options& options) {
  EVENKEEL_RETURN_IF_ERROR(RefuseRequiredRdma(options, "memory is for processes of one machine"));
  auto sink = std::make_unique<MemorySink>(options);
  EVENKEEL_RETURN_IF_ERROR(sink->Start());
  return sink;
}

}  // namespace evenkeel::transport
