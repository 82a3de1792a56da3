// What happens to buffers that UCX, closed by force, does not give back. It has never been seen to do that,
// so functions of this program stand in for three of UCX's: receives and sends that were "swallowed" are
// never begun and never complete. To come there, UCX's TCP is made to look like RDMA, which takes the
// rendezvous.
#include <gtest/gtest.h>
#include <ucp/api/ucp.h>

#include <atomic>
#include <cstdio>
#include <vector>

#include "tests/transport/peers.h"
#include "transport/ucx_library.h"

namespace {

std::atomic<bool> swallow_receives = false;
std::atomic<bool> swallow_sends = false;
std::atomic<int> swallowed = 0;       // by the test that runs
std::atomic<int> swallowed_ever = 0;  // by all of them

// What UCX returns of an operation that goes on. It holds what is to be told of its end, as UCX does.
ucs_status_ptr_t GoesOnForever(const ucp_request_param_t* parameters) {
  static auto& held = *new std::vector<std::atomic<void*>>(4096);
  static int request = 0;
  const int number = swallowed_ever++;
  held.at(number) = parameters->user_data;
  ++swallowed;
  return &request;
}

}  // namespace

namespace evenkeel::transport {
namespace {

constexpr size_t kBytes = 1 << 20;

UcxFunctions original;

void PrintAnRdmaLane(ucp_ep_h, FILE* stream) {
  fputs("#  lane[0]:  0:rc_mlx5/test:1.0 md[0] -> am\n", stream);
}

ucs_status_ptr_t ReceiveOrSwallow(ucp_worker_h worker, void* descriptor, void* buffer, size_t count,
                                  const ucp_request_param_t* parameters) {
  if (swallow_receives) return GoesOnForever(parameters);
  return original.ucp_am_recv_data_nbx(worker, descriptor, buffer, count, parameters);
}

ucs_status_ptr_t SendOrSwallow(ucp_ep_h endpoint, unsigned id, const void* header, size_t header_bytes,
                               const void* buffer, size_t count, const ucp_request_param_t* parameters) {
  if (swallow_sends && (parameters->flags & UCP_AM_SEND_FLAG_RNDV) != 0) return GoesOnForever(parameters);
  return original.ucp_am_send_nbx(endpoint, id, header, header_bytes, buffer, count, parameters);
}

class AbandonedTest : public testing::Test {
 protected:
  using Bytes = std::vector<std::byte>;

  static void SetUpTestSuite() {
    ASSERT_TRUE(LoadUcx().ok());
    original = Ucx();
    Ucx().ucp_ep_print_info = PrintAnRdmaLane;
    Ucx().ucp_am_recv_data_nbx = ReceiveOrSwallow;
    Ucx().ucp_am_send_nbx = SendOrSwallow;
  }

  void SetUp() override {
    swallow_receives = swallow_sends = false;
    swallowed = 0;
    Options options = OptionsFor(Backend::kUcx);
    options.completion_timeout = absl::Milliseconds(100);
    auto worker = WorkerSide::Start(Backend::kUcx, options);
    ASSERT_TRUE(worker.ok()) << worker.status();
    worker_ = *std::move(worker);
    auto sink = MakeSink(Backend::kUcx, options);
    ASSERT_TRUE(sink.ok()) << sink.status();
    sink_ = *std::move(sink);
    ASSERT_TRUE(worker_->source().info().is_rdma);
  }

  void Open(SessionId session) {
    ASSERT_TRUE(worker_->source().Connect(session, sink_->address(), SecretOf(1)).ok());
    ASSERT_TRUE(sink_->Connect(session, worker_->endpoint(), worker_->source().address(), SecretOf(1)).ok());
  }
  // Both own their bytes, as the contract wants it.
  Outcome Expect(SessionId session, RequestId request, const std::shared_ptr<Bytes>& buffer) {
    Outcome outcome;
    sink_->Expect(session, request, *buffer,
                  [buffer, done = outcome.callback()](absl::Status status) { done(std::move(status)); });
    return outcome;
  }
  Outcome Send(SessionId session, RequestId request, const std::shared_ptr<Bytes>& bytes) {
    Outcome outcome;
    worker_->source().Send(
        session, request, *bytes, DigestOf(*bytes), absl::Seconds(60),
        [bytes, done = outcome.callback()](absl::Status status) { done(std::move(status)); });
    return outcome;
  }
  void ExpectThatASessionWorks(SessionId session) {
    ASSERT_NO_FATAL_FAILURE(Open(session));
    auto buffer = std::make_shared<Bytes>(kBytes);
    auto bytes = std::make_shared<Bytes>(Payload(kBytes, session));
    Outcome received = Expect(session, 1, buffer);
    Outcome sent = Send(session, 1, bytes);
    EXPECT_TRUE(received.Wait().ok()) << received.Wait();
    EXPECT_TRUE(sent.Wait().ok()) << sent.Wait();
    EXPECT_EQ(*buffer, *bytes);
    sink_->Disconnect(session);
    worker_->source().Disconnect(session);
    EXPECT_EQ(buffer.use_count(), 1);
    EXPECT_EQ(bytes.use_count(), 1);
  }
  // What UCX was told to do is done by its own thread.
  void WaitUntilSwallowed(int count) {
    while (swallowed < count) absl::SleepFor(absl::Milliseconds(1));
  }

