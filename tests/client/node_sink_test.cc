// Sessions of one consumer with workers of its machine and with others, each over its own transport.
#include "client/node_sink.h"

#include <gtest/gtest.h>

#include "core/digest.h"
#include "tests/transport/peers.h"
#include "transport/address.h"

namespace evenkeel::client {
namespace {

using transport::Backend;
using transport::Outcome;

class NodeSinkTest : public testing::Test {
 protected:
  void SetUp() override {
    for (Backend backend : {Backend::kMemory, Backend::kGrpc}) {
      auto worker = transport::WorkerSide::Start(backend, transport::OptionsFor(backend));
      ASSERT_TRUE(worker.ok()) << worker.status();
      workers_.push_back(*std::move(worker));
    }
    sink_ = std::make_unique<NodeSink>(
        *transport::MakeSink(Backend::kMemory, transport::OptionsFor(Backend::kMemory)),
        *transport::MakeSink(Backend::kGrpc, transport::OptionsFor(Backend::kGrpc)));
  }
  absl::Status Open(transport::WorkerSide& worker, uint64_t session, const std::string& address) {
    const absl::Status known =
        worker.source().Connect(session, sink_->memory_address(), transport::SecretOf(1));
    if (!known.ok()) return known;
    return sink_->Connect(session, worker.endpoint(), address, transport::SecretOf(1));
  }
  void ExpectAPart(transport::WorkerSide& worker, uint64_t session) {
    const std::vector<std::byte> content = transport::Payload(300'000, session);
    std::vector<std::byte> buffer(content.size());
    Outcome sent, arrived;
    sink_->Expect(session, 1, buffer, arrived.callback());
    worker.source().Send(session, 1, content, DigestOf(content), absl::Seconds(50), sent.callback());
    EXPECT_TRUE(arrived.Wait().ok()) << arrived.Wait();
    EXPECT_TRUE(sent.Wait().ok()) << "until then the transport reads the content";
    EXPECT_TRUE(buffer == content);
    EXPECT_EQ(sink_->bytes_arrived(session), content.size());
  }

  std::vector<std::unique_ptr<transport::WorkerSide>> workers_;  // of this machine, of another
  std::unique_ptr<NodeSink> sink_;
};

TEST_F(NodeSinkTest, LetsTheWorkersAddressDecide) {
  EXPECT_EQ(sink_->info().name, "grpc") << "what a worker of another machine is asked for";
  ASSERT_TRUE(Open(*workers_[1], 2, workers_[1]->source().address()).ok());
  EXPECT_EQ(sink_->used().name, "grpc");
  ASSERT_TRUE(Open(*workers_[0], 1, workers_[0]->source().address()).ok());
  EXPECT_EQ(sink_->used().name, "memory");
  ExpectAPart(*workers_[0], 1);
  ExpectAPart(*workers_[1], 2);
  EXPECT_EQ(sink_->bytes_received(), 600'000);
  sink_->Disconnect(1);
  sink_->Disconnect(2);
  ASSERT_TRUE(Open(*workers_[1], 1, workers_[1]->source().address()).ok()) << "the number is free again";
  ExpectAPart(*workers_[1], 1);
}

TEST_F(NodeSinkTest, ReplacesPagesOnlyOfSessionsInMemory) {
  std::vector<std::byte> arena(1 << 20);
  ASSERT_TRUE(sink_->RegisterMemory(arena).ok());
  ASSERT_TRUE(Open(*workers_[0], 1, workers_[0]->source().address()).ok());
  ASSERT_TRUE(Open(*workers_[1], 2, workers_[1]->source().address()).ok());
  EXPECT_TRUE(sink_->replaces_pages(1));
  EXPECT_FALSE(sink_->replaces_pages(2));
}

TEST_F(NodeSinkTest, RefusesAtOnceWhatNobodyListensAt) {
  const std::string address = transport::WrapAddress({.role = transport::AddressRole::kSource,
                                                      .memory = true,
                                                      .host = transport::ThisHost(),
                                                      .worker = "evenkeel-nobody"});
  const absl::Time begin = absl::Now();
  EXPECT_TRUE(absl::IsUnavailable(Open(*workers_[0], 1, address)));
  EXPECT_LT(absl::Now() - begin, absl::Seconds(5)) << "others are asked without delay";
  EXPECT_EQ(sink_->used().name, "grpc");
}

TEST_F(NodeSinkTest, KnowsMemoryOfAnotherMachineFromItsOwn) {
  transport::Address address{
      .role = transport::AddressRole::kSource, .memory = true, .host = transport::ThisHost(), .worker = "x"};
  EXPECT_TRUE(transport::IsMemoryOfThisHost(transport::WrapAddress(address)));
  ++address.host;
  EXPECT_FALSE(transport::IsMemoryOfThisHost(transport::WrapAddress(address)));
  EXPECT_FALSE(transport::IsMemoryOfThisHost(""));
  // A worker refuses the session, and a consumer the worker, with a reason that tells what to do.
  const absl::Status refused = workers_[0]->source().Connect(
      1,
      transport::WrapAddress(
          {.role = transport::AddressRole::kSink, .memory = true, .host = transport::ThisHost() + 1}),
      transport::SecretOf(1));
  EXPECT_TRUE(absl::IsFailedPrecondition(refused)) << refused;
  EXPECT_NE(refused.message().find("another machine"), absl::string_view::npos) << refused;
}

}  // namespace
}  // namespace evenkeel::client
