// The headers of our UCX active messages, as bytes. Parsing only; independent of UCX.
//
//   sink -> source   kHello   Greeting; data: the wrapped address of the sink's worker for this session
//   source -> sink   kReady   Greeting; parts may follow
//   source -> sink   kPart    PartMessage; data: the part's bytes from `offset` on
//   source -> sink   kBye     Greeting; the session is over, for both
//
//   greeting := "EVKS" u32:version(=1) u64:session 16:secret
//   part     := "EVKD" u32:version(=1) u64:session u64:request u64:length u64:offset 16:hash 16:secret
//
// Little-endian. A part is one message (by rendezvous, or if it is short), or several in ascending order of
// their offsets; each contains the whole part's length and hash.
//
// Thread safety: functions without state.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "transport/transport.h"

namespace evenkeel::transport {

enum class MessageId : unsigned { kHello = 1, kReady = 2, kPart = 3, kBye = 4 };
inline constexpr std::array<MessageId, 4> kAllMessageIds = {MessageId::kHello, MessageId::kReady,
                                                            MessageId::kPart, MessageId::kBye};

struct Greeting {
  SessionId session = 0;
  Secret secret{};
};
struct PartMessage {
  SessionId session = 0;
  RequestId request = 0;
  uint64_t length = 0;  // of the part, in bytes
  uint64_t offset = 0;  // of the message's data in the part
  Digest hash;          // of the part
  Secret secret{};
};

inline constexpr size_t kGreetingBytes = 32;
inline constexpr size_t kPartMessageBytes = 72;
using GreetingBytes = std::array<std::byte, kGreetingBytes>;
using PartMessageBytes = std::array<std::byte, kPartMessageBytes>;

GreetingBytes Pack(const Greeting& greeting);
PartMessageBytes Pack(const PartMessage& message);
// nullopt if the size, the magic or the version is wrong.
std::optional<Greeting> UnpackGreeting(std::span<const std::byte> bytes);
std::optional<PartMessage> UnpackPartMessage(std::span<const std::byte> bytes);

}  // namespace evenkeel::transport
