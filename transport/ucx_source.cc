// The sending side over UCX. See ucx_sink.cc for how a session begins.
//
// Who protects what: `sessions_` the mutex; everything inside a session the engine's thread.
#include <atomic>
#include <deque>
#include <list>
#include <unordered_map>

#include "core/status.h"
#include "transport/factory.h"
#include "transport/latch.h"
#include "transport/secret.h"
#include "transport/ucx_engine.h"
#include "transport/ucx_message.h"

namespace evenkeel::transport {
namespace {

// Parts of one session that share the wire by rendezvous. More would only make all of them late together. In
// chunks parts go one after the other.
constexpr size_t kMaxInFlight = 4;
// Below, one message; above, the receiver is told first and fetches into its own memory.
constexpr size_t kRendezvousBytes = 16 << 10;
// Messages of one session before it is another's turn: a few milliseconds' worth.
constexpr int kSendBurst = 16;

// How soon a greeting is tried again whose connection was not ready.
constexpr auto kGreetAgain = std::chrono::milliseconds(2);

class UcxSource;

struct PendingSend {
  PartMessage message;  // `offset`: of the next message's data
  std::span<const std::byte> bytes;
  PartMessageBytes header{};  // while under way
  bool under_way = false;     // UCX holds `header` and `bytes`
  Clock::time_point deadline;
  Done done;
  absl::Status fate;                              // not OK: what to say instead of the send's own end
  std::shared_ptr<struct SourceSession> session;  // while in flight
};

struct SourceSession : UcxEvents, std::enable_shared_from_this<SourceSession> {
  enum class State { kWaitingForHello, kAnswering, kReady, kDead };

  UcxSource* source = nullptr;
  SessionId id = 0;
  Secret secret{};
  State state = State::kWaitingForHello;
  absl::Status failure;
  Clock::time_point deadline;
  std::unique_ptr<UcxWorker> worker;
  ucp_ep_h endpoint = nullptr;
  GreetingBytes greeting{};
  std::string own_address;
  bool greeting_due = false;  // kReady could not be sent yet
  bool pump_due = false;      // a task that pumps is posted
  std::deque<std::unique_ptr<PendingSend>> queue;
  std::list<std::unique_ptr<PendingSend>> in_flight;
  std::vector<Latch*> waiting;  // until nothing is in flight

  ucs_status_t OnMessage(unsigned id, std::span<const std::byte> header, void* data, size_t length,
                         bool rendezvous) override;
  void OnEndpointError(ucp_ep_h endpoint, ucs_status_t status) override;
};
using SessionPtr = std::shared_ptr<SourceSession>;

class UcxSource final : public Source, public UcxEvents {
 public:
  explicit UcxSource(const Options& options) : options_(options) {}
  ~UcxSource() override;
  absl::Status Start();

  Info info() const override { return engine_->info(); }
  std::string address() const override { return engine_->WrappedAddress(AddressRole::kSource); }
  absl::Status Connect(SessionId session, const std::string& peer_address, const Secret& secret) override;
  void Send(SessionId session, RequestId request, std::span<const std::byte> bytes, const Digest& hash,
            absl::Duration timeout, Done done) override;
  void Disconnect(SessionId session) override;
  uint64_t messages_dropped() const override { return messages_dropped_; }
  uint64_t buffers_abandoned() const override { return buffers_abandoned_; }

  // The main worker: greetings.
  ucs_status_t OnMessage(unsigned id, std::span<const std::byte> header, void* data, size_t length,
                         bool rendezvous) override;
  void OnEndpointError(ucp_ep_h, ucs_status_t) override {}

 private:
  friend struct SourceSession;

