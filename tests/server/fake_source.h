// A data plane in memory: it keeps what was sent, and may hold it or fail.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "core/annotated_mutex.h"
#include "transport/transport.h"

namespace evenkeel {

class FakeTransport : public transport::Source {
 public:
  transport::Info info() const override { return {.name = "fake", .detail = "memory"}; }
  std::string address() const override { return "worker's address"; }

  absl::Status Connect(transport::SessionId session, const std::string& address,
                       const transport::Secret& secret) override {
    if (address == "bad") return absl::InvalidArgumentError("no address");
    MutexLock lock(mutex_);
    secrets[session] = secret;
    return absl::OkStatus();
  }

  void Send(transport::SessionId, transport::RequestId request, std::span<const std::byte> bytes,
            const Digest& hash, absl::Duration, transport::Done done) override {
    absl::Status status;
    {
      MutexLock lock(mutex_);
      status = fail;
      if (status.ok()) sent[request] = {std::vector<std::byte>(bytes.begin(), bytes.end()), hash};
      if (hold) {
        held_.push_back(std::move(done));
        return;
      }
    }
    done(status);
  }

  void Disconnect(transport::SessionId session) override {
    MutexLock lock(mutex_);
    secrets.erase(session);
  }

  void LetGo() {
    std::vector<transport::Done> held;
    {
      MutexLock lock(mutex_);
      held.swap(held_);
      hold = false;
    }
    for (transport::Done& done : held) done(absl::OkStatus());
  }
  size_t connected() {
    MutexLock lock(mutex_);
    return secrets.size();
  }
  size_t num_held() {
    MutexLock lock(mutex_);
    return held_.size();
  }

  // Set before use; read under the lock.
  std::map<uint64_t, std::pair<std::vector<std::byte>, Digest>> sent;
  std::map<uint64_t, transport::Secret> secrets;
  absl::Status fail;
  bool hold = false;

 private:
  Mutex mutex_;
  std::vector<transport::Done> held_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace evenkeel
