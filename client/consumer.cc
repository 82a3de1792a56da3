// Implements Consumer: creates endpoints, control plane, data plane, receive memory and the fetch loop, and
// destroys them in the order that their threads require.
#include "client/consumer.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <iostream>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/endpoints.h"
#include "client/fetch_loop.h"
#include "client/first_contact.h"
#include "client/sinks.h"
#include "core/cpu.h"
#include "core/job.h"
#include "core/status.h"

namespace evenkeel::client {
namespace {

constexpr uint32_t kMaxPrefetchSteps =
    1024;  // every step in the window costs a description, also without memory

absl::Status CheckOptions(const ConsumerOptions& options) {
  if (options.transport != "auto" && options.transport != "memory" && options.transport != "ucx" &&
      options.transport != "grpc") {
    return absl::InvalidArgumentError(
        absl::StrCat("transport '", options.transport, "' is not one of auto, memory, ucx, grpc"));
  }
  if (options.prefetch_bytes == 0) return absl::InvalidArgumentError("prefetch_bytes is 0");
  if (options.prefetch_steps > kMaxPrefetchSteps) {
    return absl::InvalidArgumentError(absl::StrCat("prefetch_steps must be at most ", kMaxPrefetchSteps,
                                                   ", is ", options.prefetch_steps,
                                                   "; prefetch_bytes bounds what is fetched"));
  }
  for (absl::Duration timeout : {options.connect_timeout, options.step_timeout, options.progress_timeout}) {
    if (timeout <= absl::ZeroDuration() || timeout > absl::Hours(24 * 365)) {
      return absl::InvalidArgumentError("connect_timeout, step_timeout and progress_timeout must be above 0");
    }
  }
  return absl::OkStatus();
}

void LogToStandardError(const std::string& line) { std::cerr << absl::StrCat("evenkeel: ", line, "\n"); }

// The leader of the replica that `rank` is a member of; `rank` where replicas have no other members.
uint32_t LeaderOf(const std::vector<PhaseInfo>& phases, uint32_t rank) {
  for (const PhaseInfo& phase : phases) {
    const auto found = std::find(phase.mesh.ranks.begin(), phase.mesh.ranks.end(), rank);
    if (found == phase.mesh.ranks.end()) continue;
    const Member member = phase.mesh.MemberAt(static_cast<uint64_t>(found - phase.mesh.ranks.begin()));
    return phase.ranks[member.replica];
  }
  return rank;
}

class FetchingConsumer final : public Consumer {
 public:
  explicit FetchingConsumer(ConsumerOptions options) : options_(std::move(options)), process_(getpid()) {
    if (options_.log == nullptr) options_.log = LogToStandardError;
  }

  // The loop ends first, since it uses everything else. Memory is deregistered before its sink is destroyed;
  // steps that the trainer still holds keep the memory itself alive.
  ~FetchingConsumer() override {
    if (getpid() != process_) {
      Abandon();
      return;
    }
    if (loop_ != nullptr) {
      loop_->Stop();
      thread_.join();
      control_->Settle(
          absl::Seconds(1));  // lets CloseSession calls end; a dead worker cannot delay it further
    }
    if (memory_ != nullptr) memory_->OnFreed(nullptr);
    watch_.reset();
    control_.reset();
    loop_.reset();
    if (sink_ != nullptr && memory_ != nullptr) sink_->UnregisterMemory(memory_->arena());
    sink_.reset();
  }

