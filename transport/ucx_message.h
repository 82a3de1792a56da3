// What our active messages carry in their headers, as bytes. Parsing only: knows nothing of UCX.
//
//   sink -> source   kHello   Greeting, then the wrapped address of the sink's worker for this session as
//   data source -> sink   kReady   Greeting, then the wrapped address of the source's worker for this session
//   as data sink -> source   kGo      Greeting; parts may follow source -> sink   kPart    PartMessage, then
//   the part as data
//
//   greeting := "EVKS" u32 version(=1) u64 session, 16 bytes secret (little-endian) part     := "EVKD" u32
//   version(=1) u64 session u64 request u64 length, 16 bytes hash, 16 bytes secret
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

enum class MessageId : unsigned { kHello = 1, kReady = 2, kGo = 3, kPart = 4 };
inline constexpr std::array<MessageId, 4> kAllMessageIds = {MessageId::kHello, MessageId::kReady,
                                                            MessageId::kGo, MessageId::kPart};

struct Greeting {
  SessionId session = 0;
  Secret secret{};
};
struct PartMessage {
  SessionId session = 0;
  RequestId request = 0;
  uint64_t length = 0;
  Digest hash;
  Secret secret{};
};

inline constexpr size_t kGreetingBytes = 32;
inline constexpr size_t kPartMessageBytes = 64;
using GreetingBytes = std::array<std::byte, kGreetingBytes>;
using PartMessageBytes = std::array<std::byte, kPartMessageBytes>;

GreetingBytes Pack(const Greeting& greeting);
PartMessageBytes Pack(const PartMessage& message);
// Nothing where the bytes are anything else.
std::optional<Greeting> UnpackGreeting(std::span<const std::byte> bytes);
std::optional<PartMessage> UnpackPartMessage(std::span<const std::byte> bytes);

}  // namespace evenkeel::transport
