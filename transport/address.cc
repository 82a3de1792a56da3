// Wraps addresses with a length and a digest, and checks both before anything else sees the bytes.
#include "transport/address.h"

#include <cstring>
#include <fstream>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/digest.h"

namespace evenkeel::transport {
namespace {

constexpr uint16_t kVersion = 2;
constexpr uint8_t kMemoryFlag = 1;
constexpr uint8_t kRdmaFlag = 2;
constexpr size_t kDigestOffset = 20;
constexpr size_t kEnvelopeBytes = 36;

Digest DigestWithout(std::string_view wrapped) {
  Digester digester;
  digester.Update(wrapped.substr(0, kDigestOffset));
  digester.Update(wrapped.substr(kEnvelopeBytes));
  return digester.Finish();
}

template <typename T>
void Append(const T& value, std::string* out) {
  out->append(reinterpret_cast<const char*>(&value), sizeof(value));
}

template <typename T>
T Load(std::string_view bytes, size_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof(value));
  return value;
}

absl::Status Refuse(std::string_view why) {
  return absl::InvalidArgumentError(
      absl::StrCat("not a transport address: ", std::string(why),
                   "; it must be passed on unchanged, and both sides must run the same release"));
}

}  // namespace

std::string WrapAddress(const Address& address) {
  std::string wrapped = "EVKA";
  Append(kVersion, &wrapped);
  Append(static_cast<uint8_t>(address.role), &wrapped);
  Append(static_cast<uint8_t>((address.memory ? kMemoryFlag : 0) | (address.rdma ? kRdmaFlag : 0)), &wrapped);
  Append(static_cast<uint32_t>(address.worker.size()), &wrapped);
  Append(address.host, &wrapped);
  wrapped.append(16, '\0');
  wrapped.append(address.worker);
  Digest digest = DigestWithout(wrapped);
  std::memcpy(wrapped.data() + kDigestOffset, digest.bytes.data(), digest.bytes.size());
  return wrapped;
}

absl::StatusOr<Address> UnwrapAddress(std::string_view wrapped) {
  if (wrapped.size() < kEnvelopeBytes || wrapped.size() > kMaxAddressBytes) {
    return Refuse(absl::StrCat(wrapped.size(), " bytes"));
  }
  if (wrapped.substr(0, 4) != "EVKA") return Refuse("no magic");
  if (Load<uint16_t>(wrapped, 4) != kVersion) return Refuse("another version");
  if (Load<uint32_t>(wrapped, 8) != wrapped.size() - kEnvelopeBytes) return Refuse("truncated or too long");
  if (std::memcmp(DigestWithout(wrapped).bytes.data(), wrapped.data() + kDigestOffset, 16) != 0) {
    return Refuse("damaged");
  }
  uint8_t role = Load<uint8_t>(wrapped, 6);
  if (role < 1 || role > 3) return Refuse("unknown role");
  uint8_t flags = Load<uint8_t>(wrapped, 7);
  if (flags > (kMemoryFlag | kRdmaFlag)) return Refuse("unknown flags");
  Address address;
  address.role = static_cast<AddressRole>(role);
  address.memory = (flags & kMemoryFlag) != 0;
  address.rdma = (flags & kRdmaFlag) != 0;
  address.host = Load<uint64_t>(wrapped, 12);
  address.worker = std::string(wrapped.substr(kEnvelopeBytes));
  return address;
}

// The boot id identifies the machine. Containers of one machine share it.
uint64_t ThisHost() {
  static const uint64_t host = [] {
    std::string name;
    std::ifstream("/proc/sys/kernel/random/boot_id") >> name;
    uint64_t first;
    std::memcpy(&first, DigestOf(name).bytes.data(), sizeof(first));
    return first;
  }();
  return host;
}

bool IsMemoryOfThisHost(std::string_view wrapped) {
  const absl::StatusOr<Address> address = UnwrapAddress(wrapped);
  return address.ok() && address->memory && address->host == ThisHost();
}

}  // namespace evenkeel::transport
