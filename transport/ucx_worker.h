// The handles of UCX: context, worker, endpoint. No naked init, create or destroy elsewhere.
//
// Thread safety: a UcxContext may be shared; a UcxWorker belongs to the engine's thread.
#pragma once

#include <ucp/api/ucp.h>

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "transport/transport.h"
#include "transport/ucx_library.h"

namespace evenkeel::transport {

// The size of the messages in which parts travel over TCP. Large enough that few of them find the socket
// full, small enough that what was just received is still in the core's own cache when it is copied and
// hashed.
inline constexpr size_t kTcpChunkBytes = 512 << 10;

absl::Status StatusFromUcx(ucs_status_t status, std::string_view what);

// Process-wide state of UCX for one choice of transports.
class UcxContext {
 public:
  // Unavailable: no usable device; FailedPrecondition: no RDMA device although it is required, or the network
  // is not trusted.
  static absl::StatusOr<std::shared_ptr<UcxContext>> Create(const Options& options);
  ~UcxContext();
  UcxContext(const UcxContext&) = delete;
  UcxContext& operator=(const UcxContext&) = delete;

  ucp_context_h handle() const { return handle_; }
  // RDMA and TCP: endpoints notice that their peer is gone. In shared memory nothing is noticed.
  bool watched() const { return watched_; }
  absl::StatusOr<ucp_mem_h> Register(std::span<std::byte> memory);
  void Unregister(ucp_mem_h memory);

 private:
  UcxContext(ucp_context_h handle, bool watched) : handle_(handle), watched_(watched) {}
  const ucp_context_h handle_;
  const bool watched_;
};

// Never destroys it: what UCX, or a network card, may still use.
void KeepForever(std::shared_ptr<void> used);

// Who is told of a worker's events, on the engine's thread, from inside Progress: no UCX call may be made in
// them except to receive.
class UcxEvents {
 public:
  // `header` is valid during the call only. Returns what UCX wants of a receive callback.
  virtual ucs_status_t OnMessage(unsigned id, std::span<const std::byte> header, void* data, size_t length,
                                 bool rendezvous) = 0;
  virtual void OnEndpointError(ucp_ep_h endpoint, ucs_status_t status) = 0;

 protected:
  ~UcxEvents() = default;
};

// A worker with its endpoints and the number of operations that UCX has not completed yet.
class UcxWorker {
 public:
  // `events` must outlive the worker, or what comes before its Close.
  static absl::StatusOr<std::unique_ptr<UcxWorker>> Create(std::shared_ptr<UcxContext> context,
                                                           UcxEvents* events);
  // Only with operations() == 0, after Close: UCX aborts on a worker with a receive under way.
  ~UcxWorker();
  UcxWorker(const UcxWorker&) = delete;
  UcxWorker& operator=(const UcxWorker&) = delete;

  ucp_worker_h handle() const { return handle_; }
  int descriptor() const { return descriptor_; }
  bool watched() const { return context_->watched(); }
  absl::StatusOr<std::string> address() const;

  bool Progress() { return Ucx().ucp_worker_progress(handle_) != 0; }
  // True where the descriptor will become readable on the next event; false: progress again.
  bool Arm();

  // `address` must have come whole from a peer (transport/ucx_address.h).
  absl::StatusOr<ucp_ep_h> Connect(const std::string& address);
  // Ends everything under way on the endpoint; the completions arrive in later calls of Progress.
  void CloseByForce(ucp_ep_h endpoint);
  // No more events. Closes all endpoints by force where they are watched.
  void Close();
  // Never progressed nor destroyed again: for workers whose operations under way do not end. Those of shared
  // memory, where nothing moves unless this side progresses, and nothing can be cancelled; and others that
  // UCX does not complete although they were closed.
  static void Abandon(std::unique_ptr<UcxWorker> worker);

  // Sends `header` and `data`; both must stay until `completed` ran, which happens in a later Progress.
  // OK and false: already complete, `completed` will not run.
  absl::StatusOr<bool> Send(ucp_ep_h endpoint, unsigned id, std::span<const std::byte> header,
                            std::span<const std::byte> data, bool rendezvous,
                            void (*completed)(void* argument, ucs_status_t status), void* argument);
  // Sends a short message now or not at all: false where the connection is not ready for it yet; try again.
  absl::StatusOr<bool> SendImmediately(ucp_ep_h endpoint, unsigned id, std::span<const std::byte> header,
                                       std::span<const std::byte> data);
  // Receives what OnMessage announced as rendezvous. As Send.
  absl::StatusOr<bool> Receive(void* descriptor, std::span<std::byte> buffer,
                               void (*completed)(void* argument, ucs_status_t status), void* argument);
  int operations() const { return operations_; }

  // The lanes that the library chose for an endpoint: "rc_mlx5/mlx5_0:1", "tcp/eth0".
  static std::vector<std::string> Lanes(ucp_ep_h endpoint);

 private:
  struct Operation;
  UcxWorker(std::shared_ptr<UcxContext> context, ucp_worker_h handle, UcxEvents* events);
  absl::Status Prepare();
  static void Failed(void* argument, ucp_ep_h endpoint, ucs_status_t status);
  template <unsigned id>
  static ucs_status_t ReceivedAs(void* argument, const void* header, size_t header_bytes, void* data,
                                 size_t length, const ucp_am_recv_param_t* parameters);
  ucs_status_t Dispatch(unsigned id, const void* header, size_t header_bytes, void* data, size_t length,
                        const ucp_am_recv_param_t* parameters);
  absl::StatusOr<bool> Started(ucs_status_ptr_t request, std::unique_ptr<Operation> operation,
                               std::string_view what);

  const std::shared_ptr<UcxContext> context_;
  const ucp_worker_h handle_;
  UcxEvents* events_;
  int descriptor_ = -1;
  int operations_ = 0;
  std::vector<ucp_ep_h> endpoints_;
};

}  // namespace evenkeel::transport
