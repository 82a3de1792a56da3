// Creates and destroys UCX workers and endpoints in the order that UCX requires, and counts their operations.
#include "transport/ucx_worker.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "core/annotated_mutex.h"
#include "core/status.h"
#include "transport/file_handles.h"
#include "transport/ucx_message.h"

namespace evenkeel::transport {
namespace {

// A UCX worker takes 3, and 2 for each network device that it uses; the rest is a margin, as for a context.
constexpr int kWorkerHandles = 20;

}  // namespace

// One send or receive that UCX has not completed. UCX holds the pointer as user data; Complete deletes it.
struct UcxWorker::Operation {
  UcxWorker* worker;
  void (*completed)(void*, ucs_status_t);
  void* argument;

  static void Complete(void* request, ucs_status_t status, void* data) {
    std::unique_ptr<Operation> self(static_cast<Operation*>(data));
    Ucx().ucp_request_free(request);
    --self->worker->operations_;
    self->completed(self->argument, status);
  }
  static void Sent(void* request, ucs_status_t status, void* data) { Complete(request, status, data); }
  static void Arrived(void* request, ucs_status_t status, size_t, void* data) {
    Complete(request, status, data);
  }
};

absl::StatusOr<std::unique_ptr<UcxWorker>> UcxWorker::Create(std::shared_ptr<UcxContext> context,
                                                             UcxEvents* events) {
  EVENKEEL_RETURN_IF_ERROR(CheckFileHandles(kWorkerHandles, "a connection over UCX"));
  ucp_worker_params_t parameters{};
  parameters.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  parameters.thread_mode = UCS_THREAD_MODE_SINGLE;
  ucp_worker_h handle;
  ucs_status_t status = Ucx().ucp_worker_create(context->handle(), &parameters, &handle);
  if (status != UCS_OK) return StatusFromUcx(status, "cannot create a worker");
  std::unique_ptr<UcxWorker> worker(new UcxWorker(std::move(context), handle, events));
  EVENKEEL_RETURN_IF_ERROR(worker->Prepare());
  return worker;
}

UcxWorker::UcxWorker(std::shared_ptr<UcxContext> context, ucp_worker_h handle, UcxEvents* events)
    : context_(std::move(context)), handle_(handle), events_(events) {}

UcxWorker::~UcxWorker() { Ucx().ucp_worker_destroy(handle_); }

absl::Status UcxWorker::Prepare() {
  ucs_status_t status = Ucx().ucp_worker_get_efd(handle_, &descriptor_);
  if (status != UCS_OK) return StatusFromUcx(status, "the worker has no wake-up descriptor");
  constexpr ucp_am_recv_callback_t kCallbacks[] = {ReceivedAs<1>, ReceivedAs<2>, ReceivedAs<3>,
                                                   ReceivedAs<4>};
  for (MessageId id : kAllMessageIds) {
    ucp_am_handler_param_t handler{};
    handler.field_mask =
        UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG;
    handler.id = static_cast<unsigned>(id);
    handler.cb = kCallbacks[handler.id - 1];
    handler.arg = this;
    status = Ucx().ucp_worker_set_am_recv_handler(handle_, &handler);
    if (status != UCS_OK) return StatusFromUcx(status, "cannot receive active messages");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> UcxWorker::address() const {
  ucp_address_t* address;
  size_t length;
  ucs_status_t status = Ucx().ucp_worker_get_address(handle_, &address, &length);
  if (status != UCS_OK) return StatusFromUcx(status, "the worker has no address");
  std::string bytes(reinterpret_cast<const char*>(address), length);
  Ucx().ucp_worker_release_address(handle_, address);
  return bytes;
}

bool UcxWorker::Arm() { return Ucx().ucp_worker_arm(handle_) != UCS_ERR_BUSY; }

absl::StatusOr<ucp_ep_h> UcxWorker::Connect(const std::string& address) {
  ucp_ep_params_t parameters{};
  parameters.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                          UCP_EP_PARAM_FIELD_ERR_HANDLER;
  parameters.address = reinterpret_cast<const ucp_address_t*>(address.data());
  parameters.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  parameters.err_handler.cb = Failed;
  parameters.err_handler.arg = this;
  ucp_ep_h endpoint;
  ucs_status_t status = Ucx().ucp_ep_create(handle_, &parameters, &endpoint);
  if (status != UCS_OK) return StatusFromUcx(status, "cannot connect to the peer's data-plane address");
  endpoints_.push_back(endpoint);
  return endpoint;
}

void UcxWorker::CloseByForce(ucp_ep_h endpoint) {
  auto found = std::find(endpoints_.begin(), endpoints_.end(), endpoint);
  if (found == endpoints_.end()) return;
  endpoints_.erase(found);
  ucp_request_param_t parameters{};
  parameters.op_attr_mask =
      UCP_OP_ATTR_FIELD_FLAGS | UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  parameters.flags = UCP_EP_CLOSE_FLAG_FORCE;
  parameters.cb.send = Operation::Sent;
  auto operation = std::make_unique<Operation>(Operation{this, [](void*, ucs_status_t) {}, nullptr});
  parameters.user_data = operation.get();
  ucs_status_ptr_t request = Ucx().ucp_ep_close_nbx(endpoint, &parameters);
  (void)Started(request, std::move(operation), "close");  // after an error there is nothing to wait for
}

void UcxWorker::Close() {
  events_ = nullptr;
  while (!endpoints_.empty()) CloseByForce(endpoints_.back());
}

void UcxWorker::Abandon(std::unique_ptr<UcxWorker> worker) {
  KeepForever(std::shared_ptr<UcxWorker>(std::move(worker)));
}

void KeepForever(std::shared_ptr<void> used) {
  static Mutex& mutex = *new Mutex;
  static std::vector<std::shared_ptr<void>>& kept = *new std::vector<std::shared_ptr<void>>;
  MutexLock lock(mutex);
  kept.push_back(std::move(used));
}

absl::StatusOr<bool> UcxWorker::Started(ucs_status_ptr_t request, std::unique_ptr<Operation> operation,
                                        std::string_view what) {
  if (request == nullptr) return false;
  if (UCS_PTR_IS_ERR(request)) return StatusFromUcx(UCS_PTR_STATUS(request), what);
  ++operations_;
  (void)operation.release();  // Complete deletes it
  return true;
}

absl::StatusOr<bool> UcxWorker::Send(ucp_ep_h endpoint, unsigned id, std::span<const std::byte> header,
                                     std::span<const std::byte> data, bool rendezvous,
                                     void (*completed)(void*, ucs_status_t), void* argument) {
  auto operation = std::make_unique<Operation>(Operation{this, completed, argument});
  ucp_request_param_t parameters{};
  parameters.op_attr_mask =
      UCP_OP_ATTR_FIELD_FLAGS | UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  parameters.flags = rendezvous ? UCP_AM_SEND_FLAG_RNDV : UCP_AM_SEND_FLAG_EAGER;
  parameters.cb.send = Operation::Sent;
  parameters.user_data = operation.get();
  ucs_status_ptr_t request = Ucx().ucp_am_send_nbx(endpoint, id, header.data(), header.size(), data.data(),
                                                   data.size(), &parameters);
  return Started(request, std::move(operation), "send");
}

absl::StatusOr<bool> UcxWorker::SendImmediately(ucp_ep_h endpoint, unsigned id,
                                                std::span<const std::byte> header,
                                                std::span<const std::byte> data) {
  ucp_request_param_t parameters{};
  parameters.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS | UCP_OP_ATTR_FLAG_FORCE_IMM_CMPL;
  parameters.flags = UCP_AM_SEND_FLAG_EAGER;
  ucs_status_ptr_t request = Ucx().ucp_am_send_nbx(endpoint, id, header.data(), header.size(), data.data(),
                                                   data.size(), &parameters);
  if (request == nullptr) return true;
  if (UCS_PTR_STATUS(request) == UCS_ERR_NO_RESOURCE) return false;
  return StatusFromUcx(UCS_PTR_STATUS(request), "send");
}

absl::StatusOr<bool> UcxWorker::Receive(void* descriptor, std::span<std::byte> buffer,
                                        void (*completed)(void*, ucs_status_t), void* argument) {
  auto operation = std::make_unique<Operation>(Operation{this, completed, argument});
  ucp_request_param_t parameters{};
  parameters.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  parameters.cb.recv_am = Operation::Arrived;
  parameters.user_data = operation.get();
  ucs_status_ptr_t request =
      Ucx().ucp_am_recv_data_nbx(handle_, descriptor, buffer.data(), buffer.size(), &parameters);
  return Started(request, std::move(operation), "receive");
}

template <unsigned id>
ucs_status_t UcxWorker::ReceivedAs(void* argument, const void* header, size_t header_bytes, void* data,
                                   size_t length, const ucp_am_recv_param_t* parameters) {
  return static_cast<UcxWorker*>(argument)->Dispatch(id, header, header_bytes, data, length, parameters);
}

ucs_status_t UcxWorker::Dispatch(unsigned id, const void* header, size_t header_bytes, void* data,
                                 size_t length, const ucp_am_recv_param_t* parameters) {
  if (events_ == nullptr) return UCS_OK;  // closed: later messages are dropped
  bool rendezvous = (parameters->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0;
  return events_->OnMessage(id, {static_cast<const std::byte*>(header), header_bytes}, data, length,
                            rendezvous);
}

void UcxWorker::Failed(void* argument, ucp_ep_h endpoint, ucs_status_t status) {
  UcxWorker* self = static_cast<UcxWorker*>(argument);
  if (self->events_ != nullptr) self->events_->OnEndpointError(endpoint, status);
}

std::vector<std::string> UcxWorker::Lanes(ucp_ep_h endpoint) {
  char* text = nullptr;
  size_t length = 0;
  FILE* stream = open_memstream(&text, &length);
  if (stream == nullptr) return {};
  Ucx().ucp_ep_print_info(endpoint, stream);
  fclose(stream);
  std::string info(text, length);
  free(text);
  // UCX 1.13 reports lanes only in this text: "lane[0]:  0:tcp/lo.0 md[0] -> ...".
  std::vector<std::string> lanes;
  for (size_t at = info.find("lane["); at != std::string::npos; at = info.find("lane[", at + 1)) {
    size_t begin = info.find(':', info.find(':', at) + 1) + 1;
    size_t end = info.find(" md[", begin);
    if (begin == 0 || end == std::string::npos) continue;
    std::string lane = info.substr(begin, end - begin);
    lanes.push_back(lane.substr(0, lane.rfind('.')));  // removes the path index
  }
  return lanes;
}

}  // namespace evenkeel::transport
