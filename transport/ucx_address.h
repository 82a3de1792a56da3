// A UCX worker address in an envelope of ours.
//
// UCX's parser is given no length and trusts every byte, so nothing reaches it that is not whole and
// unchanged since a peer wrapped it. The envelope finds damage, not malice: it must travel over the
// authenticated control plane.
//
//   wrapped := "EVKA" u16 version(=2) u8 role u8 flags(1: shared_memory, 2: rdma) u32 worker_bytes u64 host,
//              16 bytes XXH3-128 of all the rest,
//              worker_bytes of UCX worker address (little-endian)
//
// Thread safety: functions without state.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace evenkeel::transport {

enum class AddressRole : uint8_t {
  kSource = 1,   // where a source is greeted
  kSink = 2,     // what a consumer's transport is; nobody connects to it, so `worker` is empty
  kSession = 3,  // a sink's worker for one session
};

struct Address {
  AddressRole role = AddressRole::kSource;
  bool shared_memory = false;
  bool rdma = false;   // every lane of it
  uint64_t host = 0;   // names the booted machine and its process namespace; compared for shared memory
  std::string worker;  // opaque
};

inline constexpr size_t kMaxAddressBytes = 64 << 10;

std::string WrapAddress(const Address& address);
// InvalidArgument: not such an envelope, of another version, truncated, or damaged.
absl::StatusOr<Address> UnwrapAddress(std::string_view wrapped);

// See Address::host.
uint64_t ThisHost();

}  // namespace evenkeel::transport
