// The receiving side over UCX.
//
// A session has a worker of its own here. It connects to the source and sends a greeting with the session's
// id (kHello); the source answers on the same connection (kReady). A worker with one peer has one pair of
// endpoints, so closing the endpoint made here ends every receive of this session and of no other.
//
// Locking: the mutex guards `sessions_` and `announced_`; all that is inside a session belongs to the
// engine's thread.
#include <atomic>
#include <cstring>
#include <map>
#include <unordered_map>

#include "core/status.h"
#include "transport/copy.h"
#include "transport/factory.h"
#include "transport/latch.h"
#include "transport/secret.h"
#include "transport/ucx_engine.h"
#include "transport/ucx_message.h"

namespace evenkeel::transport {
namespace {

class UcxSink;

// Pause before a greeting is repeated because its connection was not ready.
constexpr auto kGreetAgain = std::chrono::milliseconds(2);

// Parts of this size and more leave the caches before they are read, so they are copied past them.
constexpr size_t kLargePartBytes = 1 << 20;

// The memory for one request's bytes, and how much of it has arrived.
struct Expectation {
  RequestId request = 0;
  std::span<std::byte> buffer;
  Done done;
  Digest hash;                                  // the sender's, of the whole part
  size_t received = 0;                          // bytes of messages (TCP); rendezvous does not count here
  Digester digester;                            // of those bytes
  bool receiving = false;                       // UCX writes into `buffer`
  absl::Status fate;                            // not OK: replaces the receive's own status
  std::vector<Latch*> waiting;                  // counted down after `done` ran
  std::shared_ptr<struct SinkSession> session;  // while receiving, for the completion callback
};

struct SinkSession final : UcxEvents, std::enable_shared_from_this<SinkSession> {
  enum class State { kOpening, kGreeted, kReady, kDead };

  UcxSink* sink = nullptr;
  SessionId id = 0;
  Secret secret{};
  std::string endpoint;  // for messages
  Address peer;
  State state = State::kOpening;
  absl::Status failure;
  Clock::time_point deadline;
  std::unique_ptr<UcxWorker> worker;
  ucp_ep_h data = nullptr;  // on `worker`, to the source
  GreetingBytes greeting{};
  std::string own_address;
  bool greeting_due = false;  // the greeting could not be sent yet
  std::map<RequestId, std::unique_ptr<Expectation>> expected;
  std::atomic<uint64_t> arrived{0};  // bytes; may be read by any thread

  ucs_status_t OnMessage(unsigned id, std::span<const std::byte> header, void* data, size_t length,
                         bool rendezvous) override;
  void OnEndpointError(ucp_ep_h endpoint, ucs_status_t status) override;
};
using SessionPtr = std::shared_ptr<SinkSession>;

class UcxSink final : public Sink {
 public:
  explicit UcxSink(const Options& options) : options_(options) {}
  ~UcxSink() override;
  absl::Status Start();

  Info info() const override { return engine_->info(); }
  std::string address() const override { return engine_->WrappedAddress(); }
  absl::Status Connect(SessionId session, const std::string& endpoint, const std::string& peer_address,
                       const Secret& secret) override;
  void Expect(SessionId session, RequestId request, std::span<std::byte> buffer, Done done) override;
  void Cancel(SessionId session, RequestId request) override;
  void Disconnect(SessionId session) override;
  absl::Status RegisterMemory(std::span<std::byte> memory) override;
  void UnregisterMemory(std::span<std::byte> memory) override;
  uint64_t bytes_received() const override { return bytes_received_; }
  uint64_t bytes_arrived(SessionId session) const override {
    SessionPtr found = Find(session);
    return found == nullptr ? 0 : found->arrived.load();
  }
  uint64_t messages_dropped() const override { return messages_dropped_; }
  uint64_t buffers_abandoned() const override { return buffers_abandoned_; }

 private:
  friend struct SinkSession;
  struct Announcement {
    SessionId session;
    std::unique_ptr<Expectation> expectation;
  };

