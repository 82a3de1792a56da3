// The thread that drives UCX for one source or one sink, with the main worker that sessions begin on.
//
// Every UCX call is made on this thread, outside of UCX's own callbacks (except receives). The thread sleeps
// on the workers' wake-up descriptors instead of spinning, and wakes for posted tasks and for the next
// deadline.
//
// A receiver naps first: for a moment after bytes arrived it sleeps by the clock, so that more bytes collect
// meanwhile. A wake-up per segment would cost both sides more than the transfer: the sender's core would send
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
#include "transport/address.h"
#include "transport/deadline.h"
#include "transport/listening_sockets.h"
#include "transport/ucx_message.h"
#include "transport/ucx_worker.h"

namespace evenkeel::transport {

class UcxEngine {
 public:
  using Task = std::function<void()>;
  // Checks deadlines; returns the next one.
  using Tick = std::function<Clock::time_point(Clock::time_point now)>;

  enum class Role { kSends, kReceives };

  // Starts the thread. A source gets a main worker, whose events go to `events`. Errors as in
  // transport/factory.h.
  static absl::StatusOr<std::unique_ptr<UcxEngine>> Start(const Options& options, Role role,
                                                          UcxEvents* events, Tick tick);
  // Returns when every retired worker was destroyed or abandoned.
  ~UcxEngine();
  UcxEngine(const UcxEngine&) = delete;
  UcxEngine& operator=(const UcxEngine&) = delete;

  // Runs `task` soon, in the order of posting, never inside Post.
  void Post(Task task) ABSL_LOCKS_EXCLUDED(mutex_);
  // As Post, and waits until the task has run. Must not be called from the engine's thread.
  void Run(Task task);

  const Info& info() const { return info_; }
  // For messages over RDMA: the device, its port and its GIDs, and what to set if they do not reach the peer.
  // Empty over other transports.
  const std::string& rdma_hint() const { return rdma_hint_; }
  // Unavailable if peers can no longer connect to the main worker: UCX closes its listening socket if a
  // connection cannot be accepted, for example without file handles, and never opens it again.
  absl::Status CheckListening() const { return listening_.CheckOpen(); }
  // True if parts travel over TCP alone. Then they go in chunks, as messages that require nothing of the
  // receiver; otherwise by rendezvous.
  bool sends_chunks() const { return only_tcp_; }
  // This side's wrapped address, with the main worker's of a source (a sink has none).
  std::string WrappedAddress() const;

  // A source's main worker, shared by all its sessions: a failed connection of one does not affect the others.
  UcxWorker& main() { return *main_; }
  // A worker for one session; it makes progress until it is retired.
  absl::StatusOr<std::unique_ptr<UcxWorker>> OpenSessionWorker(UcxEvents* events);
  // The wrapped address of a session worker, for its peer.
  absl::StatusOr<std::string> WrapWorkerAddress(AddressRole role, const UcxWorker& worker) const;
  // Closes the worker and destroys it when no operation is in flight on it. Completions still arrive. If some
  // do not within Options::completion_timeout, the worker is abandoned (UcxWorker::Abandon), and `abandoned`
  // runs: no completion arrives after that, and the buffers in flight are lost.
  void Retire(std::unique_ptr<UcxWorker> worker, Task abandoned);

  // Sends a greeting with a copy of `address`. Returns false if the connection is not ready; try again in the
  // tick.
  //
  // Over TCP it goes only as a short message on a ready connection, which requires no endpoint on the other
  // side. Anything else makes the peer's UCX answer with a wire-up reply, and UCX 1.13 aborts the process
  // ("got REP message") if it has to give up an endpoint on which such a reply still waits for its
  // connection.
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
  // Returns the time when the next one will be abandoned.
  Clock::time_point SweepRetired(Clock::time_point now);
  bool ArmAll();
  // Sleeps until there is a task, `longest` has passed, or, if `for_events`, a worker has an event.
  void Sleep(Clock::duration longest, bool for_events);
  void CloseEverything();

  const Role role_;
  const Tick tick_;
  int wake_descriptor_ = -1;
  std::thread thread_;

  // Written by the first task (Open); read by any thread afterwards.
  Info info_;
  std::string rdma_hint_;
  bool only_tcp_ = false;
  bool open_ = false;
  std::string main_address_;
  ListeningSockets listening_;  // the main worker's

  // Used by the engine's thread alone.
  absl::Duration completion_timeout_;
  std::shared_ptr<UcxContext> context_;
  std::unique_ptr<UcxWorker> main_;  // null: in a sink, after the end
  std::vector<UcxWorker*> active_;   // the workers that Loop progresses
  std::vector<Retired> retired_;
  std::vector<Registered> registered_;

  Mutex mutex_;
  std::vector<Task> tasks_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace evenkeel::transport
