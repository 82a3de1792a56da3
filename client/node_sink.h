// The data plane of a consumer that may have workers on its own machine: sealed memory for those, another
// transport for the rest.
//
//   OpenSession carries the addresses of both; a worker of this machine answers with one of sealed memory,
//   any other with one of the other transport. So each session takes the best way that its worker has.
//
// Thread safety: all members may be called from many threads.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_set>

#include "core/annotated_mutex.h"
#include "transport/transport.h"

namespace evenkeel::client {

class NodeSink final : public transport::Sink {
 public:
  NodeSink(std::unique_ptr<transport::Sink> memory, std::unique_ptr<transport::Sink> far)
      : memory_(std::move(memory)), far_(std::move(far)) {}

  // Of the other transport.
  transport::Info info() const override { return far_->info(); }
  std::string address() const override { return far_->address(); }
  std::string memory_address() const override { return memory_->address(); }
  // That of the latest session.
  transport::Info used() const override;

  absl::Status Connect(transport::SessionId session, const std::string& endpoint,
                       const std::string& peer_address, const transport::Secret& secret) override;
  void Expect(transport::SessionId session, transport::RequestId request, std::span<std::byte> buffer,
              transport::Done done) override {
    Of(session).Expect(session, request, buffer, std::move(done));
  }
  void Cancel(transport::SessionId session, transport::RequestId request) override {
    Of(session).Cancel(session, request);
  }
  void Disconnect(transport::SessionId session) override;
  absl::Status RegisterMemory(std::span<std::byte> memory) override;
  void UnregisterMemory(std::span<std::byte> memory) override;
  bool replaces_pages(transport::SessionId session) const override {
    return Of(session).replaces_pages(session);
  }
  uint64_t bytes_received() const override { return memory_->bytes_received() + far_->bytes_received(); }
  uint64_t bytes_arrived(transport::SessionId session) const override {
    return Of(session).bytes_arrived(session);
  }
  uint64_t messages_dropped() const override {
    return memory_->messages_dropped() + far_->messages_dropped();
  }
  uint64_t buffers_abandoned() const override { return far_->buffers_abandoned(); }

 private:
  transport::Sink& Of(transport::SessionId session) const ABSL_LOCKS_EXCLUDED(mutex_);

  const std::unique_ptr<transport::Sink> memory_, far_;
  mutable Mutex mutex_;
  std::unordered_set<transport::SessionId> in_memory_ ABSL_GUARDED_BY(mutex_);  // sessions that use `memory_`
  bool latest_in_memory_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace evenkeel::client
