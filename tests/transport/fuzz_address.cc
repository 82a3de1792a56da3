// Whatever bytes arrive as an address or a message header: refused, or unchanged when packed again.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "transport/ucx_address.h"
#include "transport/ucx_message.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace evenkeel::transport;  // NOLINT
  std::string_view text(reinterpret_cast<const char*>(data), size);
  if (absl::StatusOr<Address> address = UnwrapAddress(text); address.ok()) {
    // The flag is any non-zero byte on the wire.
    if (UnwrapAddress(WrapAddress(*address))->worker != address->worker) std::abort();
  }
  std::span<const std::byte> bytes = std::as_bytes(std::span(data, size));
  if (auto message = UnpackPartMessage(bytes); message && Pack(*message) != Pack(*UnpackPartMessage(bytes)))
    std::abort();
  (void)UnpackGreeting(bytes);
  return 0;
}
