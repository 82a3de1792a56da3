// What the fetching loop does with receive memory that its transport never gives back.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "client/control_plane.h"
#include "client/fetch_loop.h"
#include "client/sinks.h"
#include "core/part.h"
#include "tests/client/fake_worker.h"
#include "tests/client/forwarding_sink.h"

namespace evenkeel::client {
namespace {

using testing::Each;
using testing::HasSubstr;
using testing::Not;

// Gives back what arrives, and keeps the buffer of every request that is cancelled, as UCX does where a
// network card does not complete it: the callback is never destroyed.
class KeepingSink final : public ForwardingSink {
 public:
  using ForwardingSink::ForwardingSink;

  void Expect(transport::SessionId session, transport::RequestId request, std::span<std::byte> buffer,
              transport::Done done) override {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      expected_[request] = {done, buffer.size()};
    }
    ForwardingSink::Expect(session, request, buffer,
                           [this, request, done = std::move(done)](absl::Status status) {
                             if (status.ok()) {
                               std::lock_guard<std::mutex> lock(mutex_);
                               expected_.erase(request);
                             }
                             done(std::move(status));
                           });
  }
  void Cancel(transport::SessionId session, transport::RequestId request) override {
    ForwardingSink::Cancel(session, request);
    std::lock_guard<std::mutex> lock(mutex_);
    if (auto found = expected_.extract(request); !found.empty()) kept_.push_back(std::move(found.mapped()));
  }
  uint64_t buffers_abandoned() const override {
    std::lock_guard<std::mutex> lock(mutex_);
    return kept_.size();
  }
  uint64_t bytes_kept() const {
    std::lock_guard<std::mutex> lock(mutex_);
    uint64_t bytes = 0;
    for (const Kept& kept : kept_) bytes += ReceiveMemory::RoundUp(kept.bytes);
    return bytes;
  }

 private:
  struct Kept {
    transport::Done done;
    size_t bytes = 0;
  };

  mutable std::mutex mutex_;
  std::map<transport::RequestId, Kept> expected_;
  std::vector<Kept> kept_;
};

TEST(AbandonedBuffers, AreCountedAndNamedAndStepsGoOnWithoutThem) {
  constexpr uint64_t kSteps = 12, kBudget = 1 << 16;
  FakeWorkerOptions made;
  made.behave = [](const PartName&, uint32_t attempt) {
    Behaviour behaviour;
    if (attempt == 0) behaviour.kind = Behaviour::Kind::kFail;
    return behaviour;
  };
  FakeWorker a(made), b(made);

  ConsumerOptions options;
  options.transport = "grpc";
  options.prefetch_bytes = kBudget;
  options.step_timeout = absl::Minutes(3);
  std::vector<std::string> lines;  // written by the loop's thread, read when that has ended
  auto inbox = std::make_unique<Inbox>();
  auto control = ControlPlane::Make(nullptr, "", inbox.get());
  auto inner = MakeSink(options, nullptr, {"grpc"}, "", {});
  ASSERT_TRUE(inner.ok()) << inner.status();
  KeepingSink sink(*std::move(inner));
  auto memory = ReceiveMemory::Create(kBudget);
  ASSERT_TRUE(memory.ok()) << memory.status();
  FetchLoop loop(options, {made.stream_version, made.stream_digest, made.layout_digest},
                 {inbox.get(), control.get(), &sink, *memory, [] {},
                  [&](const std::string& line) { lines.push_back(line); },
                  [](const std::string&) { return absl::OkStatus(); }});
  (*memory)->OnFreed([&] { inbox->Post({0, Woken()}); });
  inbox->Post({0, EndpointsChanged{absl::OkStatus(), {a.endpoint(), b.endpoint()}}});
  std::thread thread([&] { loop.Run(); });

  [&] {
    for (uint64_t i = 0; i < kSteps; ++i) {
      auto step = loop.Next();
      ASSERT_TRUE(step.ok()) << step.status();
      for (const PartName& name : FakeParts(i, 0)) {
        const std::vector<std::byte> expected = FakePart(name, made.part_bytes);
        const absl::StatusOr<PartView> view = ReadPart(expected);
        const auto part = std::ranges::find_if((*step)->parts, [&](const auto& p) { return p.name == name; });
        ASSERT_NE(part, (*step)->parts.end());
        EXPECT_TRUE(std::ranges::equal(part->view.tensors[0].bytes(), view->tensors[0].bytes()));
      }
    }
  }();
  loop.Stop();
  thread.join();
  (*memory)->OnFreed(nullptr);

  EXPECT_GT(sink.bytes_kept(), kBudget) << "more was lost than there was";
  EXPECT_EQ((*memory)->bytes_delivered(), sink.bytes_kept());
  EXPECT_EQ((*memory)->bytes_in_use(), sink.bytes_kept()) << "no more than that is missing";
  std::erase_if(lines, [](const std::string& line) { return line.find("did not release") == line.npos; });
  EXPECT_EQ(lines.size(), sink.buffers_abandoned());
  EXPECT_THAT(lines, Each(HasSubstr("check the network card")));
  EXPECT_THAT(lines, Each(Not(HasSubstr(" 0 bytes"))));
}

}  // namespace
}  // namespace evenkeel::client
