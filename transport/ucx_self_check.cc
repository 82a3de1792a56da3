// Sends one message from a worker of this process to another one, within a deadline.
#include "transport/ucx_self_check.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/status.h"
#include "transport/deadline.h"
#include "transport/ucx_message.h"

namespace evenkeel::transport {
namespace {

// Long enough to travel by rendezvous.
constexpr size_t kBytes = 64 << 10;
constexpr auto kNap = std::chrono::milliseconds(1);
// UCX gets this long to complete operations after the close; then they are abandoned.
constexpr absl::Duration kClosing = absl::Seconds(2);

class Receiver : public UcxEvents {
 public:
  ucs_status_t OnMessage(unsigned, std::span<const std::byte>, void* data, size_t length,
                         bool rendezvous) override {
    if (length != kBytes) return UCS_OK;
    announced_ = true;
    if (!rendezvous) {
      const auto* bytes = static_cast<const std::byte*>(data);
      std::copy(bytes, bytes + length, buffer_.begin());
      ended_ = UCS_OK;
      return UCS_OK;
    }
    absl::StatusOr<bool> under_way = worker_->Receive(data, buffer_, Received, this);
    if (!under_way.ok()) {
      ended_ = UCS_ERR_IO_ERROR;
      return UCS_OK;
    }
    if (!*under_way) ended_ = UCS_OK;
    return UCS_INPROGRESS;
  }
  void OnEndpointError(ucp_ep_h, ucs_status_t status) override { failed_ = status; }

  void set_worker(UcxWorker* worker) { worker_ = worker; }
  bool announced() const { return announced_; }
  std::optional<ucs_status_t> ended() const { return failed_ ? failed_ : ended_; }
  const std::vector<std::byte>& buffer() const { return buffer_; }

 private:
  static void Received(void* self, ucs_status_t status) { static_cast<Receiver*>(self)->ended_ = status; }

  UcxWorker* worker_ = nullptr;
  std::vector<std::byte> buffer_ = std::vector<std::byte>(kBytes);
  bool announced_ = false;
  std::optional<ucs_status_t> ended_;
  std::optional<ucs_status_t> failed_;
};

// Owns all that UCX may still access; outlives the check if UCX does not complete its operations.
struct Check {
  Receiver events;
  std::vector<std::byte> bytes = std::vector<std::byte>(kBytes, std::byte{0x5a});
  std::unique_ptr<UcxWorker> receiver;
  std::unique_ptr<UcxWorker> sender;

  bool Progress() {
    bool any = receiver->Progress();
    return sender->Progress() || any;
  }
  int operations() const { return receiver->operations() + sender->operations(); }
};

template <typename Condition>
void ProgressUntil(Check& check, absl::Duration timeout, Condition condition) {
  const Clock::time_point deadline = DeadlineAfter(timeout);
  while (!condition() && Clock::now() < deadline) {
    if (!check.Progress()) std::this_thread::sleep_for(kNap);
  }
}

absl::Status Run(const std::shared_ptr<UcxContext>& context, absl::Duration timeout, Check& check) {
  EVENKEEL_ASSIGN_OR_RETURN(check.receiver, UcxWorker::Create(context, &check.events));
  check.events.set_worker(check.receiver.get());
  EVENKEEL_ASSIGN_OR_RETURN(check.sender, UcxWorker::Create(context, &check.events));
  EVENKEEL_ASSIGN_OR_RETURN(std::string address, check.receiver->address());
  EVENKEEL_ASSIGN_OR_RETURN(ucp_ep_h endpoint, check.sender->Connect(address));
  EVENKEEL_ASSIGN_OR_RETURN(bool under_way,
                            check.sender->Send(
                                endpoint, static_cast<unsigned>(MessageId::kPart), {}, check.bytes,
                                /*rendezvous=*/true, [](void*, ucs_status_t) {}, nullptr));
  (void)under_way;  // the receiving side decides
  ProgressUntil(check, timeout, [&] { return check.events.ended().has_value(); });
  const std::optional<ucs_status_t> ended = check.events.ended();
  if (!ended) {
    return absl::UnavailableError(absl::StrCat(
        "a message to this process itself did not arrive within ", absl::FormatDuration(timeout), ": ",
        check.events.announced() ? "its header arrived, but its bytes could not be fetched"
                                 : "no connection was established"));
  }
  if (*ended != UCS_OK) return StatusFromUcx(*ended, "a message to this process itself failed");
  if (check.events.buffer() != check.bytes) {
    return absl::UnavailableError("a message to this process itself arrived with other bytes");
  }
  // Lets the acknowledgement reach the sender, so that both workers can be destroyed.
  ProgressUntil(check, kClosing, [&] { return check.operations() == 0; });
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckSelfDelivery(const std::shared_ptr<UcxContext>& context, absl::Duration timeout) {
  auto check = std::make_shared<Check>();
  absl::Status status = Run(context, timeout, *check);
  if (check->sender == nullptr) return status;
  check->sender->Close();
  check->receiver->Close();
  ProgressUntil(*check, kClosing, [&] { return check->operations() == 0; });
  if (check->operations() > 0) KeepForever(std::move(check));
  return status;
}

}  // namespace evenkeel::transport
