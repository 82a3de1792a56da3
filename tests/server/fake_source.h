// A data plane in memory: it keeps what was sent, and may hold it or fail.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "core/annotated_mutex.h"
#include "transport/transport.h"

namespace evenkeel::server {

class FakeTransport : public transport::Source {
 public:
  transport::Info info() const override { return {.name = "fake", .detail = "memory"}; }
  std::string address() const override { return "worker's address"; }

  absl::Status Connect(transport::SessionId session, const std::string& address,
                       const transport::Secret& secret) override {
    if (address == "bad") return absl::InvalidArgumentError("no address");
    MutexLock lock(mutex_);
    secrets_[session] = secret;
    return absl::OkStatus();
  }

  void Send(transport::SessionId, transport::RequestId request, std::span<const std::byte> bytes,
            const Digest& hash, absl::Duration, transport::Done done) override {
    absl::Status status;
    {
      MutexLock lock(mutex_);
      status = fail_;
      if (status.ok()) sent_[request] = {std::vector<std::byte>(bytes.begin(), bytes.end()), hash};
      if (hold_) {
        held_.push_back(std::move(done));
        return;
      }
    }
    done(status);
  }

  void Disconnect(transport::SessionId session) override {
    MutexLock lock(mutex_);
    secrets_.erase(session);
  }

  void LetGo() {
    std::vector<transport::Done> held;
    {
      MutexLock lock(mutex_);
      held.swap(held_);
      hold_ = false;
    }
    for (transport::Done& done : held) done(absl::OkStatus());
  }
  size_t connected() {
    MutexLock lock(mutex_);
    return secrets_.size();
  }
  // A copy of what was sent for `request`.
  std::pair<std::vector<std::byte>, Digest> Sent(uint64_t request) {
    MutexLock lock(mutex_);
    return sent_.at(request);
  }
  size_t num_held() {
    MutexLock lock(mutex_);
    return held_.size();
  }

  void Hold() {
    MutexLock lock(mutex_);
    hold_ = true;
  }
  void FailWith(absl::Status status) {
    MutexLock lock(mutex_);
    fail_ = std::move(status);
  }

 private:
  Mutex mutex_;
  std::map<uint64_t, std::pair<std::vector<std::byte>, Digest>> sent_ ABSL_GUARDED_BY(mutex_);
  std::map<uint64_t, transport::Secret> secrets_ ABSL_GUARDED_BY(mutex_);
  absl::Status fail_ ABSL_GUARDED_BY(mutex_);
  bool hold_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<transport::Done> held_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace evenkeel::server