  absl::Status Start() {
    EVENKEEL_RETURN_IF_ERROR(CheckCpuLevel());
    EVENKEEL_RETURN_IF_ERROR(CheckOptions(options_));
    EVENKEEL_ASSIGN_OR_RETURN(EndpointSpec spec, ParseEndpoints(options_.endpoints));
    const transport::TlsFiles& tls = options_.tls;
    may_dial_ = [tls](const std::string& endpoint) { return transport::CheckAddress(tls, endpoint); };
    // Warn once per process: it may hold one consumer per rank.
    static std::atomic<bool> warned = false;
    if (!tls.given() && !warned.exchange(true)) options_.log(std::string(transport::kInsecureWarning));
    EVENKEEL_ASSIGN_OR_RETURN(certificates_,
                              transport::OpenCertificates(tls, [log = options_.log](const auto& notice) {
                                log(absl::StrCat("certificates: ", notice.message));
                              }));
    // All producers of events post into the inbox, so it exists before them. The control plane dials nobody
    // yet.
    control_ = ControlPlane::Make(certificates_, spec.name, inbox_.get());
    watch_ = std::make_unique<EndpointWatch>(spec, [this](absl::StatusOr<std::vector<std::string>> found) {
      inbox_->Post({0, found.ok() ? EndpointsChanged{absl::OkStatus(), *found}
                                  : EndpointsChanged{found.status(), {}}});
    });
    // Missing RDMA hardware is reported before any worker is contacted.
    if (options_.require_rdma) {
      EVENKEEL_ASSIGN_OR_RETURN(sink_, MakeSink(options_, certificates_, {"ucx", "grpc"}, spec.name, {}));
    }
    // From the first contact on, the digests of its answer are fixed: a worker that serves another stream is
    // refused for the life of this consumer.
    Pinned pinned{kStreamVersion, options_.expect_stream_digest, options_.expect_layout_digest};
    EVENKEEL_ASSIGN_OR_RETURN(FirstContact contact,
                              MakeFirstContact(options_, pinned, *inbox_, *control_, may_dial_));
    pinned.stream_digest = contact.worker.stream_digest;
    pinned.layout_digest = contact.worker.layout_digest;
    phases_ = contact.worker.phases;
    sequences_ = contact.worker.sequences;
    group_sizes_ = contact.worker.group_sizes;
    num_steps_ = contact.worker.num_steps;
    if (num_steps_) {
      const uint64_t left = *num_steps_ - std::min(options_.first_step, *num_steps_);
      options_.num_steps = std::min(options_.num_steps, left);
    }
    EVENKEEL_ASSIGN_OR_RETURN(memory_, ReceiveMemory::Create(options_.prefetch_bytes));
    if (sink_ == nullptr) {
      EVENKEEL_ASSIGN_OR_RETURN(
          sink_, MakeSink(options_, certificates_, contact.worker.transports, spec.name, contact.endpoints));
    } else if (std::ranges::find(contact.worker.transports, sink_->info().name) ==
               contact.worker.transports.end()) {
      return absl::FailedPreconditionError(
          absl::StrCat("require_rdma is set, but the workers offer the transports [",
                       absl::StrJoin(contact.worker.transports, ", "),
                       "]; run them on nodes with RDMA (their --require-rdma names what is missing), or set "
                       "require_rdma: false"));
    }
    // Registered memory is faster, not required: without it the transport registers each part's buffer by
    // itself.
    if (absl::Status registered = sink_->RegisterMemory(memory_->arena()); !registered.ok()) {
      options_.log(absl::StrCat(
          "the receive memory is not registered in advance (every part registers its own, which is slower): ",
          registered.message()));
    }
    StartLoop(std::move(pinned), contact.endpoints);
    return absl::OkStatus();
  }

  absl::StatusOr<std::shared_ptr<const StepData>> Next() override {
    EVENKEEL_RETURN_IF_ERROR(CheckProcess());
    return loop_->Next();
  }

  bool Wait(absl::Duration at_most) override { return !CheckProcess().ok() || loop_->Wait(at_most); }

  absl::Status Seek(uint64_t step) override {
    EVENKEEL_RETURN_IF_ERROR(CheckProcess());
    loop_->Seek(step);
    return absl::OkStatus();
  }

  ConsumerState state() const override {
    return {loop_->next_step(), pinned_.stream_digest, pinned_.layout_digest};
  }
  ConsumerStats stats() const override { return loop_->stats(); }
  const std::vector<PhaseInfo>& phases() const override { return phases_; }
  const std::string& sequences() const override { return sequences_; }
  const std::vector<uint32_t>& group_sizes() const override { return group_sizes_; }
  std::optional<uint64_t> num_steps() const override { return num_steps_; }

