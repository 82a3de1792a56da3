// Owners of UCX's handles: context, worker, endpoint. No other file initialises, creates or destroys them.
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

// The size of the messages in which parts travel over TCP. Large enough that few of them find the socket's
// buffer full, small enough that received bytes are still in the core's cache when they are copied and
// hashed.
inline constexpr size_t kTcpChunkBytes = 512 << 10;

// `what`: the beginning of the message. UCX's status text follows it.
absl::Status StatusFromUcx(ucs_status_t status, std::string_view what);

// UCX's process-wide state for one selection of transports and devices.
class UcxContext {
 public:
  // Unavailable: no usable device; FailedPrecondition: no RDMA device although it is required, or the network
  // is not trusted; ResourceExhausted: too few file handles.
  static absl::StatusOr<std::shared_ptr<UcxContext>> Create(const Options& options);
  ~UcxContext();
  UcxContext(const UcxContext&) = delete;
  UcxContext& operator=(const UcxContext&) = delete;

  ucp_context_h handle() const { return handle_; }
  absl::StatusOr<ucp_mem_h> Register(std::span<std::byte> memory);
  void Unregister(ucp_mem_h memory);

 private:
  explicit UcxContext(ucp_context_h handle) : handle_(handle) {}
  const ucp_context_h handle_;
};

// Leaks `used` on purpose, because UCX or a network card may still access it.
void KeepForever(std::shared_ptr<void> used);

// Receives a worker's events, on the engine's thread, from inside Progress. Implementations may make no UCX
// call except to receive.
class UcxEvents {
 public:
  // `header` is valid only during the call. Returns the status that UCX requires of a receive callback.
  virtual ucs_status_t OnMessage(unsigned id, std::span<const std::byte> header, void* data, size_t length,
                                 bool rendezvous) = 0;
  virtual void OnEndpointError(ucp_ep_h endpoint, ucs_status_t status) = 0;

 protected:
  ~UcxEvents() = default;
};

// A worker with its endpoints and the number of operations that UCX has not completed.
class UcxWorker {
 public:
  // `events` must stay valid until Close or the destructor.
  static absl::StatusOr<std::unique_ptr<UcxWorker>> Create(std::shared_ptr<UcxContext> context,
                                                           UcxEvents* events);
  // Requires operations() == 0, after Close: UCX aborts the process if a receive is in flight.
  ~UcxWorker();
  UcxWorker(const UcxWorker&) = delete;
  UcxWorker& operator=(const UcxWorker&) = delete;

  ucp_worker_h handle() const { return handle_; }
  int descriptor() const { return descriptor_; }
  absl::StatusOr<std::string> address() const;

  bool Progress() { return Ucx().ucp_worker_progress(handle_) != 0; }
  // True if the descriptor will become readable on the next event; false: call Progress again.
  bool Arm();

  // `address` must be complete and undamaged (transport/address.h): UCX does not check it.
  absl::StatusOr<ucp_ep_h> Connect(const std::string& address);
  // Ends all operations on the endpoint; their completions arrive in later calls of Progress.
  void CloseByForce(ucp_ep_h endpoint);
  // Delivers no more events, and closes all endpoints by force.
  void Close();
  // Leaks the worker without progressing it again. For workers whose operations UCX does not complete although
  // their endpoints were closed.
  static void Abandon(std::unique_ptr<UcxWorker> worker);

  // Sends `header` and `data`; both must stay valid until `completed` has run, in a later Progress. Returns
  // false if the send is complete already; then `completed` will not run.
  absl::StatusOr<bool> Send(ucp_ep_h endpoint, unsigned id, std::span<const std::byte> header,
                            std::span<const std::byte> data, bool rendezvous,
                            void (*completed)(void* argument, ucs_status_t status), void* argument);
  // Sends a short message at once or not at all: returns false if the connection is not ready for it; try
  // again.
  absl::StatusOr<bool> SendImmediately(ucp_ep_h endpoint, unsigned id, std::span<const std::byte> header,
                                       std::span<const std::byte> data);
  // Receives data that OnMessage announced as rendezvous. Returns as Send does.
  absl::StatusOr<bool> Receive(void* descriptor, std::span<std::byte> buffer,
                               void (*completed)(void* argument, ucs_status_t status), void* argument);
  int operations() const { return operations_; }

  // The lanes that UCX chose for an endpoint: "rc_mlx5/mlx5_0:1", "tcp/eth0".
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
