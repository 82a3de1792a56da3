// The sending side over sealed memory: it copies a part into sealed memory and hands the copy's descriptor to
// the consumer.
//
// A send is complete when the consumer answers that it has the part (kTaken), so a part counts as the
// worker's memory until then, and a consumer that is stopped is noticed by the send's deadline. Copies that
// are not taken yet are bounded by Options::max_copied_bytes.
//
// Locking: the mutex guards `sessions_`; all that is inside a session belongs to the loop's thread.
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <list>
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

// Parts of one session that the consumer has not answered for. More would only hold memory longer.
constexpr size_t kMaxInFlight = 4;
// Connections that have not said which session they are of; when more come, the oldest is closed.
constexpr size_t kMaxUnknown = 256;
// Pause before another attempt if there was no room for a message, or no handle to accept a connection.
constexpr auto kTryAgain = std::chrono::milliseconds(5);

struct PendingSend {
  RequestId request = 0;
  std::span<const std::byte> bytes;
  Digest hash;
  Clock::time_point deadline;
  Done done;
};

struct SourceSession {
  SessionId id = 0;
  Secret secret{};
  absl::Status failure;        // not OK: dead
  Clock::time_point deadline;  // for the consumer to connect
  Handle socket;               // negative: not connected
  std::deque<PendingSend> queue;
  std::list<PendingSend> in_flight;
};
using SessionPtr = std::shared_ptr<SourceSession>;

// A connection before its first message.
struct Unknown {
  Handle socket;
  Clock::time_point deadline;
};

std::string Where(const SourceSession& session) { return absl::StrCat("session ", session.id); }

class MemorySource final : public Source {
 public:
  explicit MemorySource(const Options& options) : options_(options) {}
  ~MemorySource() override;
  absl::Status Start();

  Info info() const override { return {.name = "memory", .detail = "sealed", .is_rdma = false}; }
  std::string address() const override { return address_; }
  absl::Status Connect(SessionId session, const std::string& peer_address, const Secret& secret) override;
  void Send(SessionId session, RequestId request, std::span<const std::byte> bytes, const Digest& hash,
            absl::Duration timeout, Done done) override {
    Post(session, {.request = request, .bytes = bytes, .hash = hash, .done = std::move(done)}, timeout);
  }
  void Disconnect(SessionId session) override { EndSessions({session}); }
  uint64_t messages_dropped() const override { return messages_dropped_; }

 private:
  SessionPtr Find(SessionId session) const ABSL_LOCKS_EXCLUDED(mutex_);
  std::vector<SessionPtr> Sessions() const ABSL_LOCKS_EXCLUDED(mutex_);
  void Post(SessionId session, PendingSend send, absl::Duration timeout);
  void Enqueue(SessionId id, PendingSend send);
  void Accept();
  void DropOldestUnknown();
  // The first message of a connection, which names its session.
  void TakeHello(int socket);
  absl::Status Attach(Handle& socket, const MemoryMessage& hello);
  void TakeAnswers(const SessionPtr& session);
  // Sends what may be sent now.
  void Pump(const SessionPtr& session);
  void PumpAll();
  absl::StatusOr<bool> HandOver(const SourceSession& session, const PendingSend& send);
  bool MayCopy(const SourceSession& session, const PendingSend& send) const;
  void Kill(const SessionPtr& session, const absl::Status& status, Clock::time_point late_before);
  void EndSessions(const std::vector<SessionId>& ids);
  void Finish(Done done, absl::Status status);
  Clock::time_point Tick(Clock::time_point now);

  const Options options_;
  std::string address_;
  std::atomic<uint64_t> messages_dropped_{0};
  std::unique_ptr<SocketLoop> loop_;

  // Used by the loop's thread alone.
  Handle listening_;
  bool accepts_ = true;  // false: for a moment, because no handle was left
  std::map<int, Unknown> unknown_;
  uint64_t copied_bytes_ = 0;  // of the parts in flight, of all sessions
  bool try_again_ = false;

  mutable Mutex mutex_;
  std::unordered_map<SessionId, SessionPtr> sessions_ ABSL_GUARDED_BY(mutex_);
};

