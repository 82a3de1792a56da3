// What every transport promises (transport/transport.h), as tests that run over each of them.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "tests/transport/peers.h"

namespace evenkeel::transport {

// A source and a sink in this process; sessions opened as server and client do.
class Conformance : public testing::TestWithParam<Backend> {
 protected:
  void SetUp() override { ASSERT_NO_FATAL_FAILURE(Make(OptionsFor(GetParam()))); }
  void Make(const Options& options);

  Source& source() { return worker_->source(); }
  Sink& sink() { return *sink_; }
  // Connects both sides with secrets of these values.
  absl::Status Open(SessionId session, uint8_t source_secret = 7, uint8_t sink_secret = 7);
  // Sends `payload` as `request` and returns what the receiver got to know; `received` holds what it
  // received.
  absl::Status Transfer(SessionId session, RequestId request, const std::vector<std::byte>& payload,
                        std::vector<std::byte>* received);
  void Send(SessionId session, RequestId request, const std::vector<std::byte>& payload, Outcome* outcome,
            absl::Duration timeout = absl::Seconds(50));
  void Expect(SessionId session, RequestId request, std::vector<std::byte>* buffer, Outcome* outcome);

  std::unique_ptr<WorkerSide> worker_;
  std::unique_ptr<Sink> sink_;
};

std::string NameOfCase(const testing::TestParamInfo<Backend>& info);

}  // namespace evenkeel::transport
