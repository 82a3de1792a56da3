// One poll loop: each connection reads a request, gets a reply, writes it, and is closed.
#include "server/http_responder.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <list>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/status.h"
#include "core/steady_time.h"

namespace evenkeel::server {
namespace {

constexpr size_t kMaxConnections = 64;
constexpr size_t kMaxRequestBytes = 8192;
constexpr absl::Duration kPatience = absl::Seconds(5);  // for a request, and for a reply
constexpr absl::Duration kPause = absl::Milliseconds(50);
constexpr int kAcceptsAtATime = 16;

std::string_view ReasonOf(int code) {
  switch (code) {
    case 200:
      return "OK";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 503:
      return "Service Unavailable";
    default:
      return "Bad Request";
  }
}

std::string Serialize(const HttpResponder::Reply& reply, bool with_body) {
  std::string text = absl::StrCat("HTTP/1.1 ", reply.code, " ", std::string(ReasonOf(reply.code)),
                                  "\r\nContent-Type: ", reply.type, "\r\nContent-Length: ", reply.body.size(),
                                  "\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n");
  if (with_body) text += reply.body;
  return text;
}

std::string Respond(std::string_view request, const HttpResponder::Answer& answer) {
  const std::string_view line = request.substr(0, request.find("\r\n"));
  const size_t first = line.find(' '), last = line.rfind(' ');
  if (first == std::string_view::npos || last == first || line.substr(last + 1).substr(0, 7) != "HTTP/1.") {
    return Serialize({.code = 400, .body = "not a request of HTTP/1\n"}, true);
  }
  const std::string_view method = line.substr(0, first);
  if (method != "GET" && method != "HEAD") return Serialize({.code = 405, .body = "GET or HEAD\n"}, true);
  const std::string_view target = line.substr(first + 1, last - first - 1);
  return Serialize(answer(target.substr(0, target.find('?'))), method == "GET");
}

}  // namespace

// The thread's own state. It needs no lock, because no other thread accesses it.
class HttpResponder::Loop {
 public:
  Loop(HttpResponder& responder, Listener listener, Answer answer)
      : responder_(responder), listener_(std::move(listener)), answer_(std::move(answer)) {}

  void Run() {
    while (!responder_.thread_.stopping()) {
      Wait();
      const absl::Time now = SteadyNow();
      for (auto one = connections_.begin(); one != connections_.end();) {
        const bool goes_on = (one->reply.empty() ? Read(*one) : Write(*one)) && now < one->deadline;
        one = goes_on ? std::next(one) : connections_.erase(one);
      }
      if (reserve_.get() < 0) reserve_ = OpenReserve();
      if (now >= accept_from_) Accept();
    }
  }

 private:
  struct Connection {
    Handle socket;
    absl::Time deadline;
    std::string request = {};
    std::string reply = {};  // empty until the request is complete
    size_t written = 0;
  };

  void Wait() {
    const absl::Time now = SteadyNow();
    absl::Time until = now + kPatience;
    polled_.clear();
    polled_.push_back(responder_.thread_.wake());
    if (now >= accept_from_) {
      for (const Handle& socket : listener_.sockets) polled_.push_back({socket.get(), POLLIN, 0});
    } else {
      until = accept_from_;
    }
    for (const Connection& one : connections_) {
      polled_.push_back({one.socket.get(), static_cast<short>(one.reply.empty() ? POLLIN : POLLOUT), 0});
      until = std::min(until, one.deadline);
    }
    const int64_t wait = absl::ToInt64Milliseconds(until - now) + 1;
    (void)poll(polled_.data(), polled_.size(), static_cast<int>(std::clamp<int64_t>(wait, 0, 5000)));
  }

  // Returns false if the connection is finished.
  bool Read(Connection& one) {
    char bytes[2048];
    for (;;) {
      const ssize_t got = recv(one.socket.get(), bytes, sizeof(bytes), MSG_DONTWAIT);
      if (got < 0) return errno == EAGAIN || errno == EINTR;
      if (got == 0) return false;
      one.request.append(bytes, static_cast<size_t>(got));
      if (one.request.find("\r\n\r\n") != std::string::npos) break;
      if (one.request.size() > kMaxRequestBytes) return false;
    }
    one.reply = Respond(one.request, answer_);
    one.deadline = SteadyNow() + kPatience;
    return Write(one);
  }

  bool Write(Connection& one) {
    while (one.written < one.reply.size()) {
      const ssize_t sent = send(one.socket.get(), one.reply.data() + one.written,
                                one.reply.size() - one.written, MSG_DONTWAIT | MSG_NOSIGNAL);
      if (sent < 0) return errno == EAGAIN || errno == EINTR;
      one.written += static_cast<size_t>(sent);
    }
    (void)shutdown(one.socket.get(), SHUT_WR);
    return false;
  }

  void Accept() {
    for (const Handle& socket : listener_.sockets) {
      for (int i = 0; i < kAcceptsAtATime; ++i) {
        Handle connection(accept4(socket.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
        if (connection.get() < 0) {
          if ((errno == EMFILE || errno == ENFILE) && Waits(socket) && FindHandle()) continue;
          break;
        }
        if (connections_.size() >= kMaxConnections) MakeRoom();
        connections_.push_back({std::move(connection), SteadyNow() + kPatience});
        // Most clients have sent their request by now, which saves a round of poll.
        if (!Read(connections_.back())) connections_.pop_back();
      }
    }
  }

  void MakeRoom() {
    auto oldest = std::find_if(connections_.begin(), connections_.end(),
                               [](const Connection& one) { return one.reply.empty(); });
    connections_.erase(oldest != connections_.end() ? oldest : connections_.begin());
  }

  // accept fails with EMFILE whether or not a connection is waiting, so poll has to answer that.
  static bool Waits(const Handle& listening) {
    pollfd one{listening.get(), POLLIN, 0};
    return poll(&one, 1, 0) == 1;
  }

  // No handle is left: frees the reserve, or else the oldest connection's. Returns false if there is neither.
  bool FindHandle() {
    if (reserve_.get() >= 0) {
      reserve_ = Handle();
      return true;
    }
    if (connections_.empty()) {
      accept_from_ = SteadyNow() + kPause;
      return false;
    }
    MakeRoom();
    return true;
  }

  HttpResponder& responder_;
  const Listener listener_;
  const Answer answer_;
  Handle reserve_ = OpenReserve();
  std::list<Connection> connections_;  // by age
  std::vector<pollfd> polled_;
  absl::Time accept_from_ = SteadyNow();
};

HttpResponder::HttpResponder(Listener listener, Answer answer) : address_(listener.address) {
  thread_.Start(std::make_unique<Loop>(*this, std::move(listener), std::move(answer)));
}

absl::StatusOr<std::unique_ptr<HttpResponder>> HttpResponder::Start(const std::string& option,
                                                                    const std::string& address,
                                                                    Answer answer) {
  EVENKEEL_ASSIGN_OR_RETURN(Listener listener, Listen(option, address));
  return std::unique_ptr<HttpResponder>(new HttpResponder(std::move(listener), std::move(answer)));
}

}  // namespace evenkeel::server
