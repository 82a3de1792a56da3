// A sink that does what another one does, for tests to change some of it.
//
//   class SlowSink : public ForwardingSink {
//     using ForwardingSink::ForwardingSink;
//     void Expect(...) override { ...; ForwardingSink::Expect(...); }
//   };
//
// Thread safety: that of the other sink.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <utility>

#include "transport/transport.h"

namespace evenkeel::client {

class ForwardingSink : public transport::Sink {
 public:
  explicit ForwardingSink(std::unique_ptr<transport::Sink> sink) : sink_(std::move(sink)) {}

  transport::Info info() const override { return sink_->info(); }
  std::string address() const override { return sink_->address(); }
  absl::Status Connect(transport::SessionId session, const std::string& endpoint, const std::string& peer,
                       const transport::Secret& secret) override {
    return sink_->Connect(session, endpoint, peer, secret);
  }
  void Expect(transport::SessionId session, transport::RequestId request, std::span<std::byte> buffer,
              transport::Done done) override {
    sink_->Expect(session, request, buffer, std::move(done));
  }
  void Cancel(transport::SessionId session, transport::RequestId request) override {
    sink_->Cancel(session, request);
  }
  void Disconnect(transport::SessionId session) override { sink_->Disconnect(session); }
  absl::Status RegisterMemory(std::span<std::byte> memory) override { return sink_->RegisterMemory(memory); }
  void UnregisterMemory(std::span<std::byte> memory) override { sink_->UnregisterMemory(memory); }
  uint64_t bytes_received() const override { return sink_->bytes_received(); }
  uint64_t bytes_arrived(transport::SessionId session) const override {
    return sink_->bytes_arrived(session);
  }
  uint64_t messages_dropped() const override { return sink_->messages_dropped(); }
  uint64_t buffers_abandoned() const override { return sink_->buffers_abandoned(); }

 private:
  const std::unique_ptr<transport::Sink> sink_;
};

}  // namespace evenkeel::client
