// Forks the nursery, the spawner and the decoders, and the messages that order them to fork.
#include "isolation/decoder_spawner.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <set>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "core/status.h"
#include "core/steady_time.h"
#include "isolation/child_watch.h"
#include "isolation/decoder_process.h"
#include "isolation/decoder_sandbox.h"

namespace evenkeel::isolation {
namespace {

constexpr int kSocket = 3;  // of the spawner and of decoders; all above it are closed

constexpr absl::Duration kHelloPatience = absl::Seconds(30);  // for a new decoder to become confined

struct Order {
  pid_t end = 0;  // the child to end; 0: make one that uses the socket sent with this order
};
struct Done {
  pid_t pid = -1;  // -1: errno in `status`
  int status = 0;
};

// Keeps `socket` as kSocket, and stderr for the last message of a crash.
void CloseAllBut(int socket) {
  if (socket != kSocket) dup2(socket, kSocket);
  close_range(kSocket + 1, ~0u, 0);
  const int nothing = open("/dev/null", O_RDWR);
  dup2(nothing, STDIN_FILENO);
  dup2(nothing, STDOUT_FILENO);
  close(nothing);
}

// The C library opens the time zone's file whenever a date is written, unless TZ is unchanged. FFmpeg writes
// the dates of MP4 headers, and a decoder may not open files.
void FixTimeZone() {
  setenv("TZ", "UTC0", 1);
  tzset();
}

// Signals to the worker's group are for the worker: it drains, and ends its decoders by closing their
// sockets.
void BlockAllSignals() {
  sigset_t all;
  sigfillset(&all);
  sigprocmask(SIG_SETMASK, &all, nullptr);
}

enum class Maker { kNursery, kSpawner };

[[noreturn]] void ForkOnOrder(Maker maker, const preprocess::Processor& processor, uint64_t memory_bytes);

// The nursery's children are spawners, a spawner's are decoders.
pid_t Fork(Maker parent, int socket, const preprocess::Processor& processor, uint64_t memory_bytes) {
  const pid_t own = getpid();
  const pid_t pid = fork();
  if (pid != 0) return pid;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != own) _exit(EXIT_FAILURE);
  CloseAllBut(socket);
  if (parent == Maker::kSpawner) {
    prctl(PR_SET_NAME, "evenkeel-decode");
    RunDecoder(kSocket, processor, memory_bytes);
  }
  prctl(PR_SET_NAME, "evenkeel-spawn");
  ForkOnOrder(Maker::kSpawner, processor, memory_bytes);
}

Done EndChild(pid_t pid) {
  Done done{.pid = pid};
  kill(pid, SIGKILL);
  if (waitpid(pid, &done.status, 0) != pid) return {.pid = -1, .status = errno};
  return done;
}

// Serves orders until the worker has ended or closed the socket.
void ForkOnOrder(Maker maker, const preprocess::Processor& processor, uint64_t memory_bytes) {
  std::set<pid_t> children;
  for (;;) {
    Order order;
    std::vector<Handle> files;
    if (!ReceiveMessage(kSocket, &order, &files).ok()) break;
    Done done;
    if (order.end > 0) {
      done = EndChild(order.end);
      children.erase(order.end);
    } else if (!files.empty()) {
      done.pid = Fork(maker, files[0].get(), processor, memory_bytes);
      done.status = errno;
      if (done.pid > 0) children.insert(done.pid);
    }
    if (!SendMessage(kSocket, done).ok()) break;
  }
  for (const pid_t child : children) EndChild(child);
  _exit(EXIT_SUCCESS);
}

// Locks that other threads hold would stay locked in the child for ever.
absl::Status CheckOneThread() {
  if (!kConfinesFully) return absl::OkStatus();  // sanitizers start threads of their own
  std::error_code error;
  size_t threads = 0;
  for (auto it = std::filesystem::directory_iterator("/proc/self/task", error);
       !error && it != std::filesystem::directory_iterator(); it.increment(error)) {
    // Waits until the socket can be read.
    ++threads;
  }
  if (threads == 1) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("decoder processes are forked before the process has threads; it has ", threads));
}

// Waits until the child reports that it is confined.
absl::Status WaitForHello(const Handle& socket, absl::Duration patience) {
  EVENKEEL_RETURN_IF_ERROR(WaitUntilReadable(socket.get(), patience, "a new decoder process"));
  DecoderReply hello;
  EVENKEEL_RETURN_IF_ERROR(ReceiveMessage(socket.get(), &hello));
  return hello.status();
}

absl::StatusOr<Done> Exchange(const Handle& socket, const Order& order, std::span<const int> files,
                              absl::Duration patience) {
  EVENKEEL_RETURN_IF_ERROR(SendMessage(socket.get(), order, files));
  EVENKEEL_RETURN_IF_ERROR(WaitUntilReadable(socket.get(), patience, "the process that forks decoders"));
  Done done;
  EVENKEEL_RETURN_IF_ERROR(ReceiveMessage(socket.get(), &done));
  return done;
}

}  // namespace