absl::Status MemorySource::Start() {
  std::string name;
  EVENKEEL_ASSIGN_OR_RETURN(listening_, ListenForMemory(&name));
  address_ = WrapAddress({.role = AddressRole::kSource, .memory = true, .host = ThisHost(), .worker = name});
  EVENKEEL_ASSIGN_OR_RETURN(
      loop_, SocketLoop::Start("evenkeel-memory", [this](Clock::time_point now) { return Tick(now); }));
  loop_->Run([this] { loop_->Watch(listening_.get(), [this] { Accept(); }); });
  return absl::OkStatus();
}

MemorySource::~MemorySource() {
  if (loop_ == nullptr) return;
  std::vector<SessionId> ids;
  for (const SessionPtr& session : Sessions()) ids.push_back(session->id);
  EndSessions(ids);
  loop_->Stop();
}

SessionPtr MemorySource::Find(SessionId session) const {
  MutexLock lock(mutex_);
  const auto found = sessions_.find(session);
  return found == sessions_.end() ? nullptr : found->second;
}

std::vector<SessionPtr> MemorySource::Sessions() const {
  MutexLock lock(mutex_);
  std::vector<SessionPtr> sessions;
  for (const auto& [id, session] : sessions_) sessions.push_back(session);
  return sessions;
}

absl::Status MemorySource::Connect(SessionId id, const std::string& peer_address, const Secret& secret) {
  EVENKEEL_ASSIGN_OR_RETURN(const Address peer, UnwrapAddress(peer_address));
  if (peer.role != AddressRole::kSink || !peer.memory) {
    return absl::InvalidArgumentError("the consumer's address is not that of a sink of sealed memory");
  }
  if (peer.host != ThisHost()) {
    return absl::FailedPreconditionError(
        "the consumer is on another machine, where sealed memory cannot be handed over; let it use "
        "--transport auto");
  }
  auto session = std::make_shared<SourceSession>();
  session->id = id;
  session->secret = secret;
  session->deadline = DeadlineAfter(options_.connect_timeout);
  {
    MutexLock lock(mutex_);
    if (!sessions_.emplace(id, std::move(session)).second) {
      return absl::AlreadyExistsError(absl::StrCat("session ", id, " exists already"));
    }
  }
  loop_->Post([] {});  // the deadline is new
  return absl::OkStatus();
}

// ---- Connections

