// The accept loop: one thread and one poll over the listener and the connections that have sent nothing yet.
#include "server/acceptor.h"

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <list>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/steady_time.h"
#include "telemetry/event_log.h"

namespace evenkeel::server {
namespace {

constexpr absl::Duration kLook = absl::Seconds(1);         // between checks for closed connections
constexpr absl::Duration kLog = absl::Seconds(10);         // between lines about refused connections
constexpr absl::Duration kPause = absl::Milliseconds(50);  // before a retry when accept fails
// A connection younger than this is not closed to make room: its first bytes may be arriving.
constexpr absl::Duration kGrace = absl::Milliseconds(100);
constexpr int kAcceptsAtATime = 64;

constexpr std::string_view kHttp2Preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
constexpr size_t kTlsHeaderBytes = 5;
constexpr uint8_t kTlsHandshake = 22;
constexpr size_t kMaxTlsRecord = 1 << 14;

enum class Beginning { kMissing, kPartial, kGood, kWrong, kEnded };

// Classifies the first bytes that have arrived at `socket`, without taking them out of it.
Beginning Look(int socket, bool tls) {
  std::array<char, kTlsHeaderBytes + kMaxTlsRecord> bytes;
  const size_t wanted = tls ? bytes.size() : kHttp2Preface.size();
  const ssize_t got = recv(socket, bytes.data(), wanted, MSG_PEEK | MSG_DONTWAIT);
  if (got < 0) return errno == EAGAIN || errno == EINTR ? Beginning::kMissing : Beginning::kEnded;
  if (got == 0) return Beginning::kEnded;
  const std::string_view text(bytes.data(), static_cast<size_t>(got));
  if (!tls) {
    if (text != kHttp2Preface.substr(0, text.size())) return Beginning::kWrong;
    return text.size() == kHttp2Preface.size() ? Beginning::kGood : Beginning::kPartial;
  }
  // Requires the whole first record: a handshake that stops inside it is as idle as one that never began.
  if (static_cast<uint8_t>(text[0]) != kTlsHandshake) return Beginning::kWrong;
  if (text.size() < kTlsHeaderBytes) return Beginning::kPartial;
  const size_t record = static_cast<uint8_t>(text[3]) * 256 + static_cast<uint8_t>(text[4]);
  if (record == 0 || record > kMaxTlsRecord) return Beginning::kWrong;
  return text.size() >= kTlsHeaderBytes + record ? Beginning::kGood : Beginning::kPartial;
}

// The peer's address without its port, as bytes; empty for loopback and Unix sockets, which are exempt from
// the limit per address. An IPv4 address inside IPv6 counts as the IPv4 address. Of other IPv6 addresses only
// the first 8 bytes count, the network's half, since a host can have any number of addresses in its network.
std::string PeerOf(const sockaddr_storage& address) {
  if (address.ss_family == AF_INET) {
    const auto& four = reinterpret_cast<const sockaddr_in&>(address).sin_addr;
    if (ntohl(four.s_addr) >> 24 == 127) return "";
    return {reinterpret_cast<const char*>(&four), sizeof(four)};
  }
  if (address.ss_family != AF_INET6) return "";
  const auto& six = reinterpret_cast<const sockaddr_in6&>(address).sin6_addr;
  const char* bytes = reinterpret_cast<const char*>(&six);
  if (IN6_IS_ADDR_LOOPBACK(&six)) return "";
  if (IN6_IS_ADDR_V4MAPPED(&six)) return bytes[12] == 127 ? "" : std::string(bytes + 12, 4);
  return {bytes, 8};
}

// The kernel's number of a socket, unique while the socket is open.
ino_t SocketNumber(int fd) {
  struct stat status {};
  return fstat(fd, &status) == 0 && S_ISSOCK(status.st_mode) ? status.st_ino : 0;
}

}  // namespace

// The thread's own state. It needs no lock, because no other thread accesses it.
class Acceptor::Loop {
 public:
  Loop(Acceptor& acceptor, Listener listener, const Options& options, Take take)
      : acceptor_(acceptor), listener_(std::move(listener)), options_(options), take_(std::move(take)) {}