  SessionPtr Find(SessionId session) const ABSL_LOCKS_EXCLUDED(mutex_);
  ucs_status_t Drop() {
    ++messages_dropped_;
    return UCS_OK;
  }
  Clock::time_point Tick(Clock::time_point now);
  void Open(const SessionPtr& session);
  absl::Status Greet(const SessionPtr& session);
  absl::Status SendGreeting(const SessionPtr& session);
  void TakeAnnounced() ABSL_LOCKS_EXCLUDED(mutex_);
  void Kill(const SessionPtr& session, const absl::Status& status);
  void AbandonReceives(const SessionPtr& session);
  // Ends the sessions and all their requests, and waits until `done` of each has run.
  void EndSessions(const std::vector<SessionId>& ids);
  void Fail(const SessionPtr& session, absl::Status status);
  // Runs `done` from a task, and destroys it there unless its buffer was abandoned.
  void Finish(std::shared_ptr<Expectation> expectation, absl::Status status, bool abandoned = false);
  ucs_status_t OnReady(const SessionPtr& session, std::span<const std::byte> header);
  ucs_status_t OnBye(const SessionPtr& session, std::span<const std::byte> header);
  ucs_status_t OnPart(const SessionPtr& session, std::span<const std::byte> header, void* data, size_t length,
                      bool rendezvous);
  ucs_status_t Mismatch(const SessionPtr& session, const PartMessage& message, size_t length);
  ucs_status_t Take(const SessionPtr& session, Expectation* expectation, std::span<const std::byte> data);
  ucs_status_t Receive(const SessionPtr& session, Expectation* expectation, void* descriptor);
  static void Received(void* argument, ucs_status_t status);
  void Settle(Expectation* expectation, const absl::Status& status);

  const Options options_;
  std::unique_ptr<UcxEngine> engine_;
  std::atomic<uint64_t> bytes_received_{0};
  std::atomic<uint64_t> messages_dropped_{0};
  std::atomic<uint64_t> buffers_abandoned_{0};

