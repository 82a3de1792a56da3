#include "server/decoder_spawner.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/status.h"
#include "server/decoder_process.h"
#include "server/decoder_sandbox.h"

namespace evenkeel {
namespace {

constexpr int kSocket = 3;  // of the spawner and of decoders; all above it are closed
constexpr int kHelloMilliseconds = 30000;

struct Order {
  pid_t end = 0;  // which child to end; 0: make one, for the socket that comes with the order
};
struct Done {
  pid_t pid = -1;  // -1: errno in `status`
  int status = 0;
};

// Keeps `socket`, as kSocket, and stderr for last words.
void CloseAllBut(int socket) {
  if (socket != kSocket) dup2(socket, kSocket);
  close_range(kSocket + 1, ~0u, 0);
  const int nothing = open("/dev/null", O_RDWR);
  dup2(nothing, STDIN_FILENO);
  dup2(nothing, STDOUT_FILENO);
  close(nothing);
}

// The C library looks for the zone's file whenever a date is written (FFmpeg writes the ones of MP4 headers),
// unless TZ says the same as before.
void FixTimeZone() {
  setenv("TZ", "UTC0", 1);
  tzset();
}

// Signals to the worker's group are the worker's business: it drains, and ends its decoders by closing their
// sockets.
void BlockAllSignals() {
  sigset_t all;
  sigfillset(&all);
  sigprocmask(SIG_SETMASK, &all, nullptr);
}

pid_t Fork(int socket, const Processor& processor, uint64_t memory_bytes) {
  const pid_t spawner = getpid();
  const pid_t pid = fork();
  if (pid != 0) return pid;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != spawner) _exit(EXIT_FAILURE);
  CloseAllBut(socket);
  RunDecoder(kSocket, processor, memory_bytes);
}

Done EndChild(pid_t pid) {
  Done done{.pid = pid};
  kill(pid, SIGKILL);
  if (waitpid(pid, &done.status, 0) != pid) return {.pid = -1, .status = errno};
  return done;
}

// Until the worker has ended, or let go.
[[noreturn]] void RunSpawner(const Processor& processor, uint64_t memory_bytes) {
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
      done.pid = Fork(files[0].get(), processor, memory_bytes);
      done.status = errno;
      if (done.pid > 0) children.insert(done.pid);
    }
    if (!SendMessage(kSocket, done).ok()) break;
  }
  for (const pid_t child : children) EndChild(child);
  _exit(EXIT_SUCCESS);
}

// Other threads may hold locks that the fork would keep for ever.
absl::Status CheckOneThread() {
  if (!kConfinesFully) return absl::OkStatus();  // sanitizers have threads of their own
  std::error_code error;
  size_t threads = 0;
  for (auto it = std::filesystem::directory_iterator("/proc/self/task", error);
       !error && it != std::filesystem::directory_iterator(); it.increment(error)) {
    ++threads;
  }
  if (threads == 1) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("decoder processes are forked before the process has threads; it has ", threads));
}

// The child's word that it is confined.
absl::Status WaitForHello(const Handle& socket) {
  pollfd poll_socket{socket.get(), POLLIN, 0};
  if (poll(&poll_socket, 1, kHelloMilliseconds) != 1) {
    return absl::UnavailableError("a new decoder process does not answer");
  }
  DecoderReply hello;
  EVENKEEL_RETURN_IF_ERROR(ReceiveMessage(socket.get(), &hello));
  return hello.status();
}

}  // namespace

DecoderSpawner::~DecoderSpawner() {
  socket_ = Handle();
  int status = 0;
  (void)waitpid(pid_, &status, 0);
}

absl::StatusOr<std::unique_ptr<DecoderSpawner>> DecoderSpawner::Start(const Processor& processor,
                                                                      uint64_t memory_bytes) {
  EVENKEEL_RETURN_IF_ERROR(CheckOneThread());
  EVENKEEL_ASSIGN_OR_RETURN(auto ends, MakeSocketPair());
  const pid_t pid = fork();
  if (pid < 0) return absl::UnavailableError(absl::StrCat("fork: ", std::strerror(errno)));
  if (pid == 0) {
    prctl(PR_SET_NAME, "evenkeel-decode");
    BlockAllSignals();
    FixTimeZone();
    CloseAllBut(ends.second.get());
    RunSpawner(processor, memory_bytes);
  }
  return std::unique_ptr<DecoderSpawner>(new DecoderSpawner(pid, std::move(ends.first)));
}

absl::StatusOr<DecoderSpawner::Child> DecoderSpawner::Spawn() {
  EVENKEEL_ASSIGN_OR_RETURN(auto ends, MakeSocketPair());
  Done done;
  {
    MutexLock lock(mutex_);
    const int files[] = {ends.second.get()};
    EVENKEEL_RETURN_IF_ERROR(SendMessage(socket_.get(), Order{}, files));
    EVENKEEL_RETURN_IF_ERROR(ReceiveMessage(socket_.get(), &done));
  }
  if (done.pid < 0) {
    return absl::UnavailableError(absl::StrCat("no decoder process: fork: ", std::strerror(done.status)));
  }
  ends.second = Handle();  // so that the child's end is the only one
  Child child{done.pid, std::move(ends.first)};
  if (absl::Status confined = WaitForHello(child.socket); !confined.ok()) {
    (void)End(child.pid);
    return confined;
  }
  return child;
}

absl::StatusOr<int> DecoderSpawner::End(pid_t child) {
  MutexLock lock(mutex_);
  EVENKEEL_RETURN_IF_ERROR(SendMessage(socket_.get(), Order{.end = child}));
  Done done;
  EVENKEEL_RETURN_IF_ERROR(ReceiveMessage(socket_.get(), &done));
  if (done.pid < 0) return absl::UnavailableError(absl::StrCat("waitpid: ", std::strerror(done.status)));
  return done.status;
}

}  // namespace evenkeel