  void Run() {
    while (!acceptor_.thread_.stopping()) {
      Wait();
      HandOver();
      const absl::Time now = SteadyNow();
      if (now >= accept_from_ && !acceptor_.deaf_) Accept();
      if (now >= look_at_) {
        Sweep();
        look_at_ = now + kLook;
      }
      LogRefused();
    }
  }

 private:
  struct Waiting {
    Handle socket;
    std::string peer;
    absl::Time since;
    bool partial = false;  // some bytes have arrived, so poll cannot wait for more: looked at every kPause
  };
  struct Taken {
    ino_t number = 0;
    std::string peer;
  };

  void Wait() {
    const absl::Time now = SteadyNow();
    absl::Time until = std::min(look_at_, now + kLook);
    polled_.clear();
    polled_.push_back(acceptor_.thread_.wake());
    if (now < accept_from_) {
      until = std::min(until, accept_from_);
    } else if (!acceptor_.deaf_) {
      for (const Handle& socket : listener_.sockets) polled_.push_back({socket.get(), POLLIN, 0});
    }
    for (const Waiting& one : waiting_) {
      if (one.partial) {
        until = std::min(until, now + kPause);
      } else {
        polled_.push_back({one.socket.get(), POLLIN, 0});
      }
      until = std::min(until, one.since + options_.silence);
    }
    const int64_t wait = absl::ToInt64Milliseconds(until - now) + 1;
    (void)poll(polled_.data(), polled_.size(), static_cast<int>(std::clamp<int64_t>(wait, 0, 1000)));
  }

  // Hands over the connections that began correctly; closes those that waited too long or began wrongly.
  void HandOver() {
    const absl::Time now = SteadyNow();
    for (auto one = waiting_.begin(); one != waiting_.end();) {
      const Beginning beginning = Look(one->socket.get(), options_.tls);
      one->partial = beginning == Beginning::kPartial;
      const bool waits = beginning == Beginning::kMissing || beginning == Beginning::kPartial;
      if (waits && now < one->since + options_.silence) {
        ++one;
        continue;
      }
      if (waits) Count(telemetry::Refusal::kSilent);
      if (beginning == Beginning::kWrong) Count(telemetry::Refusal::kProtocol);
      if (beginning == Beginning::kGood) TakeOver(std::move(*one));
      one = waiting_.erase(one);
    }
  }

  void TakeOver(Waiting one) {
    if (taken_.size() >= options_.max_connections || IsFull(one.peer)) Sweep();
    if (taken_.size() >= options_.max_connections) return Count(telemetry::Refusal::kPlaces);
    if (IsFull(one.peer)) return Count(telemetry::Refusal::kAddress);
    const int fd = one.socket.get();
    Forget(fd);  // the number was free, so an earlier connection with it has been closed
    if (!one.peer.empty()) ++of_peer_[one.peer];
    taken_[fd] = {SocketNumber(fd), std::move(one.peer)};
    take_(std::move(one.socket));
  }

  bool IsFull(const std::string& peer) const {
    const auto found = of_peer_.find(peer);
    return found != of_peer_.end() && found->second >= options_.max_of_address;
  }

  void Forget(int fd) {
    const auto found = taken_.find(fd);
    if (found == taken_.end()) return;
    if (const auto peer = of_peer_.find(found->second.peer); peer != of_peer_.end() && --peer->second == 0) {
      of_peer_.erase(peer);
    }
    taken_.erase(found);
  }

  // Forgets the connections that their receiver has closed.
  void Sweep() {
    gone_.clear();
    for (const auto& [fd, taken] : taken_) {
      if (SocketNumber(fd) != taken.number) gone_.push_back(fd);
    }
    for (const int fd : gone_) Forget(fd);
    acceptor_.connections_ = taken_.size();
  }

  void Accept() {
    for (const Handle& socket : listener_.sockets) {
      for (int i = 0; i < kAcceptsAtATime; ++i) {
        if (waiting_.size() >= options_.max_silent && !MakeRoom()) return;
        if (!AcceptOne(socket.get())) break;
      }
    }
  }