  SessionPtr Find(SessionId session) ABSL_LOCKS_EXCLUDED(mutex_);
  ucs_status_t Drop() {
    ++messages_dropped_;
    return UCS_OK;
  }
  Clock::time_point Tick(Clock::time_point now);
  void Answer(const SessionPtr& session, const Address& peer);
  absl::Status TryAnswer(const SessionPtr& session, const Address& peer);
  absl::Status SendGreeting(const SessionPtr& session);
  ucs_status_t OnGo(const SessionPtr& session, std::span<const std::byte> header);
  void Enqueue(SessionId id, std::unique_ptr<PendingSend> send);
  void PumpSoon(const SessionPtr& session);
  void Pump(const SessionPtr& session);
  PendingSend* NextToSend(const SessionPtr& session);
  bool SendMessage(PendingSend* send);
  bool SendChunk(PendingSend* send);
  static void Sent(void* argument, ucs_status_t status);
  void Settle(PendingSend* send, const absl::Status& status);
  void ReleaseWaiting(const SessionPtr& session);
  void Kill(const SessionPtr& session, const absl::Status& status);
  void AbandonSends(const SessionPtr& session);
  // Ends what is sent to the sessions and waits for it.
  void EndSessions(const std::vector<SessionId>& ids);
  // Runs `done` from a task of its own, and destroys it there unless its bytes were abandoned.
  void Finish(std::shared_ptr<PendingSend> send, absl::Status status, bool abandoned = false);

  const Options options_;
  std::unique_ptr<UcxEngine> engine_;
  std::atomic<uint64_t> messages_dropped_{0};
  std::atomic<uint64_t> buffers_abandoned_{0};