  mutable Mutex mutex_;
  std::unordered_map<SessionId, SessionPtr> sessions_ ABSL_GUARDED_BY(mutex_);
  std::vector<Announcement> announced_ ABSL_GUARDED_BY(mutex_);
};

std::string Where(const SinkSession& session) {
  return absl::StrCat("session ", session.id, " with ", session.endpoint);
}

ucs_status_t SinkSession::OnMessage(unsigned message, std::span<const std::byte> header, void* data,
                                    size_t length, bool rendezvous) {
  SessionPtr self = shared_from_this();
  switch (static_cast<MessageId>(message)) {
    case MessageId::kReady:
      return sink->OnReady(self, header);
    case MessageId::kPart:
      return sink->OnPart(self, header, data, length, rendezvous);
    case MessageId::kBye:
      return sink->OnBye(self, header);
    default:
      return sink->Drop();
  }
}

void SinkSession::OnEndpointError(ucp_ep_h, ucs_status_t status) {
  sink->Fail(shared_from_this(), StatusFromUcx(status, Where(*this)));
}

absl::Status UcxSink::Start() {
  EVENKEEL_ASSIGN_OR_RETURN(engine_, UcxEngine::Start(options_, UcxEngine::Role::kReceives, nullptr,
                                                      [this](Clock::time_point now) { return Tick(now); }));
  return absl::OkStatus();
}

UcxSink::~UcxSink() {
  if (engine_ == nullptr) return;
  std::vector<SessionId> ids;
  {
    MutexLock lock(mutex_);
    for (const auto& [id, session] : sessions_) ids.push_back(id);
  }
  EndSessions(ids);
  engine_->Run([this] { TakeAnnounced(); });
  engine_->Run([] {});  // waits for the callbacks that the last task posted
  engine_.reset();
}

SessionPtr UcxSink::Find(SessionId session) const {
  MutexLock lock(mutex_);
  auto found = sessions_.find(session);
  return found == sessions_.end() ? nullptr : found->second;
}

absl::Status UcxSink::Connect(SessionId id, const std::string& endpoint, const std::string& peer_address,
                              const Secret& secret) {
  auto session = std::make_shared<SinkSession>();
  absl::StatusOr<Address> peer = UnwrapAddress(peer_address);
  if (!peer.ok()) return AddContext(peer.status(), endpoint);
  if (peer->role != AddressRole::kSource || peer->memory || peer->worker.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(endpoint, ": the address is not that of a UCX source"));
  }
  if (!peer->rdma && !options_.trusted_network) {
    return absl::FailedPreconditionError(
        absl::StrCat(endpoint,
                     ": the worker's UCX uses TCP, which needs --trusted-data-network (Python: "
                     "trusted_data_network=True) here too; or use --transport grpc"));
  }
  session->sink = this;
  session->id = id;
  session->secret = secret;
  session->endpoint = endpoint;
  session->peer = *std::move(peer);
  session->deadline = DeadlineAfter(options_.connect_timeout);
  {
    MutexLock lock(mutex_);
    if (!sessions_.emplace(id, session).second) {
      return absl::AlreadyExistsError(absl::StrCat("session ", id, " exists already"));
    }
  }
  engine_->Post([this, session] { Open(session); });
  return absl::OkStatus();
}

void UcxSink::Open(const SessionPtr& session) {
  if (session->state != SinkSession::State::kOpening) return;
  absl::Status status = Greet(session);
  if (!status.ok())
    Kill(session, absl::UnavailableError(absl::StrCat(Where(*session), ": ", status.message())));
}

absl::Status UcxSink::Greet(const SessionPtr& session) {
  EVENKEEL_ASSIGN_OR_RETURN(session->worker, engine_->OpenSessionWorker(session.get()));
  EVENKEEL_ASSIGN_OR_RETURN(session->own_address,
                            engine_->WrapWorkerAddress(AddressRole::kSession, *session->worker));
  EVENKEEL_ASSIGN_OR_RETURN(session->data, session->worker->Connect(session->peer.worker));
  session->greeting = Pack(Greeting{session->id, session->secret});
  session->state = SinkSession::State::kGreeted;
  return SendGreeting(session);
}

absl::Status UcxSink::SendGreeting(const SessionPtr& session) {
  EVENKEEL_ASSIGN_OR_RETURN(bool sent, engine_->Greet(*session->worker, session->data, MessageId::kHello,
                                                      session->greeting, session->own_address));
  session->greeting_due = !sent;
  return absl::OkStatus();
}

ucs_status_t UcxSink::OnReady(const SessionPtr& session, std::span<const std::byte> header) {
  std::optional<Greeting> greeting = UnpackGreeting(header);
  if (!greeting || greeting->session != session->id || !SameSecret(greeting->secret, session->secret) ||
      session->state != SinkSession::State::kGreeted) {
    return Drop();
  }
  session->state = SinkSession::State::kReady;
  return UCS_OK;
}

ucs_status_t UcxSink::OnBye(const SessionPtr& session, std::span<const std::byte> header) {
  std::optional<Greeting> greeting = UnpackGreeting(header);
  if (!greeting || greeting->session != session->id || !SameSecret(greeting->secret, session->secret)) {
    return Drop();
  }
  Fail(session, absl::UnavailableError(absl::StrCat(Where(*session), ": the worker ended it")));
  return UCS_OK;
}

void UcxSink::Expect(SessionId session, RequestId request, std::span<std::byte> buffer, Done done) {
  auto expectation = std::make_unique<Expectation>();
  expectation->request = request;
  expectation->buffer = buffer;
  expectation->done = std::move(done);
  {
    MutexLock lock(mutex_);
    announced_.push_back({session, std::move(expectation)});
  }
  engine_->Post([this] { TakeAnnounced(); });
}

// Moves announcements into their sessions. Also called when a part arrives that is not expected: its
// announcement may be newer than the tasks of this round.
void UcxSink::TakeAnnounced() {
  std::vector<Announcement> announced;
  {
    MutexLock lock(mutex_);
    announced.swap(announced_);
  }
  for (Announcement& one : announced) {
    SessionPtr session = Find(one.session);
    RequestId request = one.expectation->request;
    if (session == nullptr) {
      Finish(std::move(one.expectation),
             absl::UnavailableError(absl::StrCat("unknown session ", one.session)));
    } else if (session->state == SinkSession::State::kDead) {
      Finish(std::move(one.expectation), session->failure);
    } else if (one.expectation->buffer.size() > options_.max_message_bytes) {
      Finish(std::move(one.expectation), absl::InvalidArgumentError(absl::StrCat(
                                             "request ", request, ": longer than max_message_bytes")));
    } else if (session->expected.contains(request)) {
      Finish(std::move(one.expectation),
             absl::AlreadyExistsError(
                 absl::StrCat(Where(*session), ": request ", request, " is expected already")));
    } else {
      session->expected.emplace(request, std::move(one.expectation));
    }
  }
}

ucs_status_t UcxSink::OnPart(const SessionPtr& session, std::span<const std::byte> header, void* data,
                             size_t length, bool rendezvous) {
  std::optional<PartMessage> message = UnpackPartMessage(header);
  if (!message || message->session != session->id || !SameSecret(message->secret, session->secret) ||
      session->state == SinkSession::State::kDead) {
    return Drop();
  }
  session->state =
      SinkSession::State::kReady;  // a part with the secret implies kReady, which may arrive later
  auto found = session->expected.find(message->request);
  if (found == session->expected.end()) {
    TakeAnnounced();
    found = session->expected.find(message->request);
  }
  // A dropped part counts once: its later messages are dropped without being counted.
  if (found == session->expected.end()) return message->offset == 0 ? Drop() : UCS_OK;
  Expectation* expectation = found->second.get();
  if (expectation->receiving) return Drop();
  if (message->length != expectation->buffer.size() || message->offset != expectation->received ||
      length > message->length - message->offset || (rendezvous && length != message->length)) {
    return Mismatch(session, *message, length);
  }
  expectation->hash = message->hash;
  if (rendezvous) return Receive(session, expectation, data);
  return Take(session, expectation, {static_cast<const std::byte*>(data), length});
}

ucs_status_t UcxSink::Mismatch(const SessionPtr& session, const PartMessage& message, size_t length) {
  auto found = session->expected.find(message.request);
  Finish(std::move(found->second),
         absl::DataLossError(absl::StrCat(Where(*session), ": request ", message.request, " brought ", length,
                                          " bytes of ", message.length, " from offset ", message.offset,
                                          ", which does not continue the announced part")));
  session->expected.erase(found);
  return Drop();
}

// Copies a message's data out of UCX's buffer. They are in this core's cache, so they are hashed at once.
ucs_status_t UcxSink::Take(const SessionPtr& session, Expectation* expectation,
                           std::span<const std::byte> data) {
  expectation->digester.Update(data);
  std::span<std::byte> to = expectation->buffer.subspan(expectation->received, data.size());
  if (expectation->buffer.size() >= kLargePartBytes) {
    CopyPastCaches(to, data);
  } else if (!data.empty()) {
    std::memcpy(to.data(), data.data(), data.size());
  }
  expectation->received += data.size();
  session->arrived += data.size();
  if (expectation->received == expectation->buffer.size()) {
    expectation->session = session;
    Settle(expectation, absl::OkStatus());
  }
  return UCS_OK;
}

ucs_status_t UcxSink::Receive(const SessionPtr& session, Expectation* expectation, void* descriptor) {
  expectation->receiving = true;
  expectation->session = session;
  absl::StatusOr<bool> started =
      session->worker->Receive(descriptor, expectation->buffer, Received, expectation);
  if (!started.ok()) {
    Settle(expectation, started.status());
  } else if (!*started) {
    Settle(expectation, absl::OkStatus());
  }
  // By this status UCX keeps the descriptor until the receive completes.
  return UCS_INPROGRESS;
}

void UcxSink::Received(void* argument, ucs_status_t status) {
  auto* expectation = static_cast<Expectation*>(argument);
  expectation->session->sink->Settle(expectation, StatusFromUcx(status, Where(*expectation->session)));
}

// The transport no longer uses the buffer: removes the expectation and posts `done`.
void UcxSink::Settle(Expectation* expectation, const absl::Status& status) {
  SessionPtr session = std::move(expectation->session);
  auto found = session->expected.find(expectation->request);
  std::unique_ptr<Expectation> owned = std::move(found->second);
  session->expected.erase(found);
  // A cancelled request reports its cancellation, also if its last bytes arrived in time.
  if (!owned->fate.ok()) {
    absl::Status fate = owned->fate;
    return Finish(std::move(owned), std::move(fate));
  }
  if (!status.ok()) {
    Fail(session, status);
    return Finish(std::move(owned), absl::UnavailableError(status.message()));
  }
  bytes_received_ += owned->buffer.size();
  session->arrived += owned->buffer.size() - owned->received;
  Finish(std::move(owned), absl::OkStatus());
}

// Hashes data that came by rendezvous. This runs on the engine's thread but outside of UCX's callback, so
// that a card goes on writing other parts meanwhile.
bool HasItsHash(Expectation& expectation) {
  expectation.digester.Update(expectation.buffer.subspan(expectation.received));
  return expectation.digester.Finish() == expectation.hash;
}

void UcxSink::Finish(std::shared_ptr<Expectation> shared, absl::Status status, bool abandoned) {
  engine_->Post([shared = std::move(shared), status = std::move(status), abandoned]() mutable {
    if (status.ok() && !HasItsHash(*shared)) {
      status = absl::DataLossError(absl::StrCat("request ", shared->request, ": ", shared->buffer.size(),
                                                " bytes arrived, but their hash differs from the sender's"));
    }
    shared->done(std::move(status));
    if (!abandoned) shared->done = nullptr;
    for (Latch* latch : shared->waiting) latch->CountDown();
  });
}

void UcxSink::Fail(const SessionPtr& session, absl::Status status) {
  engine_->Post([this, session, status = std::move(status)] {
    Kill(session, absl::UnavailableError(status.message()));
  });
}

void UcxSink::Kill(const SessionPtr& session, const absl::Status& status) {
  if (session->state == SinkSession::State::kDead) return;
  session->state = SinkSession::State::kDead;
  session->failure = status;
  // Receives in flight end with their completion, in a later round.
  const bool completions_come = session->worker != nullptr;
  if (completions_come) {
    engine_->Retire(std::move(session->worker), [this, session] { AbandonReceives(session); });
  }
  for (auto next = session->expected.begin(); next != session->expected.end();) {
    auto current = next++;
    Expectation* expectation = current->second.get();
    if (expectation->fate.ok()) expectation->fate = status;
    if (expectation->receiving && completions_come) continue;
    absl::Status fate = expectation->fate;
    Finish(std::move(current->second), std::move(fate));
    session->expected.erase(current);
  }
}

// The remaining expectations are those whose receives UCX did not complete.
void UcxSink::AbandonReceives(const SessionPtr& session) {
  for (auto& [request, expectation] : session->expected) {
    ++buffers_abandoned_;
    std::shared_ptr<Expectation> kept = std::move(expectation);
    KeepForever(kept);
    absl::Status fate = kept->fate;
    Finish(std::move(kept), std::move(fate), /*abandoned=*/true);
  }
  session->expected.clear();
}

void UcxSink::Cancel(SessionId id, RequestId request) {
  Latch latch;
  engine_->Post([&, this] {
    TakeAnnounced();
    SessionPtr session = Find(id);
    auto found =
        session == nullptr ? decltype(session->expected)::iterator() : session->expected.find(request);
    if (session == nullptr || found == session->expected.end()) return latch.CountDown();
    found->second->waiting.push_back(&latch);
    found->second->fate = absl::CancelledError(absl::StrCat("request ", request, " was cancelled"));
    if (found->second->receiving || found->second->received > 0) {
      return Kill(session,
                  absl::UnavailableError(absl::StrCat(Where(*session), " was closed: request ", request,
                                                      " was cancelled while its bytes were arriving")));
    }
    absl::Status fate = found->second->fate;
    Finish(std::move(found->second), std::move(fate));
    session->expected.erase(found);
  });
  latch.Wait();
  engine_->Run([] {});  // a `done` that was posted before has run, too
}

void UcxSink::Disconnect(SessionId id) { EndSessions({id}); }

// All sessions are ended first and waited for together, so that several stuck ones take no longer than one.
void UcxSink::EndSessions(const std::vector<SessionId>& ids) {
  Latch latch;
  engine_->Post([&, this] {
    TakeAnnounced();
    for (SessionId id : ids) {
      SessionPtr session = Find(id);
      if (session == nullptr) continue;
      {
        MutexLock lock(mutex_);
        sessions_.erase(id);
      }
      latch.Expect(session->expected.size());
      for (auto& [request, expectation] : session->expected) expectation->waiting.push_back(&latch);
      Kill(session, absl::CancelledError(absl::StrCat(Where(*session), " was disconnected")));
    }
    latch.CountDown();
  });
  latch.Wait();
  engine_->Run([] {});
}

Clock::time_point UcxSink::Tick(Clock::time_point now) {
  Clock::time_point next = Clock::time_point::max();
  std::vector<SessionPtr> sessions;
  {
    MutexLock lock(mutex_);
    for (auto& [id, session] : sessions_) sessions.push_back(session);
  }
  for (const SessionPtr& session : sessions) {
    bool opening =
        session->state == SinkSession::State::kOpening || session->state == SinkSession::State::kGreeted;
    if (opening && session->deadline <= now) {
      Kill(session, absl::UnavailableError(
                        absl::StrCat(Where(*session), ": no answer on the data plane within ",
                                     absl::FormatDuration(options_.connect_timeout),
                                     engine_->rdma_hint().empty() ? "" : " over ", engine_->rdma_hint())));
    }
    if (session->state == SinkSession::State::kDead) continue;
    if (opening) next = std::min(next, session->deadline);
    if (!session->greeting_due) continue;
    absl::Status sent = SendGreeting(session);
    if (!sent.ok()) Kill(session, AddContext(sent, Where(*session)));
    if (session->greeting_due) next = std::min(next, now + kGreetAgain);
  }
  return next;
}

absl::Status UcxSink::RegisterMemory(std::span<std::byte> memory) {
  absl::Status status;
  engine_->Run([&] { status = engine_->RegisterMemory(memory); });
  return status;
}

void UcxSink::UnregisterMemory(std::span<std::byte> memory) {
  engine_->Run([&] { engine_->UnregisterMemory(memory); });
}

}  // namespace

absl::StatusOr<std::unique_ptr<Sink>> MakeUcxSink(const Options& options) {
  auto sink = std::make_unique<UcxSink>(options);
  EVENKEEL_RETURN_IF_ERROR(sink->Start());
  return sink;
}

}  // namespace evenkeel::transport
