// The loop that drives UCX: tasks, progress, the wake-up descriptor, deadlines. At the start it probes which
// devices UCX chose and whether they work.
#include "transport/ucx_engine.h"

#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_join.h"
#include "core/status.h"
#include "transport/rdma_device.h"
#include "transport/ucx_self_check.h"

namespace evenkeel::transport {
namespace {

// Calls of Progress on one worker before the next worker's turn.
constexpr int kProgressBurst = 64;
// A working device takes milliseconds; long, because a machine may be busy when it starts.
constexpr absl::Duration kSelfCheckTimeout = absl::Seconds(10);
constexpr Clock::duration kLongestSleep = std::chrono::seconds(1);
// Long enough for some hundred kilobytes to arrive on a fast link, which is far below a socket's buffer.
constexpr Clock::duration kNap = std::chrono::microseconds(20);
// After this time without progress the engine sleeps on the descriptors instead of napping.
constexpr Clock::duration kNapsAfterProgress = std::chrono::milliseconds(1);

bool IsRdmaLane(const std::string& lane) {
  return absl::StartsWith(lane, "rc") || absl::StartsWith(lane, "dc") || absl::StartsWith(lane, "ud");
}

}  // namespace

absl::StatusOr<std::unique_ptr<UcxEngine>> UcxEngine::Start(const Options& options, Role role,
                                                            UcxEvents* events, Tick tick) {
  std::unique_ptr<UcxEngine> engine(new UcxEngine(role, std::move(tick)));
  engine->wake_descriptor_ = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (engine->wake_descriptor_ < 0)
    return absl::ResourceExhaustedError("no file descriptor left for eventfd");
  engine->thread_ = std::thread([self = engine.get()] { self->Loop(); });
  pthread_setname_np(engine->thread_.native_handle(), "evenkeel-ucx");
  absl::Status status;
  engine->Run([&] { status = engine->Open(options, events); });
  EVENKEEL_RETURN_IF_ERROR(status);
  return engine;
}

UcxEngine::~UcxEngine() {
  if (thread_.joinable()) {
    {
      MutexLock lock(mutex_);
      stopping_ = true;
    }
    Post([] {});
    thread_.join();
  }
  if (wake_descriptor_ >= 0) close(wake_descriptor_);
}

absl::Status UcxEngine::Open(const Options& options, UcxEvents* events) {
  completion_timeout_ = options.completion_timeout;
  EVENKEEL_ASSIGN_OR_RETURN(context_, UcxContext::Create(options));
  EVENKEEL_RETURN_IF_ERROR(Probe(options));
  if (role_ == Role::kSends) EVENKEEL_RETURN_IF_ERROR(OpenMain(events));
  open_ = true;
  return absl::OkStatus();
}

absl::Status UcxEngine::OpenMain(UcxEvents* events) {
  static Mutex& one_at_a_time = *new Mutex;  // else an engine could take another engine's sockets for its own
  MutexLock lock(one_at_a_time);
  const ListeningSockets others = ListeningSockets::OfProcess();
  EVENKEEL_ASSIGN_OR_RETURN(main_, UcxWorker::Create(context_, events));
  listening_ = ListeningSockets::OfProcess().Without(others);
  EVENKEEL_ASSIGN_OR_RETURN(main_address_, main_->address());
  active_.push_back(main_.get());
  return absl::OkStatus();
}

// UCX 1.13 reports its choice of devices only for an endpoint, so one is made to this process.
absl::StatusOr<std::vector<std::string>> UcxEngine::ProbeLanes(const std::shared_ptr<UcxContext>& context) {
  EVENKEEL_ASSIGN_OR_RETURN(std::unique_ptr<UcxWorker> worker, UcxWorker::Create(context, nullptr));
  EVENKEEL_ASSIGN_OR_RETURN(std::string address, worker->address());
  EVENKEEL_ASSIGN_OR_RETURN(ucp_ep_h endpoint, worker->Connect(address));
  std::vector<std::string> lanes = UcxWorker::Lanes(endpoint);
  worker->Close();
  std::sort(lanes.begin(), lanes.end());
  lanes.erase(std::unique(lanes.begin(), lanes.end()), lanes.end());
  return lanes;
}

// Checks the chosen lanes against what the options require: UCX may silently fall back to TCP.
absl::Status UcxEngine::Probe(const Options& options) {
  EVENKEEL_ASSIGN_OR_RETURN(std::vector<std::string> lanes, ProbeLanes(context_));
  only_tcp_ = std::all_of(lanes.begin(), lanes.end(),
                          [](const std::string& lane) { return absl::StartsWith(lane, "tcp"); });
  info_.name = "ucx";
  info_.detail = absl::StrJoin(lanes, "+");
  info_.is_rdma = !lanes.empty() && std::all_of(lanes.begin(), lanes.end(), IsRdmaLane);
  if (!options.trusted_network && !info_.is_rdma) {
    return absl::FailedPreconditionError(absl::StrCat(
        "UCX chose ", info_.detail,
        ", which is not RDMA, and the network is not trusted; check UCX_TLS, or use --transport grpc"));
  }
  if (options.require_rdma && !info_.is_rdma) {
    return absl::FailedPreconditionError(absl::StrCat(
        "require_rdma is set, but UCX chose ", info_.detail,
        "; check `ucx_info -d`, the device plugin and UCX_NET_DEVICES, or set require_rdma: false"));
  }
  return info_.is_rdma ? CheckDevice(options, lanes.front()) : absl::OkStatus();
}

absl::Status UcxEngine::CheckDevice(const Options& options, const std::string& lane) {
  rdma_hint_ =
      absl::StrCat(info_.detail, " (", DescribeRdmaLane(lane),
                   "). If the device is at fault: choose another GID with UCX_IB_GID_INDEX, on every "
                   "worker and consumer, another device with the option devices, or gRPC");
  absl::Status status = CheckSelfDelivery(context_, kSelfCheckTimeout);
  if (status.ok()) return status;
  const std::string message =
      absl::StrCat("the RDMA device does not work: ", status.message(), " over ", rdma_hint_);
  return options.require_rdma ? absl::FailedPreconditionError(message) : absl::UnavailableError(message);
}

absl::StatusOr<bool> UcxEngine::Greet(UcxWorker& worker, ucp_ep_h endpoint, MessageId id,
                                      const GreetingBytes& greeting, const std::string& address) {
  struct Letter {
    GreetingBytes greeting;
    std::string address;
  };
  auto letter = std::make_unique<Letter>(Letter{greeting, address});
  std::span<const std::byte> data = std::as_bytes(std::span<const char>(letter->address));
  unsigned number = static_cast<unsigned>(id);
  if (only_tcp_) return worker.SendImmediately(endpoint, number, letter->greeting, data);
  EVENKEEL_ASSIGN_OR_RETURN(bool under_way,
                            worker.Send(
                                endpoint, number, letter->greeting, data, false,
                                [](void* argument, ucs_status_t) {
                                  std::unique_ptr<Letter>(static_cast<Letter*>(argument)).reset();
                                },
                                letter.get()));
  if (under_way) (void)letter.release();  // the completion callback owns and deletes it
  return true;
}

void UcxEngine::Post(Task task) {
  {
    MutexLock lock(mutex_);
    tasks_.push_back(std::move(task));
  }
  // The engine's own thread checks for tasks before it sleeps (Sleep).
  if (std::this_thread::get_id() == thread_.get_id()) return;
  uint64_t one = 1;
  (void)!write(wake_descriptor_, &one, sizeof(one));
}

void UcxEngine::Run(Task task) {
  Mutex mutex;
  CondVar changed;
  bool ran = false;
  Post([&] {
    task();
    MutexLock lock(mutex);
    ran = true;
    changed.NotifyAll();
  });
  MutexLock lock(mutex);
  while (!ran) changed.Wait(mutex);
}

std::string UcxEngine::WrappedAddress() const {
  AddressRole role = role_ == Role::kSends ? AddressRole::kSource : AddressRole::kSink;
  return WrapAddress({.role = role, .rdma = info_.is_rdma, .host = ThisHost(), .worker = main_address_});
}

absl::StatusOr<std::unique_ptr<UcxWorker>> UcxEngine::OpenSessionWorker(UcxEvents* events) {
  EVENKEEL_ASSIGN_OR_RETURN(std::unique_ptr<UcxWorker> worker, UcxWorker::Create(context_, events));
  active_.push_back(worker.get());
  return worker;
}

absl::StatusOr<std::string> UcxEngine::WrapWorkerAddress(AddressRole role, const UcxWorker& worker) const {
  EVENKEEL_ASSIGN_OR_RETURN(std::string address, worker.address());
  return WrapAddress({.role = role, .rdma = info_.is_rdma, .host = ThisHost(), .worker = std::move(address)});
}

void UcxEngine::Retire(std::unique_ptr<UcxWorker> worker, Task abandoned) {
  worker->Close();  // its operations complete with an error
  retired_.push_back({std::move(worker), DeadlineAfter(completion_timeout_), std::move(abandoned)});
}

absl::Status UcxEngine::RegisterMemory(std::span<std::byte> memory) {
  EVENKEEL_ASSIGN_OR_RETURN(ucp_mem_h handle, context_->Register(memory));
  registered_.push_back({memory.data(), handle});
  return absl::OkStatus();
}

void UcxEngine::UnregisterMemory(std::span<std::byte> memory) {
  auto found = std::find_if(registered_.begin(), registered_.end(),
                            [&](const Registered& one) { return one.begin == memory.data(); });
  if (found == registered_.end()) return;
  context_->Unregister(found->handle);
  registered_.erase(found);
}

// One round: tasks, deadlines, progress. It sleeps only after a round in which nothing moved, and only if
// every worker could be armed, which UCX refuses while an event is pending.
void UcxEngine::Loop() {
  bool stopping = false;
  Clock::time_point last_progress;
  for (;;) {
    bool busy = RunTasks();
    {
      MutexLock lock(mutex_);
      stopping = stopping_;
    }
    Clock::time_point now = Clock::now();
    if (stopping && main_ != nullptr) Retire(std::move(main_), [] {});
    Clock::time_point deadline = SweepRetired(now);
    if (stopping && retired_.empty()) break;
    if (open_) deadline = std::min(deadline, tick_(now));
    if (ProgressAll()) {
      last_progress = now;
      continue;
    }
    if (busy) continue;
    if (role_ == Role::kReceives && now - last_progress < kNapsAfterProgress) {
      Sleep(kNap, /*for_events=*/false);
    } else if (ArmAll()) {
      Sleep(std::min(deadline - now, stopping ? std::chrono::milliseconds(1) : kLongestSleep),
            /*for_events=*/true);
    }
  }
  CloseEverything();
}

bool UcxEngine::RunTasks() {
  std::vector<Task> tasks;
  {
    MutexLock lock(mutex_);
    tasks.swap(tasks_);
  }
  for (Task& task : tasks) task();
  return !tasks.empty();
}

bool UcxEngine::ProgressAll() {
  bool any = false;
  for (UcxWorker* worker : active_) {
    for (int i = 0; i < kProgressBurst && worker->Progress(); ++i) any = true;
  }
  return any;
}

Clock::time_point UcxEngine::SweepRetired(Clock::time_point now) {
  std::vector<Task> abandoned;
  Clock::time_point next = Clock::time_point::max();
  std::erase_if(retired_, [&](Retired& one) {
    if (one.worker->operations() > 0 && now < one.until) {
      next = std::min(next, one.until);
      return false;
    }
    std::erase(active_, one.worker.get());
    if (one.worker->operations() > 0) {
      // UCX aborts the process if a worker with operations is destroyed, so it is leaked.
      UcxWorker::Abandon(std::move(one.worker));
      abandoned.push_back(std::move(one.abandoned));
    }
    return true;
  });
  for (Task& task : abandoned) task();
  return next;
}

bool UcxEngine::ArmAll() {
  return std::all_of(active_.begin(), active_.end(), [](UcxWorker* worker) { return worker->Arm(); });
}

void UcxEngine::Sleep(Clock::duration longest, bool for_events) {
  std::vector<pollfd> descriptors = {{wake_descriptor_, POLLIN, 0}};
  if (for_events) {
    for (UcxWorker* worker : active_) descriptors.push_back({worker->descriptor(), POLLIN, 0});
  }
  {
    // Post does not signal the descriptor when it is called on this thread.
    MutexLock lock(mutex_);
    if (!tasks_.empty()) return;
  }
  auto nanoseconds = std::chrono::nanoseconds(std::max(longest, Clock::duration::zero())).count();
  timespec left{nanoseconds / 1'000'000'000, nanoseconds % 1'000'000'000};
  ppoll(descriptors.data(), descriptors.size(), &left, nullptr);
  uint64_t count;
  (void)!read(wake_descriptor_, &count, sizeof(count));
}

void UcxEngine::CloseEverything() {
  for (Registered& one : registered_) context_->Unregister(one.handle);
  // An abandoned worker keeps its context alive through its own reference.
  context_.reset();
}

}  // namespace evenkeel::transport