void MemorySource::Accept() {
  for (;;) {
    Handle socket(accept4(listening_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (socket.get() < 0) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      if (errno == EAGAIN) return;
      // No handle is left: the connection waits in the kernel, and poll would report it again and again.
      loop_->Unwatch(listening_.get());
      accepts_ = false;
      return;
    }
    // Any user of the machine may connect to an abstract name.
    if (!CheckPeer(socket.get()).ok()) {
      ++messages_dropped_;
      continue;
    }
    if (unknown_.size() >= kMaxUnknown) DropOldestUnknown();
    const int number = socket.get();
    unknown_[number] = {std::move(socket), DeadlineAfter(options_.connect_timeout)};
    loop_->Watch(number, [this, number] { TakeHello(number); });
    TakeHello(number);  // a consumer of ours sends it when it connects
  }
}

void MemorySource::DropOldestUnknown() {
  const auto oldest =
      std::ranges::min_element(unknown_, {}, [](const auto& entry) { return entry.second.deadline; });
  loop_->Unwatch(oldest->first);
  unknown_.erase(oldest);
  ++messages_dropped_;
}

void MemorySource::TakeHello(int number) {
  absl::StatusOr<std::optional<ReceivedMessage>> hello = ReceiveMessage(number);
  if (hello.ok() && !hello->has_value()) return;
  Handle socket = std::move(unknown_.at(number).socket);
  unknown_.erase(number);
  loop_->Unwatch(number);
  const bool is_hello =
      hello.ok() && (*hello)->message.kind == MemoryMessageKind::kHello && (*hello)->handles.empty();
  if (!is_hello || !Attach(socket, (*hello)->message).ok()) ++messages_dropped_;
}

absl::Status MemorySource::Attach(Handle& socket, const MemoryMessage& hello) {
  const SessionPtr session = Find(hello.session);
  if (session == nullptr || !SameSecret(hello.secret, session->secret) || !session->failure.ok() ||
      session->socket.get() >= 0) {
    return absl::PermissionDeniedError("unknown session or wrong secret");
  }
  const MemoryMessage ready{
      .kind = MemoryMessageKind::kReady, .session = session->id, .secret = session->secret};
  absl::StatusOr<bool> sent = SendMessage(socket.get(), ready);
  if (!sent.ok() || !*sent) return absl::UnavailableError("the consumer is gone");
  session->socket = std::move(socket);
  loop_->Watch(session->socket.get(), [this, session] { TakeAnswers(session); });
  Pump(session);
  return absl::OkStatus();
}

void MemorySource::TakeAnswers(const SessionPtr& session) {
  while (session->failure.ok()) {
    absl::StatusOr<std::optional<ReceivedMessage>> received = ReceiveMessage(session->socket.get());
    if (!received.ok()) {
      return Kill(session,
                  absl::UnavailableError(
                      absl::StrCat(Where(*session), ": the consumer is gone: ", received.status().message())),
                  Clock::time_point::min());
    }
    if (!received->has_value()) break;
    const MemoryMessage& answer = (*received)->message;
    const auto found = std::find_if(session->in_flight.begin(), session->in_flight.end(),
                                    [&](const PendingSend& send) { return send.request == answer.request; });
    if (answer.kind != MemoryMessageKind::kTaken || !(*received)->handles.empty() ||
        !SameSecret(answer.secret, session->secret) || found == session->in_flight.end()) {
      ++messages_dropped_;
      return Kill(
          session,
          absl::UnavailableError(absl::StrCat(
              Where(*session), " was closed: the consumer sent something that is not an answer to a part")),
          Clock::time_point::min());
    }
    copied_bytes_ -= found->bytes.size();
    Finish(std::move(found->done), absl::OkStatus());
    session->in_flight.erase(found);
  }
  PumpAll();
}

// ---- Sends

void MemorySource::Post(SessionId session, PendingSend send, absl::Duration timeout) {
  send.deadline = DeadlineAfter(timeout);
  // Shared, since a task must be copyable.
  auto shared = std::make_shared<PendingSend>(std::move(send));
  loop_->Post([this, session, shared] { Enqueue(session, std::move(*shared)); });
}

void MemorySource::Enqueue(SessionId id, PendingSend send) {
  const SessionPtr session = Find(id);
  if (session == nullptr) {
    return Finish(std::move(send.done), absl::UnavailableError(absl::StrCat("unknown session ", id)));
  }
  if (!session->failure.ok()) return Finish(std::move(send.done), session->failure);
  if (send.bytes.size() > options_.max_message_bytes) {
    return Finish(std::move(send.done),
                  absl::InvalidArgumentError(absl::StrCat("request ", send.request, ": ", send.bytes.size(),
                                                          " bytes are more than max_message_bytes")));
  }
  session->queue.push_back(std::move(send));
  Pump(session);
}

// One half of the limit is for sessions without a part in flight, so that a few consumers that do not answer
// leave room for the others.
bool MemorySource::MayCopy(const SourceSession& session, const PendingSend& send) const {
  const uint64_t limit =
      session.in_flight.empty() ? options_.max_copied_bytes : options_.max_copied_bytes / 2;
  return copied_bytes_ == 0 || copied_bytes_ + send.bytes.size() <= limit;
}

void MemorySource::Pump(const SessionPtr& session) {
  while (session->failure.ok() && session->socket.get() >= 0 && !session->queue.empty() &&
         session->in_flight.size() < kMaxInFlight && MayCopy(*session, session->queue.front())) {
    absl::StatusOr<bool> sent = HandOver(*session, session->queue.front());
    if (!sent.ok()) {
      return Kill(session,
                  absl::UnavailableError(absl::StrCat(Where(*session), ": ", sent.status().message())),
                  Clock::time_point::min());
    }
    if (!*sent) {
      try_again_ = true;
      return;
    }
    session->in_flight.push_back(std::move(session->queue.front()));
    session->queue.pop_front();
  }
}

void MemorySource::PumpAll() {
  for (const SessionPtr& session : Sessions()) Pump(session);
}

absl::StatusOr<bool> MemorySource::HandOver(const SourceSession& session, const PendingSend& send) {
  MemoryMessage part{.kind = MemoryMessageKind::kPart,
                     .session = session.id,
                     .request = send.request,
                     .length = send.bytes.size(),
                     .hash = send.hash,
                     .secret = session.secret};
  EVENKEEL_ASSIGN_OR_RETURN(const SealedMemory copy, SealedMemory::CopyOf(send.bytes));
  EVENKEEL_ASSIGN_OR_RETURN(const bool sent, SendMessage(session.socket.get(), part, copy.handle()));
  if (sent) copied_bytes_ += send.bytes.size();
  return sent;
}

void MemorySource::Kill(const SessionPtr& session, const absl::Status& status,
                        Clock::time_point late_before) {
  if (!session->failure.ok()) return;
  session->failure = status;
  for (const PendingSend& send : session->in_flight) copied_bytes_ -= send.bytes.size();
  try_again_ |= !session->in_flight.empty();  // others may have waited for the room
  const auto end = [&](PendingSend& send) {
    Finish(std::move(send.done), send.deadline > late_before
                                     ? status
                                     : absl::DeadlineExceededError(
                                           absl::StrCat(Where(*session), ": request ", send.request, ": ",
                                                        send.bytes.size(), " bytes were not taken in time")));
  };
  for (PendingSend& send : session->in_flight) end(send);
  for (PendingSend& send : session->queue) end(send);
  session->in_flight.clear();
  session->queue.clear();
  if (session->socket.get() >= 0) loop_->Unwatch(session->socket.get());
  session->socket = Handle();  // whose end the consumer sees
}

void MemorySource::Finish(Done done, absl::Status status) {
  loop_->Post([done = std::move(done), status = std::move(status)] { done(status); });
}

void MemorySource::EndSessions(const std::vector<SessionId>& ids) {
  loop_->Run([&] {
    for (const SessionId id : ids) {
      const SessionPtr session = Find(id);
      if (session == nullptr) continue;
      {
        MutexLock lock(mutex_);
        sessions_.erase(id);
      }
      Kill(session, absl::CancelledError(absl::StrCat(Where(*session), " was disconnected")),
           Clock::time_point::min());
    }
  });
  loop_->Run([] {});  // the callbacks that were posted have run
}

Clock::time_point MemorySource::Tick(Clock::time_point now) {
  Clock::time_point next = Clock::time_point::max();
  if (!accepts_) {
    accepts_ = true;
    loop_->Watch(listening_.get(), [this] { Accept(); });
    next = now + kTryAgain;
  }
  std::erase_if(unknown_, [&](const auto& entry) {
    if (entry.second.deadline > now) {
      next = std::min(next, entry.second.deadline);
      return false;
    }
    loop_->Unwatch(entry.first);
    return true;
  });
  if (std::exchange(try_again_, false)) PumpAll();
  for (const SessionPtr& session : Sessions()) {
    if (!session->failure.ok()) continue;
    const bool silent = session->socket.get() < 0 && session->deadline <= now;
    if (session->socket.get() < 0) next = std::min(next, session->deadline);
    bool late = false;
    const auto look_at = [&](const PendingSend& send) {
      late |= send.deadline <= now;
      next = std::min(next, send.deadline);
    };
    std::ranges::for_each(session->queue, look_at);
    std::ranges::for_each(session->in_flight, look_at);
    if (silent) {
      Kill(session,
           absl::UnavailableError(absl::StrCat(Where(*session), ": the consumer did not connect within ",
                                               absl::FormatDuration(options_.connect_timeout))),
           Clock::time_point::min());
    } else if (late) {
      Kill(session, absl::UnavailableError(absl::StrCat(Where(*session), " was closed: a send was late")),
           now);
    }
  }
  if (try_again_) next = std::min(next, now + kTryAgain);
  return next;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Source>> MakeMemorySource(const Options& options) {
  EVENKEEL_RETURN_IF_ERROR(RefuseRequiredRdma(options, "memory is for processes of one machine"));
  auto source = std::make_unique<MemorySource>(options);
  EVENKEEL_RETURN_IF_ERROR(source->Start());
  return source;
}

}  // namespace evenkeel::transport
