// The messages between a worker and its decoder processes: one call for an item, one reply.
//
// Both ends are forked from the same binary, so the messages are plain structs, sent whole over a
// SOCK_SEQPACKET socket. Media and tensors are not in them: they are in shared memory, whose files travel
// with the call. The worker trusts nothing in a reply: sizes and codes are checked.
// Thread safety: free functions; a socket belongs to one thread at a time.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/handle.h"
#include "core/words.h"
#include "preprocess/processor.h"

namespace evenkeel::isolation {

enum class DecoderWork : uint8_t { kProbe, kProduce };

// A range of one of the files that travel with a call.
struct SharedRange {
  uint64_t offset = 0;
  uint64_t size = 0;
};

// The files that travel with it: the input and, if there are fields, the output.
struct DecoderCall {
  static constexpr size_t kMaxFields = 16;

  DecoderWork work = DecoderWork::kProbe;
  Medium medium = Medium::kImage;
  uint8_t tower = 0;              // ItemRequest::tower
  std::array<char, 64> suffix{};  // the file name's end; truncated on the left, zero-terminated
  MediaFacts facts;
  ItemLengths planned;
  SharedRange input;
  uint32_t num_fields = 0;
  std::array<SharedRange, kMaxFields> fields{};
};

struct DecoderReply {
  int32_t code = 0;                  // absl::StatusCode
  MediaFacts facts;                  // kProbe
  preprocess::ItemNotes notes;       // kProduce
  std::array<char, 1024> message{};  // terminated

  static DecoderReply Of(const absl::Status& status);
  // Internal: the code is invalid.
  absl::Status status() const;
};

// Checks that facts are possible for a medium that a decoder accepts, so that computing with them is safe: no
// divisor is zero, and the rotation is a quarter turn. Internal: they are not, which is a fault of the
// decoder and no verdict on the medium. Limits are checked by the processor.
absl::Status CheckFacts(const MediaFacts& facts, Medium asked);

// The end of `text` that fits, zero-terminated.
template <size_t N>
void CopyText(std::string_view text, std::array<char, N>& out) {
  static_assert(N > 0);
  if (text.size() >= N) text.remove_prefix(text.size() - (N - 1));
  out.fill('\0');
  text.copy(out.data(), text.size());
}
template <size_t N>
std::string_view TextOf(const std::array<char, N>& text) {
  const std::string_view all(text.data(), N);
  return all.substr(0, all.find('\0'));
}

// Sends one message with its files. Unavailable: the other end is gone.
absl::Status SendBytes(int socket, std::span<const std::byte> bytes, std::span<const int> files);
// Fills `bytes` from one message of exactly that size. Unavailable: the other end is gone, or sent a message
// of another size.
absl::Status ReceiveBytes(int socket, std::span<std::byte> bytes, std::vector<Handle>* files);

template <typename Message>
absl::Status SendMessage(int socket, const Message& message, std::span<const int> files = {}) {
  static_assert(std::is_trivially_copyable_v<Message>);
  return SendBytes(socket, std::as_bytes(std::span(&message, 1)), files);
}
template <typename Message>
absl::Status ReceiveMessage(int socket, Message* message, std::vector<Handle>* files = nullptr) {
  static_assert(std::is_trivially_copyable_v<Message>);
  return ReceiveBytes(socket, std::as_writable_bytes(std::span(message, 1)), files);
}

// The two ends of a socket that keeps message boundaries.
absl::StatusOr<std::pair<Handle, Handle>> MakeSocketPair();

}  // namespace evenkeel::isolation