 private:
  // Freed receive memory wakes the loop, because a step may be waiting for a grant.
  void StartLoop(Pinned pinned, const std::vector<std::string>& endpoints) {
    pinned_ = pinned;
    // The first contact has taken the list out of the inbox; the loop needs it again.
    inbox_->Post({0, EndpointsChanged{absl::OkStatus(), endpoints}});
    FetchLoop::Uses uses{inbox_.get(),
                         control_.get(),
                         sink_.get(),
                         memory_,
                         [this] { watch_->LookAgain(); },
                         options_.log,
                         may_dial_,
                         LeaderOf(phases_, options_.rank),
                         RanksOfGroups()};
    loop_ = std::make_unique<FetchLoop>(options_, std::move(pinned), std::move(uses));
    memory_->OnFreed([this] { inbox_->Post({0, Woken()}); });
    thread_ = std::thread([this] { loop_->Run(); });
  }

  // The ranks of the llm where they are in dynamic groups.
  std::vector<uint32_t> RanksOfGroups() const {
    const auto llm = std::find_if(phases_.begin(), phases_.end(),
                                  [](const PhaseInfo& info) { return info.phase == Phase::kLlm; });
    return group_sizes_.empty() || llm == phases_.end() ? std::vector<uint32_t>() : llm->ranks;
  }

  absl::Status CheckProcess() const {
    if (getpid() == process_) return absl::OkStatus();
    return absl::FailedPreconditionError(absl::StrCat("this consumer was made by process ", process_,
                                                      " and does not work in its forked child ", getpid(),
                                                      "; connect after the fork"));
  }

  // A forked child has none of the threads, and the connections are the parent's. Destroying any of these
  // objects would join threads that do not exist or close sessions of the parent, so they are leaked.
  void Abandon() {
    if (thread_.joinable()) thread_.detach();
    (void)loop_.release();
    (void)watch_.release();
    (void)control_.release();
    // It has a thread, too. A shared_ptr has no release(), so a leaked copy keeps it alive.
    (void)std::make_unique<std::shared_ptr<transport::Certificates>>(std::move(certificates_)).release();
    (void)sink_.release();
    (void)
        inbox_.release();  // destroying its condition variable would wait for waiters that do not exist here
  }

  ConsumerOptions options_;
  const pid_t process_;
  Pinned pinned_;
  std::vector<PhaseInfo> phases_;
  std::string sequences_;
  std::vector<uint32_t> group_sizes_;
  std::optional<uint64_t> num_steps_;
  std::function<absl::Status(const std::string&)> may_dial_;

  std::unique_ptr<Inbox> inbox_ = std::make_unique<Inbox>();
  std::shared_ptr<transport::Certificates> certificates_;
  std::unique_ptr<ControlPlane> control_;
  std::unique_ptr<EndpointWatch> watch_;
  std::shared_ptr<ReceiveMemory> memory_;
  std::unique_ptr<transport::Sink> sink_;
  std::unique_ptr<FetchLoop> loop_;
  std::thread thread_;
};

}  // namespace

std::vector<uint32_t> RouteGroup(const std::vector<PhaseInfo>& phases, const Phase& from, const Phase& to) {
  std::vector<uint32_t> group;
  for (const PhaseInfo& info : phases) {
    if (info.phase == from || info.phase == to)
      group.insert(group.end(), info.ranks.begin(), info.ranks.end());
  }
  std::sort(group.begin(), group.end());
  group.erase(std::unique(group.begin(), group.end()), group.end());
  return group;
}

absl::StatusOr<std::unique_ptr<Consumer>> Consumer::Connect(ConsumerOptions options) {
  auto consumer = std::make_unique<FetchingConsumer>(std::move(options));
  EVENKEEL_RETURN_IF_ERROR(consumer->Start());
  return consumer;
}

}  // namespace evenkeel::client
