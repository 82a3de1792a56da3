// The sending side over UCX. See ucx_sink.cc for how a session begins.
//
// All sessions share the engine's main worker: each is an endpoint to a sink's worker that serves nothing
// else, so that the endpoint made here belongs to the connection that the greeting came over. Ending a
// session closes that endpoint alone. UCX only reads memory on this side, so a send that never completes
// keeps its own bytes in use and nothing else. Over TCP UCX keeps the receiving half of a connection whose
// endpoint was closed, so the sink gets a message that the session is over (kBye), and closes it.
//
// Locking: the mutex guards `sessions_`; all that is inside a session belongs to the engine's thread.
#include <atomic>
#include <deque>
#include <list>
#include <unordered_map>

#include "core/status.h"
#include "transport/factory.h"
#include "transport/file_handles.h"
#include "transport/latch.h"
#include "transport/secret.h"
#include "transport/ucx_engine.h"
#include "transport/ucx_message.h"

namespace evenkeel::transport {
namespace {

// Parts of one session that are sent at the same time by rendezvous. More would only delay all of them. In
// chunks, parts go one after the other.
constexpr size_t kMaxInFlight = 4;
// Smaller parts go as one message; for larger ones the receiver gets the header first and fetches the data
// into its own memory.
constexpr size_t kRendezvousBytes = 16 << 10;
// Messages of one session before another session's turn: a few milliseconds of work.
constexpr int kSendBurst = 16;

// Pause before a greeting is repeated because its connection was not ready.
constexpr auto kGreetAgain = std::chrono::milliseconds(2);

// Handles to keep free for connections that arrive while sessions begin.
constexpr int kSpareHandles = 32;

class UcxSource;

struct PendingSend {
  PartMessage message;  // `offset`: of the next message's data
  std::span<const std::byte> bytes;
  PartMessageBytes header{};  // valid while under_way
  bool under_way = false;     // UCX holds `header` and `bytes`
  bool abandoned = false;     // UCX did not complete it in time, but still may
  Clock::time_point deadline;
  Done done;
  absl::Status fate;                              // not OK: replaces the send's own status
  std::shared_ptr<struct SourceSession> session;  // while in flight
};

struct SourceSession {
  enum class State { kWaitingForHello, kAnswering, kReady, kDead };

  UcxSource* source = nullptr;
  SessionId id = 0;
  Secret secret{};
  State state = State::kWaitingForHello;
  absl::Status failure;
  Clock::time_point deadline;
  ucp_ep_h endpoint = nullptr;  // on the main worker
  GreetingBytes greeting{};
  bool greeting_due = false;  // kReady could not be sent yet
  bool pump_due = false;      // a task that calls Pump is posted
  std::deque<std::unique_ptr<PendingSend>> queue;
  std::list<std::unique_ptr<PendingSend>> in_flight;
  std::vector<Latch*> waiting;  // until nothing is in flight
};
using SessionPtr = std::shared_ptr<SourceSession>;

class UcxSource final : public Source, public UcxEvents {
 public:
  explicit UcxSource(const Options& options) : options_(options) {}
  ~UcxSource() override;
  absl::Status Start();

  Info info() const override { return engine_->info(); }
  std::string address() const override { return engine_->WrappedAddress(); }
  absl::Status Connect(SessionId session, const std::string& peer_address, const Secret& secret) override;
  void Send(SessionId session, RequestId request, std::span<const std::byte> bytes, const Digest& hash,
            absl::Duration timeout, Done done) override;
  void Disconnect(SessionId session) override;
  absl::Status health() const override { return engine_->CheckListening(); }
  uint64_t messages_dropped() const override { return messages_dropped_; }
  uint64_t buffers_abandoned() const override { return buffers_abandoned_; }

  // The only message that a source accepts, on any of its workers, is kHello.
  ucs_status_t OnMessage(unsigned id, std::span<const std::byte> header, void* data, size_t length,
                         bool rendezvous) override;
  void OnEndpointError(ucp_ep_h endpoint, ucs_status_t status) override;

 private:
  SessionPtr Find(SessionId session) const ABSL_LOCKS_EXCLUDED(mutex_);
  std::vector<SessionPtr> Sessions() const ABSL_LOCKS_EXCLUDED(mutex_);
  ucs_status_t Drop() {
    ++messages_dropped_;
    return UCS_OK;
  }
  Clock::time_point Tick(Clock::time_point now);
  void Answer(const SessionPtr& session, const Address& peer);
  absl::Status TryAnswer(const SessionPtr& session, const Address& peer);
  absl::Status SendGreeting(const SessionPtr& session);
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
  // Sends kBye and closes the endpoint, at once or as soon as possible.
  void Leave(const SessionPtr& session);
  // Sends kBye. Returns true if it was sent, or if the peer is gone.
  bool SayBye(ucp_ep_h endpoint, const GreetingBytes& greeting);
  // Returns the time of its next call.
  Clock::time_point SweepFarewells(Clock::time_point now);
  // Abandons sends of ended sessions that UCX has not completed in time. Returns the next deadline.
  Clock::time_point SweepEnding(Clock::time_point now);
  // Ends the sessions and their sends, and waits until no send is in flight.
  void EndSessions(const std::vector<SessionId>& ids);
  // Runs `done` from a task, and destroys it there unless its bytes were abandoned.
  void Finish(std::shared_ptr<PendingSend> send, absl::Status status, bool abandoned = false);