  std::unique_ptr<WorkerSide> worker_;
  std::unique_ptr<Sink> sink_;
};

TEST_F(AbandonedTest, ACancelEndsAndTheBufferLivesOn) {
  ASSERT_NO_FATAL_FAILURE(ExpectThatASessionWorks(1));
  ASSERT_NO_FATAL_FAILURE(Open(2));
  swallow_receives = true;
  auto first = std::make_shared<Bytes>(kBytes), second = std::make_shared<Bytes>(kBytes);
  Outcome received_first = Expect(2, 1, first), received_second = Expect(2, 2, second);
  Send(2, 1, std::make_shared<Bytes>(Payload(kBytes, 1)));
  WaitUntilSwallowed(1);
  sink_->Cancel(2, 1);
  EXPECT_TRUE(received_first.done());
  EXPECT_TRUE(absl::IsCancelled(received_first.Wait())) << received_first.Wait();
  EXPECT_EQ(first.use_count(), 2) << "the transport holds it, for whoever still writes into it";
  EXPECT_EQ(sink_->buffers_abandoned(), 1u);
  // The session is gone, and with it the request that nothing had been written for: its buffer is free.
  EXPECT_TRUE(absl::IsUnavailable(received_second.Wait())) << received_second.Wait();
  sink_->Cancel(2, 2);
  EXPECT_EQ(second.use_count(), 1);
  sink_->Cancel(2, 1);  // once more: nothing is left of it
  EXPECT_EQ(received_first.calls(), 1);
  sink_->Disconnect(2);
  worker_->source().Disconnect(2);
  swallow_receives = false;
  ExpectThatASessionWorks(3);
}

TEST_F(AbandonedTest, ADisconnectEndsAndTheBuffersLiveOn) {
  ASSERT_NO_FATAL_FAILURE(Open(1));
  swallow_receives = true;
  std::vector<std::shared_ptr<Bytes>> buffers;
  std::vector<Outcome> received;
  for (RequestId request = 1; request <= 3; ++request) {
    buffers.push_back(std::make_shared<Bytes>(kBytes));
    received.push_back(Expect(1, request, buffers.back()));
    Send(1, request, std::make_shared<Bytes>(Payload(kBytes, request)));
  }
  WaitUntilSwallowed(3);
  sink_->Disconnect(1);
  for (size_t i = 0; i < received.size(); ++i) {
    EXPECT_TRUE(received[i].done());
    EXPECT_TRUE(absl::IsCancelled(received[i].Wait())) << received[i].Wait();
    EXPECT_EQ(buffers[i].use_count(), 2);
  }
  EXPECT_EQ(sink_->buffers_abandoned(), 3u);
}

TEST_F(AbandonedTest, ASinkThatHasSessionsWhichDoNotEndCanBeDestroyed) {
  for (SessionId session = 1; session <= 3; ++session) ASSERT_NO_FATAL_FAILURE(Open(session));
  swallow_receives = true;
  std::vector<Outcome> received;
  auto buffer = std::make_shared<Bytes>(kBytes);
  for (SessionId session = 1; session <= 3; ++session) {
    received.push_back(Expect(session, 1, buffer));
    Send(session, 1, std::make_shared<Bytes>(Payload(kBytes, session)));
  }
  WaitUntilSwallowed(3);
  sink_.reset();
  for (Outcome& outcome : received) EXPECT_TRUE(outcome.done());
  EXPECT_EQ(buffer.use_count(), 4);
}

TEST_F(AbandonedTest, ASendsBytesLiveOnAndItsSourceCanBeDestroyed) {
  ASSERT_NO_FATAL_FAILURE(ExpectThatASessionWorks(1));
  for (SessionId session = 2; session <= 3; ++session) ASSERT_NO_FATAL_FAILURE(Open(session));
  swallow_sends = true;
  auto bytes = std::make_shared<Bytes>(Payload(kBytes, 1));
  Outcome first = Send(2, 1, bytes), second = Send(3, 1, bytes);
  WaitUntilSwallowed(2);
  worker_->source().Disconnect(2);
  EXPECT_TRUE(first.done());
  EXPECT_TRUE(absl::IsCancelled(first.Wait())) << first.Wait();
  EXPECT_EQ(worker_->source().buffers_abandoned(), 1u);
  worker_->Reset();
  EXPECT_TRUE(absl::IsCancelled(second.Wait())) << second.Wait();
  EXPECT_EQ(bytes.use_count(), 3);
}

}  // namespace
}  // namespace evenkeel::transport
