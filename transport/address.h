// The address of a source or a sink, in an envelope of our own: a UCX worker's, or the name of the socket over
// which sealed memory is handed over.
//
// UCX's parser takes no length and trusts every byte, so it is given only addresses that arrived whole and
// unchanged. The envelope detects damage, not malice: it must travel over the authenticated control plane.
//
//   wrapped := "EVKA" u16 version(=2) u8 role u8 flags(1: memory, 2: rdma) u32 worker_bytes u64 host,
//              16 bytes XXH3-128 of all the rest,
//              worker_bytes of UCX worker address or socket name (little-endian)
//
// Thread safety: functions without state.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace evenkeel::transport {

enum class AddressRole : uint8_t {
  kSource = 1,   // a source's main worker, which sinks connect to
  kSink = 2,     // describes a sink's transport; nobody connects to it, so `worker` is empty
  kSession = 3,  // a sink's worker for one session
};

struct Address {
  AddressRole role = AddressRole::kSource;
  bool memory = false;  // of the transport memory; else UCX's
  bool rdma = false;    // all of its lanes are RDMA
  uint64_t host = 0;    // identifies the booted machine
  std::string worker;   // UCX's own bytes, or the socket's name
};

inline constexpr size_t kMaxAddressBytes = 64 << 10;

std::string WrapAddress(const Address& address);
// InvalidArgument: not an envelope, another version, truncated, or damaged.
absl::StatusOr<Address> UnwrapAddress(std::string_view wrapped);

// See Address::host.
uint64_t ThisHost();
// True for an address of the transport memory on this machine.
bool IsMemoryOfThisHost(std::string_view wrapped);

}  // namespace evenkeel::transport