DecoderSpawner::~DecoderSpawner() {
  MutexLock lock(mutex_);
  spawner_.socket = Handle();
  nursery_.socket = Handle();
  // A nursery that somebody stopped would not notice that its socket was closed.
  kill(nursery_pid_, broken_.ok() ? SIGCONT : SIGKILL);
  const absl::Time deadline = SteadyNow() + patience_;
  int status = 0;
  while (waitpid(nursery_pid_, &status, WNOHANG) == 0) {
    if (SteadyNow() > deadline) kill(nursery_pid_, SIGKILL);  // its children end with it
    absl::SleepFor(absl::Milliseconds(1));
  }
}

absl::StatusOr<std::unique_ptr<DecoderSpawner>> DecoderSpawner::Start(const preprocess::Processor& processor,
                                                                      uint64_t memory_bytes,
                                                                      absl::Duration patience,
                                                                      DecoderEvents* events) {
  EVENKEEL_RETURN_IF_ERROR(CheckOneThread());
  EVENKEEL_ASSIGN_OR_RETURN(auto ends, MakeSocketPair());
  const pid_t pid = fork();
  if (pid < 0) return absl::UnavailableError(absl::StrCat("fork: ", std::strerror(errno)));
  if (pid == 0) {
    prctl(PR_SET_NAME, "evenkeel-nurse");
    BlockAllSignals();
    FixTimeZone();
    CloseAllBut(ends.second.get());
    ForkOnOrder(Maker::kNursery, processor, memory_bytes);
  }
  return std::unique_ptr<DecoderSpawner>(
      new DecoderSpawner({.pid = pid, .socket = std::move(ends.first)}, patience, events));
}

absl::StatusOr<DecoderSpawner::Process> DecoderSpawner::Make(const Process& parent) {
  auto ends = MakeSocketPair();
  if (!ends.ok()) return absl::ResourceExhaustedError(ends.status().message());
  const int files[] = {ends->second.get()};
  EVENKEEL_ASSIGN_OR_RETURN(const Done done, Exchange(parent.socket, Order{}, files, patience_));
  if (done.pid < 0) {
    return absl::ResourceExhaustedError(
        absl::StrCat("no decoder process: fork: ", std::strerror(done.status)));
  }
  return Process{.pid = done.pid, .socket = std::move(ends->first)};  // only the child has the other end now
}

absl::Status DecoderSpawner::Replace(const absl::Status& why) {
  EVENKEEL_RETURN_IF_ERROR(broken_);
  if (spawner_.pid > 0) {
    if (events_ != nullptr) events_->OnSpawnerReplaced(why);
    // Its decoders end with it.
    const auto ended = Exchange(nursery_.socket, Order{.end = spawner_.pid}, {}, patience_);
    spawner_ = Process();
    if (!ended.ok()) return Break(ended.status());
  }
  absl::StatusOr<Process> made = Make(nursery_);
  if (absl::IsResourceExhausted(made.status())) return absl::UnavailableError(made.status().message());
  if (!made.ok()) return Break(made.status());
  spawner_ = *std::move(made);
  ++current_;
  return absl::OkStatus();
}

absl::Status DecoderSpawner::Break(const absl::Status& why) {
  is_broken_ = true;
  broken_ = absl::UnavailableError(absl::StrCat("decoder processes can no longer be made: ", why.message()));
  return broken_;
}

absl::StatusOr<DecoderSpawner::Process> DecoderSpawner::MakeDecoder() {
  if (spawner_.pid < 0) EVENKEEL_RETURN_IF_ERROR(Replace(absl::OkStatus()));
  absl::StatusOr<Process> made = Make(spawner_);
  if (!made.ok() && !absl::IsResourceExhausted(made.status())) {
    EVENKEEL_RETURN_IF_ERROR(Replace(made.status()));
    made = Make(spawner_);
  }
  if (!made.ok()) return absl::UnavailableError(made.status().message());
  return made;
}

absl::StatusOr<DecoderSpawner::Child> DecoderSpawner::Spawn() {
  Child child;
  {
    MutexLock lock(mutex_);
    EVENKEEL_ASSIGN_OR_RETURN(Process made, MakeDecoder());
    child = {made.pid, std::move(made.socket), current_};
  }
  if (absl::Status confined = WaitForHello(child.socket, kHelloPatience); !confined.ok()) {
    (void)End(child);
    return confined;
  }
  return child;
}

int DecoderSpawner::End(const Child& child) {
  MutexLock lock(mutex_);
  if (child.spawner != current_ || spawner_.pid < 0) return SIGKILL;
  const absl::StatusOr<Done> done = Exchange(spawner_.socket, Order{.end = child.pid}, {}, patience_);
  if (done.ok()) return done->pid > 0 ? done->status : SIGKILL;
  (void)Replace(done.status());
  return SIGKILL;
}

absl::Status DecoderSpawner::health() const {
  siginfo_t ended{};
  if (waitid(P_PID, static_cast<id_t>(nursery_pid_), &ended, WEXITED | WNOHANG | WNOWAIT) == 0 &&
      ended.si_pid == 0 && !is_broken_) {
    return absl::OkStatus();
  }
  return absl::UnavailableError(
      "the process that forks decoders has ended or does not answer; restart the worker");
}

}  // namespace evenkeel::isolation
