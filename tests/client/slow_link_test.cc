// Bytes that arrive slowly are progress: a worker behind a slow link is not replaced.
#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

#include "absl/time/clock.h"
#include "client/control_plane.h"
#include "client/fetch_loop.h"
#include "client/sinks.h"
#include "core/part.h"
#include "tests/client/fake_worker.h"
#include "tests/client/forwarding_sink.h"

namespace evenkeel::client {
namespace {

const absl::Duration kTimeout = absl::Seconds(2);
const absl::Duration kTransfer = 3 * kTimeout;  // of a part, on the link

// A link that brings each part's bytes evenly within kTransfer of its start, and counts them.
class SlowSink final : public ForwardingSink {
 public:
  using ForwardingSink::ForwardingSink;
  ~SlowSink() override {
    for (std::thread& thread : threads_) thread.join();
  }

  void Expect(transport::SessionId session, transport::RequestId request, std::span<std::byte> buffer,
              transport::Done done) override {
    auto own = std::make_shared<std::vector<std::byte>>(buffer.size());
    ForwardingSink::Expect(session, request, *own, [=, this, done = std::move(done)](absl::Status status) {
      if (!status.ok()) return done(std::move(status));
      std::lock_guard<std::mutex> lock(mutex_);
      threads_.emplace_back([=, this] {
        for (int i = 0; i < 100; ++i) {
          absl::SleepFor(kTransfer / 100);
          std::lock_guard<std::mutex> inner(mutex_);
          arrived_[session] += own->size() / 100;
        }
        std::ranges::copy(*own, buffer.begin());
        done(absl::OkStatus());
      });
    });
  }
  uint64_t bytes_arrived(transport::SessionId session) const override {
    std::lock_guard<std::mutex> lock(mutex_);
    auto found = arrived_.find(session);
    return found == arrived_.end() ? 0 : found->second;
  }

 private:
  mutable std::mutex mutex_;
  std::map<transport::SessionId, uint64_t> arrived_;
  std::vector<std::thread> threads_;
};

ConsumerStats FetchSteps(uint64_t steps) {
  FakeWorker a, b;
  ConsumerOptions options;
  options.transport = "grpc";
  options.prefetch_bytes = 1 << 20;
  options.prefetch_steps = 1;
  options.num_steps = steps;  // nothing is requested after those that are counted
  options.progress_timeout = kTimeout;
  auto inbox = std::make_unique<Inbox>();
  auto control = ControlPlane::Make(nullptr, "", inbox.get());
  auto inner = MakeSink(options, nullptr, {"grpc"}, "", {});
  EXPECT_TRUE(inner.ok()) << inner.status();
  auto memory = ReceiveMemory::Create(options.prefetch_bytes);
  EXPECT_TRUE(memory.ok()) << memory.status();
  FakeWorkerOptions made;
  ConsumerStats stats;
  {
    SlowSink sink(*std::move(inner));
    FetchLoop loop(options, {made.stream_version, made.stream_digest, made.layout_digest},
                   {inbox.get(), control.get(), &sink, *memory, [] {}, [](const std::string&) {},
                    [](const std::string&) { return absl::OkStatus(); }});
    inbox->Post({0, EndpointsChanged{absl::OkStatus(), {a.endpoint(), b.endpoint()}}});
    std::thread thread([&] { loop.Run(); });
    for (uint64_t i = 0; i < steps; ++i) {
      auto step = loop.Next();
      EXPECT_TRUE(step.ok()) << step.status();
    }
    stats = loop.stats();
    loop.Stop();
    thread.join();
  }
  return stats;
}

TEST(SlowLink, NobodyIsReplacedWhileBytesArrive) {
  ConsumerStats stats = FetchSteps(2);
  EXPECT_EQ(stats.replaced_workers, 0);
  EXPECT_EQ(stats.duplicate_requests, 0);
  EXPECT_EQ(stats.requests, 6);
  EXPECT_EQ(stats.grey_workers, 0);
}

}  // namespace
}  // namespace evenkeel::client