  const Options options_;
  std::unique_ptr<UcxEngine> engine_;
  std::atomic<uint64_t> messages_dropped_{0};
  std::atomic<uint64_t> buffers_abandoned_{0};

  struct Ending {
    SessionPtr session;
    Clock::time_point until;
  };
  // A kBye that could not be sent yet.
  struct Farewell {
    ucp_ep_h endpoint;
    GreetingBytes greeting;
    Clock::time_point until;
  };
  // Used by the engine's thread alone.
  std::vector<Ending> ending_;  // ended sessions with sends in flight
  std::vector<Farewell> farewells_;

  mutable Mutex mutex_;
  std::unordered_map<SessionId, SessionPtr> sessions_ ABSL_GUARDED_BY(mutex_);
};

std::string Where(const SourceSession& session) { return absl::StrCat("session ", session.id); }

void UcxSource::OnEndpointError(ucp_ep_h endpoint, ucs_status_t status) {
  for (const SessionPtr& session : Sessions()) {
    if (session->endpoint != endpoint) continue;
    absl::Status failure = absl::UnavailableError(
        absl::StrCat(Where(*session), ": the consumer is gone: ", Ucx().ucs_status_string(status)));
    engine_->Post([this, session, failure] { Kill(session, failure); });
  }
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
  engine_->Run([this] { farewells_.clear(); });  // the engine closes the remaining endpoints
  engine_.reset();
}

SessionPtr UcxSource::Find(SessionId session) const {
  MutexLock lock(mutex_);
  auto found = sessions_.find(session);
  return found == sessions_.end() ? nullptr : found->second;
}

std::vector<SessionPtr> UcxSource::Sessions() const {
  MutexLock lock(mutex_);
  std::vector<SessionPtr> sessions;
  for (const auto& [id, session] : sessions_) sessions.push_back(session);
  return sessions;
}

absl::Status UcxSource::Connect(SessionId id, const std::string& peer_address, const Secret& secret) {
  EVENKEEL_ASSIGN_OR_RETURN(Address peer, UnwrapAddress(peer_address));
  if (peer.role != AddressRole::kSink || peer.memory)
    return absl::InvalidArgumentError("the consumer's address is not that of a UCX sink");
  if (!peer.rdma && !options_.trusted_network) {
    return absl::FailedPreconditionError(
        "the consumer's UCX uses TCP, which needs serve --trusted-data-network here too; or let the consumer "
        "use "
        "--transport grpc");
  }
  // UCX closes its listening socket permanently if it cannot accept a connection.
  EVENKEEL_RETURN_IF_ERROR(CheckFileHandles(kSpareHandles, "another session over UCX"));
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
  engine_->Post([] {});  // wakes the thread, which computes its next deadline
  return absl::OkStatus();
}

ucs_status_t UcxSource::OnMessage(unsigned message, std::span<const std::byte> header, void* data,
                                  size_t length, bool rendezvous) {
  if (static_cast<MessageId>(message) != MessageId::kHello || rendezvous || length > kMaxAddressBytes)
    return Drop();
  std::optional<Greeting> greeting = UnpackGreeting(header);
  absl::StatusOr<Address> peer = UnwrapAddress({static_cast<const char*>(data), length});
  if (!greeting || !peer.ok() || peer->role != AddressRole::kSession || peer->worker.empty()) return Drop();
  SessionPtr session = Find(greeting->session);
  if (session == nullptr || !SameSecret(greeting->secret, session->secret) ||
      session->state != SourceSession::State::kWaitingForHello || peer->memory) {
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
  EVENKEEL_ASSIGN_OR_RETURN(session->endpoint, engine_->main().Connect(peer.worker));
  session->greeting = Pack(Greeting{session->id, session->secret});
  return SendGreeting(session);
}

absl::Status UcxSource::SendGreeting(const SessionPtr& session) {
  EVENKEEL_ASSIGN_OR_RETURN(bool sent, engine_->Greet(engine_->main(), session->endpoint, MessageId::kReady,
                                                      session->greeting, ""));
  session->greeting_due = !sent;
  if (!sent) return absl::OkStatus();
  session->state = SourceSession::State::kReady;
  PumpSoon(session);
  return absl::OkStatus();
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

// Sends until the session has nothing to send, the socket is full, or its turn is over.
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

// Sends a whole part as one message. Returns false on failure.
bool UcxSource::SendMessage(PendingSend* send) {
  SourceSession& session = *send->session;
  send->header = Pack(send->message);
  send->under_way = true;
  absl::StatusOr<bool> started =
      engine_->main().Send(session.endpoint, static_cast<unsigned>(MessageId::kPart), send->header,
                           send->bytes, send->bytes.size() >= kRendezvousBytes, Sent, send);
  if (!started.ok() || !*started) Settle(send, started.status());
  return started.ok();
}

// Sends the next chunk at once or not at all, as greetings are sent (UcxEngine::Greet). UCX would queue it
// behind a wire-up message, and UCX 1.13 aborts the process if the connection is reset before that has left
// ("pending_count == 0"). Returns false if the socket is full, in which case Tick tries again after each
// progress, or on failure.
bool UcxSource::SendChunk(PendingSend* send) {
  SourceSession& session = *send->session;
  std::span<const std::byte> data = send->bytes.subspan(send->message.offset);
  data = data.first(std::min(data.size(), kTcpChunkBytes));
  absl::StatusOr<bool> sent = engine_->main().SendImmediately(
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
  if (send->abandoned) return;
  SessionPtr session = send->session;
  UcxSource* self = session->source;
  self->Settle(send, StatusFromUcx(status, Where(*session)));
  self->PumpSoon(session);
}

// The transport no longer uses the bytes: removes the send and posts `done`. Also called from a completion.
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

// Posted, so that the latches count down after the callbacks posted before.
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
  if (session->endpoint != nullptr) Leave(session);
  session->endpoint = nullptr;
  for (auto& send : session->queue) {
    absl::Status fate = send->fate.ok() ? status : send->fate;
    Finish(std::move(send), std::move(fate));
  }
  session->queue.clear();
  for (auto next = session->in_flight.begin(); next != session->in_flight.end();) {
    PendingSend* send = (next++)->get();
    if (send->fate.ok()) send->fate = status;
    if (!send->under_way) Settle(send, absl::OkStatus());
  }
  if (!session->in_flight.empty()) {
    ending_.push_back({session, DeadlineAfter(options_.completion_timeout)});
  }
}

bool UcxSource::SayBye(ucp_ep_h endpoint, const GreetingBytes& greeting) {
  absl::StatusOr<bool> said = engine_->Greet(engine_->main(), endpoint, MessageId::kBye, greeting, "");
  return !said.ok() || *said;
}

void UcxSource::Leave(const SessionPtr& session) {
  // A rendezvous in flight ends only when the endpoint is closed. In chunks nothing is in flight.
  if (SayBye(session->endpoint, session->greeting) || !engine_->sends_chunks()) {
    engine_->main().CloseByForce(session->endpoint);
  } else {
    farewells_.push_back({session->endpoint, session->greeting, DeadlineAfter(options_.completion_timeout)});
  }
}

Clock::time_point UcxSource::SweepFarewells(Clock::time_point now) {
  std::erase_if(farewells_, [&](const Farewell& one) {
    if (now < one.until && !SayBye(one.endpoint, one.greeting)) return false;
    engine_->main().CloseByForce(one.endpoint);
    return true;
  });
  return farewells_.empty() ? Clock::time_point::max() : now + kGreetAgain;
}

Clock::time_point UcxSource::SweepEnding(Clock::time_point now) {
  Clock::time_point next = Clock::time_point::max();
  std::erase_if(ending_, [&](const Ending& one) {
    if (one.session->in_flight.empty()) return true;
    if (now < one.until) {
      next = std::min(next, one.until);
      return false;
    }
    AbandonSends(one.session);
    return true;
  });
  return next;
}

// The remaining sends in flight are those that UCX did not complete.
void UcxSource::AbandonSends(const SessionPtr& session) {
  for (std::unique_ptr<PendingSend>& send : session->in_flight) {
    ++buffers_abandoned_;
    std::shared_ptr<PendingSend> kept = std::move(send);
    kept->abandoned = true;
    KeepForever(kept);
    absl::Status fate = kept->fate;
    Finish(std::move(kept), std::move(fate), /*abandoned=*/true);
  }
  session->in_flight.clear();
  ReleaseWaiting(session);
}

void UcxSource::Disconnect(SessionId id) { EndSessions({id}); }

// All sessions are ended first and waited for together, so that several stuck ones take no longer than one.
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
  Clock::time_point next = std::min(SweepEnding(now), SweepFarewells(now));
  for (const SessionPtr& session : Sessions()) {
    if (session->state == SourceSession::State::kDead) continue;
    if (session->state != SourceSession::State::kReady) {
      if (session->deadline <= now) {
        Kill(session, absl::UnavailableError(absl::StrCat(
                          Where(*session), ": the consumer did not greet on the data plane within ",
                          absl::FormatDuration(options_.connect_timeout),
                          engine_->rdma_hint().empty() ? "" : " over ", engine_->rdma_hint())));
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
