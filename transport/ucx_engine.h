// The thread that drives UCX for one source or one sink, with the main worker that sessions begin on.
//
// Every UCX call happens on this thread, outside of UCX's own callbacks (receives excepted). It sleeps on the
// workers' wake-up descriptors instead of spinning, and wakes for posted tasks and for the next deadline.
//
// A receiver naps first: for a moment after bytes arrived it sleeps by the clock, so that the next ones pile
// up meanwhile. To be woken for each segment costs both sides more than to carry it: the sender's core sends
// an interrupt to a core that is about to halt.
//
// Thread safety: Post, Run and info may be called from any thread; the rest belongs to the engine's thread.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "core/annotated_mutex.h"
#include "transport/deadline.h"
#include "transport/listening_sockets.h"
#include "transport/ucx_address.h"
#include "transport/ucx_message.h"
#include "transport/ucx_worker.h"

namespace evenkeel::transport {

class UcxEngine {
 public:
  using Task = std::function<void()>;
  // Looks at deadlines; returns the next one.
  using Tick = std::function<Clock::time_point(Clock::time_point now)>;

  enum class Role { kSends, kReceives };

  // Starts the thread. A source gets its main worker, whose events go to `events`. Errors as in
  // transport/factory.h.
  static absl::StatusOr<std::unique_ptr<UcxEngine>> Start(const Options& options, Role role,
                                                          UcxEvents* events, Tick tick);
  // Ends when every retired worker is gone, one way or the other.
  ~UcxEngine();
  UcxEngine(const UcxEngine&) = delete;
  UcxEngine& operator=(const UcxEngine&) = delete;

  // Runs `task` soon, in the order of posting, never inside Post.
  void Post(Task task) ABSL_LOCKS_EXCLUDED(mutex_);
  // The same and waits until it ran. Not from the engine's thread.
  void Run(Task task);

  const Info& info() const { return info_; }
  // Over RDMA: the device, its port and its GIDs, and what to set where they do not reach the peer; for
  // messages. Empty over anything else.
  const std::string& rdma_hint() const { return rdma_hint_; }
  bool shared_memory() const { return shared_memory_; }
  // Unavailable where peers can no longer connect to the main worker: UCX closes the socket at which it
  // listens when a connection cannot be accepted, e.g. for want of file handles, and never opens it again.
  absl::Status CheckListening() const { return listening_.CheckOpen(); }
  // Whether parts travel over TCP alone: then in chunks, as messages that need nothing of the receiver;
  // otherwise by rendezvous.
  bool sends_chunks() const { return only_tcp_ && !shared_memory_; }
  // What this side is, with the main worker's address (of a source; a sink has none), wrapped.
  std::string WrappedAddress() const;

  // A source's, which all its watched sessions share: a connection on it ends by itself.
  UcxWorker& main() { return *main_; }
  // A worker for one session, progressed until it is retired.
  absl::StatusOr<std::unique_ptr<UcxWorker>> OpenSessionWorker(UcxEvents* events);
  // An address that a session worker's peer can use, wrapped.
  absl::StatusOr<std::string> WrapWorkerAddress(AddressRole role, const UcxWorker& worker) const;
  // Closes the worker and destroys it once nothing is under way on it. Completions still arrive; where some
  // do not within Options::completion_timeout the worker is abandoned (UcxWorker::Abandon), and `abandoned`
  // runs: no completion arrives any more, and the buffers under way are lost. In shared memory none arrives
  // from the beginning, and no buffer is lost, since only this side's progress moves bytes: returns false,
  // and the caller completes what was under way.
  bool Retire(std::unique_ptr<UcxWorker> worker, Task abandoned);

  // Sends a greeting with a copy of `address`. False: the connection is not ready; try again from the tick.
  //
  // Over TCP only as a short message on a ready connection, which needs no endpoint on the other side.
  // Anything else makes the peer's UCX answer with a wire-up reply, and UCX 1.13 aborts the process ("got REP
  // message") when it has to give up an endpoint on which such a reply still waits for its connection.
  absl::StatusOr<bool> Greet(UcxWorker& worker, ucp_ep_h endpoint, MessageId id,
                             const GreetingBytes& greeting, const std::string& address);

  absl::Status RegisterMemory(std::span<std::byte> memory);
  void UnregisterMemory(std::span<std::byte> memory);

 private:
  struct Retired {
    std::unique_ptr<UcxWorker> worker;
    Clock::time_point until;
    Task abandoned;
  };
  struct Registered {
    const std::byte* begin;
    ucp_mem_h handle;
  };
  UcxEngine(Role role, Tick tick) : role_(role), tick_(std::move(tick)) {}
  absl::Status Open(const Options& options, UcxEvents* events);
  absl::Status OpenMain(UcxEvents* events);
  static absl::StatusOr<std::vector<std::string>> ProbeLanes(const std::shared_ptr<UcxContext>& context);
  absl::Status Probe(const Options& options);
  absl::Status CheckDevice(const Options& options, const std::string& lane);
  void Loop();
  bool RunTasks();
  bool ProgressAll();
  // Returns when the next one is abandoned.
  Clock::time_point SweepRetired(Clock::time_point now);
  bool ArmAll();
  // Until there is a task, or, if `for_events`, something happens to a worker.
  void Sleep(Clock::duration longest, bool for_events);
  void CloseEverything();

  const Role role_;
  const Tick tick_;
  int wake_descriptor_ = -1;
  std::thread thread_;

  // Written before the thread's first task, read by anyone.
  Info info_;
  std::string rdma_hint_;
  bool shared_memory_ = false;
  bool only_tcp_ = false;
  bool open_ = false;
  uint64_t host_ = 0;
  std::string main_address_;
  ListeningSockets listening_;  // the main worker's

  // The engine's thread.
  absl::Duration completion_timeout_;
  std::shared_ptr<UcxContext> context_;
  std::unique_ptr<UcxWorker> main_;  // nullptr: of a sink, in shared memory, at the end
  std::vector<UcxWorker*> active_;   // all that are progressed
  std::vector<Retired> retired_;
  std::vector<Registered> registered_;

  Mutex mutex_;
  std::vector<Task> tasks_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace evenkeel::transport