  // Closes the oldest silent connection of the address that has the most of them.
  bool MakeRoom() {
    std::map<std::string_view, size_t> counts;
    for (const Waiting& one : waiting_) ++counts[one.peer];
    const auto most = std::max_element(counts.begin(), counts.end(),
                                       [](const auto& a, const auto& b) { return a.second < b.second; });
    const auto oldest = std::find_if(waiting_.begin(), waiting_.end(),
                                     [&](const Waiting& one) { return one.peer == most->first; });
    if (const absl::Time ripe = oldest->since + kGrace; SteadyNow() < ripe) {
      accept_from_ = ripe;
      return false;
    }
    waiting_.erase(oldest);
    Count(telemetry::Refusal::kSilent);
    return true;
  }

  // Returns false if no connection is waiting to be accepted.
  bool AcceptOne(int listening) {
    sockaddr_storage address{};
    socklen_t size = sizeof(address);
    Handle socket(
        accept4(listening, reinterpret_cast<sockaddr*>(&address), &size, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (socket.get() < 0) return Failed(listening, errno);
    if (socket.get() >= options_.reserved_from) {
      Count(telemetry::Refusal::kHandles);
      return true;
    }
    waiting_.push_back({std::move(socket), PeerOf(address), SteadyNow()});
    return true;
  }

  // accept reports pending network errors of the new connection (accept(2)); those concern that one only.
  bool Failed(int listening, int error) {
    switch (error) {
      case EAGAIN:
        return false;
      case EMFILE:
      case ENFILE:
        return RefuseByReserve(listening);
      case EINTR:
      case ECONNABORTED:
      case EPROTO:
      case ENETDOWN:
      case ENOPROTOOPT:
      case EHOSTDOWN:
      case ENONET:
      case EHOSTUNREACH:
      case EOPNOTSUPP:
      case ENETUNREACH:
        return true;  // an error of one connection: try the next
      default:        // ENOBUFS, ENOMEM and unknown errors
        telemetry::LogEvent(telemetry::LogLevel::kError, "accept_failed",
                            {{"message", std::strerror(error)}});
        accept_from_ = SteadyNow() + kPause;
        return false;
    }
  }

  bool RefuseByReserve(int listening) {
    reserve_ = Handle();
    const bool accepted = Handle(accept4(listening, nullptr, nullptr, SOCK_CLOEXEC)).get() >= 0;
    reserve_ = OpenReserve();
    if (accepted) {
      Count(telemetry::Refusal::kHandles);
    } else {
      accept_from_ =
          SteadyNow() + kPause;  // another thread took the freed handle, or the whole machine has none
    }
    return accepted;
  }

  void Count(telemetry::Refusal refusal) {
    ++acceptor_.refused_[static_cast<size_t>(refusal)];
    ++unlogged_[static_cast<size_t>(refusal)];
  }

  void LogRefused() {
    uint64_t total = 0;
    for (const uint64_t count : unlogged_) total += count;
    if (total == 0 || SteadyNow() < log_at_) return;
    log_at_ = SteadyNow() + kLog;
    const auto of = [&](telemetry::Refusal refusal) {
      return std::exchange(unlogged_[static_cast<size_t>(refusal)], 0);
    };
    telemetry::LogEvent(telemetry::LogLevel::kWarning, "connections_refused",
                        {{"handles", of(telemetry::Refusal::kHandles)},
                         {"places", of(telemetry::Refusal::kPlaces)},
                         {"address", of(telemetry::Refusal::kAddress)},
                         {"silent", of(telemetry::Refusal::kSilent)},
                         {"protocol", of(telemetry::Refusal::kProtocol)},
                         {"open", uint64_t{taken_.size()}}});
  }

  Acceptor& acceptor_;
  const Listener listener_;
  const Options options_;
  const Take take_;
  Handle reserve_ = OpenReserve();
  std::list<Waiting> waiting_;  // by age
  std::unordered_map<int, Taken> taken_;
  std::unordered_map<std::string, uint32_t> of_peer_;
  std::vector<int> gone_;
  std::vector<pollfd> polled_;
  std::array<uint64_t, telemetry::kNumRefusals> unlogged_{};
  absl::Time look_at_ = SteadyNow() + kLook;
  absl::Time log_at_ = SteadyNow();
  absl::Time accept_from_ = SteadyNow();
};

Acceptor::Acceptor(Listener listener, const Options& options, Take take)
    : address_(listener.address), dial_(listener.dial) {
  thread_.Start(std::make_unique<Loop>(*this, std::move(listener), options, std::move(take)));
}

}  // namespace evenkeel::server
