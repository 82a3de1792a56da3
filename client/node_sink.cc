// Sends every call to the transport of its session, which the worker's address decides.
#include "client/node_sink.h"

#include "transport/address.h"

namespace evenkeel::client {

transport::Info NodeSink::used() const {
  MutexLock lock(mutex_);
  return latest_in_memory_ ? memory_->info() : far_->info();
}

transport::Sink& NodeSink::Of(transport::SessionId session) const {
  MutexLock lock(mutex_);
  return in_memory_.contains(session) ? *memory_ : *far_;
}

absl::Status NodeSink::Connect(transport::SessionId session, const std::string& endpoint,
                               const std::string& peer_address, const transport::Secret& secret) {
  const bool in_memory = transport::IsMemoryOfThisHost(peer_address);
  const absl::Status connected =
      (in_memory ? memory_ : far_)->Connect(session, endpoint, peer_address, secret);
  if (!connected.ok()) return connected;
  MutexLock lock(mutex_);
  latest_in_memory_ = in_memory;
  if (in_memory) in_memory_.insert(session);
  return connected;
}

void NodeSink::Disconnect(transport::SessionId session) {
  Of(session).Disconnect(session);
  MutexLock lock(mutex_);
  in_memory_.erase(session);
}

// A network card that knows the memory's pages would go on writing to those that were replaced. So with UCX
// parts of this machine are copied.
absl::Status NodeSink::RegisterMemory(std::span<std::byte> memory) {
  if (far_->info().name != "grpc") return far_->RegisterMemory(memory);
  return memory_->RegisterMemory(memory);
}

void NodeSink::UnregisterMemory(std::span<std::byte> memory) {
  memory_->UnregisterMemory(memory);
  far_->UnregisterMemory(memory);
}

}  // namespace evenkeel::client
