// One side of a transport in a process of its own, for tests that kill it, stop it or cut its network.
//
//   transport_peer source|sink BACKEND [DEVICE ADDRESS]
//
// Reads commands from standard input, a line each, and answers on standard output:
// clang-format off
//   hello                                   -> here
//   start CONNECT_TIMEOUT_MS                -> start good ADDRESS ENDPOINT (hexadecimal, host:port)
//                                              start failed WHY
//   connect SESSION ADDRESS ENDPOINT        -> connected CODE
//   send SESSION REQUEST BYTES TIMEOUT_MS   -> sent REQUEST CODE (when it ended)
//   expect SESSION REQUEST BYTES            -> expecting; received REQUEST CODE (when it ended)
//   cancel SESSION REQUEST                  -> cancelled
//   disconnect SESSION                      -> disconnected
//   fill                                    -> filled
//   check                                   -> buffers intact | buffers changed (any of them, since fill)
//   stop                                    -> stopped (destroys the transport)
// clang-format on
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <iostream>
#include <list>
#include <map>
#include <sstream>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "core/digest.h"
#include "tests/transport/peers.h"

namespace evenkeel::transport {
namespace {

constexpr std::byte kCanary{0x5a};

class Peer {
 public:
  Peer(bool is_source, Backend backend, std::string device, std::string address)
      : is_source_(is_source), backend_(backend), device_(std::move(device)), address_(std::move(address)) {}

  void Run() {
    for (std::string line; std::getline(std::cin, line);) {
      std::istringstream words(line);
      std::string command;
      words >> command;
      Do(command, words);
    }
    _exit(0);  // the test closed the pipe: nothing of the transport is of interest any more
  }

 private:
  void Do(const std::string& command, std::istream& words) {
    if (command == "hello") Say("here");
    if (command == "start") Start(words);
    if (command == "connect") Connect(words);
    if (command == "send") Send(words);
    if (command == "expect") Expect(words);
    if (command == "cancel") Cancel(words);
    if (command == "disconnect") Disconnect(words);
    if (command == "fill") Fill();
    if (command == "check") Check();
    if (command == "stop") Stop();
  }

  void Say(const std::string& line) {
    MutexLock lock(mutex_);
    std::cout << line << std::endl;
  }

  void Start(std::istream& words) {
    int64_t connect_timeout_ms;
    words >> connect_timeout_ms;
    Options options = OptionsFor(backend_);
    options.connect_timeout = absl::Milliseconds(connect_timeout_ms);
    if (!device_.empty()) {
      options.loopback_only = false;
      options.devices = device_;
    }
    absl::Status status;
    std::string address, endpoint = "none";
    if (is_source_) {
      auto worker = WorkerSide::Start(backend_, options, address_);
      status = worker.status();
      if (status.ok()) worker_ = *std::move(worker);
    } else {
      auto sink = MakeSink(backend_, options);
      status = sink.status();
      if (status.ok()) sink_ = *std::move(sink);
    }
    if (!status.ok()) return Say(absl::StrCat("start failed ", status.ToString()));
    address = is_source_ ? worker_->source().address() : sink_->address();
    if (is_source_) endpoint = worker_->endpoint();
    Say(absl::StrCat("start good ", address.empty() ? "00" : absl::BytesToHexString(address), " ", endpoint));
  }

  void Connect(std::istream& words) {
    SessionId session;
    std::string address, endpoint;
    words >> session >> address >> endpoint;
    address = absl::HexStringToBytes(address);
    absl::Status status = is_source_ ? worker_->source().Connect(session, address, SecretOf(3))
                                     : sink_->Connect(session, endpoint, address, SecretOf(3));
    Say(absl::StrCat("connected ", absl::StatusCodeToString(status.code())));
  }

  void Send(std::istream& words) {
    SessionId session;
    RequestId request;
    size_t bytes;
    int64_t timeout_ms;
    words >> session >> request >> bytes >> timeout_ms;
    auto [payload, is_new] = payloads_.try_emplace(bytes);
    if (is_new) {
      payload->second.first = Payload(bytes, bytes);
      payload->second.second = DigestOf(payload->second.first);
    }
    worker_->source().Send(
        session, request, payload->second.first, payload->second.second, absl::Milliseconds(timeout_ms),
        [this, request](absl::Status status) {
          Say(absl::StrCat("sent ", request, " ", absl::StatusCodeToString(status.code())));
        });
  }

  void Expect(std::istream& words) {
    SessionId session;
    RequestId request;
    size_t bytes;
    words >> session >> request >> bytes;
    buffers_.emplace_back(bytes);
    sink_->Expect(session, request, buffers_.back(), [this, request](absl::Status status) {
      Say(absl::StrCat("received ", request, " ", absl::StatusCodeToString(status.code())));
    });
    Say("expecting");
  }

  void Cancel(std::istream& words) {
    SessionId session;
    RequestId request;
    words >> session >> request;
    sink_->Cancel(session, request);
    Say("cancelled");
  }

  void Disconnect(std::istream& words) {
    SessionId session;
    words >> session;
    is_source_ ? worker_->source().Disconnect(session) : sink_->Disconnect(session);
    Say("disconnected");
  }

  void Fill() {
    for (auto& buffer : buffers_) std::fill(buffer.begin(), buffer.end(), kCanary);
    Say("filled");
  }

  void Check() {
    // Each byte is the one before it: one call a buffer, since a loop takes a sanitizer seconds.
    auto is_canary = [](const std::vector<std::byte>& buffer) {
      return buffer.front() == kCanary &&
             std::memcmp(buffer.data(), buffer.data() + 1, buffer.size() - 1) == 0;
    };
    Say(std::all_of(buffers_.begin(), buffers_.end(), is_canary) ? "buffers intact" : "buffers changed");
  }

  void Stop() {
    if (worker_ != nullptr) worker_->Reset();
    sink_.reset();
    Say("stopped");
  }

  const bool is_source_;
  const Backend backend_;
  const std::string device_, address_;
  std::map<size_t, std::pair<std::vector<std::byte>, Digest>> payloads_;
  std::list<std::vector<std::byte>> buffers_;
  std::unique_ptr<WorkerSide> worker_;
  std::unique_ptr<Sink> sink_;
  Mutex mutex_;
};

}  // namespace
}  // namespace evenkeel::transport

int main(int argc, char** argv) {
  using namespace evenkeel::transport;  // NOLINT
  if (argc < 3) return 2;
  Peer peer(std::string(argv[1]) == "source", BackendFromName(argv[2]), argc > 3 ? argv[3] : "",
            argc > 4 ? argv[4] : "127.0.0.1");
  peer.Run();
}