  Mutex mutex_;
  std::unordered_map<SessionId, SessionPtr> sessions_ ABSL_GUARDED_BY(mutex_);
};

std::string Where(const SourceSession& session) { return absl::StrCat("session ", session.id); }

ucs_status_t SourceSession::OnMessage(unsigned message, std::span<const std::byte> header, void*, size_t,
                                      bool) {
  if (static_cast<MessageId>(message) != MessageId::kGo) return source->Drop();
  return source->OnGo(shared_from_this(), header);
}

void SourceSession::OnEndpointError(ucp_ep_h, ucs_status_t status) {
  absl::Status failure = absl::UnavailableError(
      absl::StrCat(Where(*this), ": the consumer is gone: ", ucs_status_string(status)));
  source->engine_->Post([self = shared_from_this(), failure] { self->source->Kill(self, failure); });
}

absl::Status UcxSource::Start() {
  EVENKEEL_ASSIGN_OR_RETURN(engine_, UcxEngine::Start(options_, UcxEngine::Role::kSends, this,
                                                      [this](Clock::time_point now) { return Tick(now); }));
  return absl::OkStatus();
}

UcxSource::~UcxSource() {
  if (engine_ == nullptr) return;
  std::vector<SessionId> ids;
  {
    MutexLock lock(mutex_);
    for (const auto& [id, session] : sessions_) ids.push_back(id);
  }
  EndSessions(ids);
  engine_->Run([] {});
  engine_.reset();
}

SessionPtr UcxSource::Find(SessionId session) {
  MutexLock lock(mutex_);
  auto found = sessions_.find(session);
  return found == sessions_.end() ? nullptr : found->second;
}

absl::Status UcxSource::Connect(SessionId id, const std::string& peer_address, const Secret& secret) {
  EVENKEEL_ASSIGN_OR_RETURN(Address peer, UnwrapAddress(peer_address));
  if (peer.role != AddressRole::kSink) return absl::InvalidArgumentError("not the address of a sink");
  if (peer.shared_memory != options_.shared_memory) {
    return absl::FailedPreconditionError(
        absl::StrCat("shared_memory is ", peer.shared_memory ? "on" : "off", " at the consumer and ",
                     options_.shared_memory ? "on" : "off", " here; set it alike on both sides"));
  }
  auto session = std::make_shared<SourceSession>();
  session->source = this;
  session->id = id;
  session->secret = secret;
  session->deadline = DeadlineAfter(options_.connect_timeout);
  {
    MutexLock lock(mutex_);
    if (!sessions_.emplace(id, session).second) {
      return absl::AlreadyExistsError(absl::StrCat("session ", id, " exists already"));
    }
  }
  engine_->Post([] {});  // the deadline is new
  return absl::OkStatus();
}

ucs_status_t UcxSource::OnMessage(unsigned message, std::span<const std::byte> header, void* data,
                                  size_t length, bool rendezvous) {
  if (static_cast<MessageId>(message) != MessageId::kHello || rendezvous || length > kMaxAddressBytes)
    return Drop();
  std::optional<Greeting> greeting = UnpackGreeting(header);
  absl::StatusOr<Address> peer = UnwrapAddress({static_cast<const char*>(data), length});
  if (!greeting || !peer.ok() || peer->role != AddressRole::kSession) return Drop();
  SessionPtr session = Find(greeting->session);
  if (session == nullptr || !SameSecret(greeting->secret, session->secret) ||
      session->state != SourceSession::State::kWaitingForHello ||
      peer->shared_memory != options_.shared_memory) {
    return Drop();
  }
  session->state = SourceSession::State::kAnswering;
  engine_->Post([this, session, peer = *std::move(peer)] { Answer(session, peer); });
  return UCS_OK;
}

void UcxSource::Answer(const SessionPtr& session, const Address& peer) {
  if (session->state != SourceSession::State::kAnswering) return;
  absl::Status status = TryAnswer(session, peer);
  if (!status.ok())
    Kill(session, absl::UnavailableError(absl::StrCat(Where(*session), ": ", status.message())));
}

absl::Status UcxSource::TryAnswer(const SessionPtr& session, const Address& peer) {
  EVENKEEL_ASSIGN_OR_RETURN(session->worker, engine_->OpenSessionWorker(session.get()));
  EVENKEEL_ASSIGN_OR_RETURN(session->own_address, engine_->WrapSessionAddress(*session->worker));
  EVENKEEL_ASSIGN_OR_RETURN(session->endpoint, session->worker->Connect(peer.worker));
  session->greeting = Pack(Greeting{session->id, session->secret});
  return SendGreeting(session);
}

absl::Status UcxSource::SendGreeting(const SessionPtr& session) {
  EVENKEEL_ASSIGN_OR_RETURN(bool sent, engine_->Greet(*session->worker, session->endpoint, MessageId::kReady,
                                                      session->greeting, session->own_address));
  session->greeting_due = !sent;
  return absl::OkStatus();
}

ucs_status_t UcxSource::OnGo(const SessionPtr& session, std::span<const std::byte> header) {
  std::optional<Greeting> greeting = UnpackGreeting(header);
  if (!greeting || greeting->session != session->id || !SameSecret(greeting->secret, session->secret) ||
      session->state != SourceSession::State::kAnswering) {
    return Drop();
  }
  session->state = SourceSession::State::kReady;
  PumpSoon(session);
  return UCS_OK;
}

void UcxSource::Send(SessionId session, RequestId request, std::span<const std::byte> bytes,
                     const Digest& hash, absl::Duration timeout, Done done) {
  auto send = std::make_shared<std::unique_ptr<PendingSend>>(std::make_unique<PendingSend>());
  PendingSend& one = **send;
  one.message = {.session = session, .request = request, .length = bytes.size(), .hash = hash};
  one.bytes = bytes;
  one.deadline = DeadlineAfter(timeout);
  one.done = std::move(done);
  engine_->Post([this, session, send] { Enqueue(session, std::move(*send)); });
}

void UcxSource::Enqueue(SessionId id, std::unique_ptr<PendingSend> send) {
  SessionPtr session = Find(id);
  if (session == nullptr) {
    return Finish(std::move(send), absl::UnavailableError(absl::StrCat("unknown session ", id)));
  }
  if (session->state == SourceSession::State::kDead) return Finish(std::move(send), session->failure);
  if (send->bytes.size() > options_.max_message_bytes) {
    std::string message = absl::StrCat("request ", send->message.request, ": ", send->bytes.size(),
                                       " bytes are more than max_message_bytes");
    return Finish(std::move(send), absl::InvalidArgumentError(message));
  }
  send->message.secret = session->secret;
  session->queue.push_back(std::move(send));
  PumpSoon(session);
}

void UcxSource::PumpSoon(const SessionPtr& session) {
  if (std::exchange(session->pump_due, true)) return;
  engine_->Post([this, session] {
    session->pump_due = false;
    Pump(session);
  });
}

void UcxSource::Pump(const SessionPtr& session) {
  for (int i = 0; i < kSendBurst; ++i) {
    PendingSend* send = NextToSend(session);
    if (send == nullptr) return;
    if (!(engine_->sends_chunks() ? SendChunk(send) : SendMessage(send))) return;
  }
  PumpSoon(session);
}

PendingSend* UcxSource::NextToSend(const SessionPtr& session) {
  if (session->state != SourceSession::State::kReady) return nullptr;
  if (!session->in_flight.empty() && !session->in_flight.back()->under_way) {
    return session->in_flight.back().get();  // between two of its messages
  }
  size_t room = engine_->sends_chunks() ? 1 : kMaxInFlight;
  if (session->in_flight.size() >= room || session->queue.empty()) return nullptr;
  session->in_flight.push_back(std::move(session->queue.front()));
  session->queue.pop_front();
  session->in_flight.back()->session = session;
  return session->in_flight.back().get();
}

// All at once. False: failed.
bool UcxSource::SendMessage(PendingSend* send) {
  SourceSession& session = *send->session;
  send->header = Pack(send->message);
  send->under_way = true;
  absl::StatusOr<bool> started =
      session.worker->Send(session.endpoint, static_cast<unsigned>(MessageId::kPart), send->header,
                           send->bytes, send->bytes.size() >= kRendezvousBytes, Sent, send);
  if (!started.ok() || !*started) Settle(send, started.status());
  return started.ok();
}

// Now or not at all, as greetings are sent (UcxEngine::Greet): what UCX would keep for later begins with a
// wire-up message behind it, and UCX 1.13 aborts the process when the connection is reset before that left
// ("pending_count == 0"). False: the socket is full, and Tick tries again after each progress; or failed.
bool UcxSource::SendChunk(PendingSend* send) {
  SourceSession& session = *send->session;
  std::span<const std::byte> data = send->bytes.subspan(send->message.offset);
  data = data.first(std::min(data.size(), kTcpChunkBytes));
  absl::StatusOr<bool> sent = session.worker->SendImmediately(
      session.endpoint, static_cast<unsigned>(MessageId::kPart), Pack(send->message), data);
  if (!sent.ok()) {
    Settle(send, sent.status());
  } else if (*sent) {
    send->message.offset += data.size();
    if (send->message.offset == send->bytes.size()) Settle(send, absl::OkStatus());
  }
  return sent.ok() && *sent;
}

void UcxSource::Sent(void* argument, ucs_status_t status) {
  auto* send = static_cast<PendingSend*>(argument);
  SessionPtr session = send->session;
  UcxSource* self = session->source;
  self->Settle(send, StatusFromUcx(status, Where(*session)));
  self->PumpSoon(session);
}

// The transport is done with the bytes. Called from a completion, too.
void UcxSource::Settle(PendingSend* send, const absl::Status& status) {
  SessionPtr session = std::move(send->session);
  auto found = std::find_if(session->in_flight.begin(), session->in_flight.end(),
                            [&](const auto& one) { return one.get() == send; });
  std::unique_ptr<PendingSend> owned = std::move(*found);
  session->in_flight.erase(found);
  if (!owned->fate.ok()) {
    absl::Status fate = owned->fate;
    Finish(std::move(owned), std::move(fate));
  } else if (!status.ok()) {
    absl::Status failure = absl::UnavailableError(status.message());
    engine_->Post([this, session, failure] { Kill(session, failure); });
    Finish(std::move(owned), failure);
  } else {
    Finish(std::move(owned), absl::OkStatus());
  }
  if (session->in_flight.empty()) ReleaseWaiting(session);
}

// After what was posted before.
void UcxSource::ReleaseWaiting(const SessionPtr& session) {
  for (Latch* latch : session->waiting) engine_->Post([latch] { latch->CountDown(); });
  session->waiting.clear();
}

void UcxSource::Finish(std::shared_ptr<PendingSend> shared, absl::Status status, bool abandoned) {
  engine_->Post([shared = std::move(shared), status = std::move(status), abandoned] {
    shared->done(status);
    if (!abandoned) shared->done = nullptr;
  });
}

void UcxSource::Kill(const SessionPtr& session, const absl::Status& status) {
  if (session->state == SourceSession::State::kDead) return;
  session->state = SourceSession::State::kDead;
  session->failure = status;
  session->endpoint = nullptr;
  bool completions_come =
      session->worker != nullptr &&
      engine_->Retire(std::move(session->worker), [this, session] { AbandonSends(session); });
  for (auto& send : session->queue) {
    absl::Status fate = send->fate.ok() ? status : send->fate;
    Finish(std::move(send), std::move(fate));
  }
  session->queue.clear();
  for (auto next = session->in_flight.begin(); next != session->in_flight.end();) {
    PendingSend* send = (next++)->get();
    if (send->fate.ok()) send->fate = status;
    if (!send->under_way || !completions_come) Settle(send, absl::OkStatus());
  }
}

// What is in flight still is what UCX was to complete.
void UcxSource::AbandonSends(const SessionPtr& session) {
  for (std::unique_ptr<PendingSend>& send : session->in_flight) {
    ++buffers_abandoned_;
    std::shared_ptr<PendingSend> kept = std::move(send);
    KeepForever(kept);
    absl::Status fate = kept->fate;
    Finish(std::move(kept), std::move(fate), /*abandoned=*/true);
  }
  session->in_flight.clear();
  ReleaseWaiting(session);
}

void UcxSource::Disconnect(SessionId id) { EndSessions({id}); }

// All at once, so that several which do not end take no longer than one.
void UcxSource::EndSessions(const std::vector<SessionId>& ids) {
  Latch latch;
  engine_->Post([&, this] {
    for (SessionId id : ids) {
      SessionPtr session = Find(id);
      if (session == nullptr) continue;
      {
        MutexLock lock(mutex_);
        sessions_.erase(id);
      }
      Kill(session, absl::CancelledError(absl::StrCat(Where(*session), " was disconnected")));
      if (session->in_flight.empty()) continue;
      latch.Expect(1);
      session->waiting.push_back(&latch);
    }
    latch.CountDown();
  });
  latch.Wait();
  engine_->Run([] {});
}

Clock::time_point UcxSource::Tick(Clock::time_point now) {
  std::vector<SessionPtr> sessions;
  {
    MutexLock lock(mutex_);
    for (auto& [id, session] : sessions_) sessions.push_back(session);
  }
  Clock::time_point next = Clock::time_point::max();
  for (const SessionPtr& session : sessions) {
    if (session->state == SourceSession::State::kDead) continue;
    if (session->state != SourceSession::State::kReady) {
      if (session->deadline <= now) {
        Kill(session, absl::UnavailableError(absl::StrCat(
                          Where(*session), ": the consumer did not greet on the data plane within ",
                          absl::FormatDuration(options_.connect_timeout))));
        continue;
      }
      next = std::min(next, session->deadline);
    }
    if (session->greeting_due) {
      absl::Status sent = SendGreeting(session);
      if (!sent.ok()) {
        Kill(session, absl::UnavailableError(absl::StrCat(Where(*session), ": ", sent.message())));
        continue;
      }
      if (session->greeting_due) next = std::min(next, now + kGreetAgain);
    }
    if (engine_->sends_chunks() && !session->in_flight.empty()) Pump(session);
    bool late = false;
    auto check = [&](PendingSend& send) {
      next = std::min(next, send.deadline);
      if (send.deadline > now) return;
      late = true;
      send.fate =
          absl::DeadlineExceededError(absl::StrCat(Where(*session), ": request ", send.message.request, ": ",
                                                   send.bytes.size(), " bytes were not taken in time"));
    };
    for (auto& send : session->in_flight) check(*send);
    for (auto& send : session->queue) check(*send);
    if (late)
      Kill(session, absl::UnavailableError(absl::StrCat(Where(*session), " was closed: a send was late")));
  }
  return next;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Source>> MakeUcxSource(const Options& options) {
  auto source = std::make_unique<UcxSource>(options);
  EVENKEEL_RETURN_IF_ERROR(source->Start());
  return source;
}

}  // namespace evenkeel::transport
