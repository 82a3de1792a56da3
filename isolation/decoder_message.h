// What a worker and its decoder processes say to each other: one item asked for, one verdict.
//
// Both ends are one binary, forked: the messages are plain structs, sent whole over a SOCK_SEQPACKET socket.
// Media and tensors are not in them; they lie in shared memory, whose files travel beside the call. The
// worker trusts nothing in a reply but its own item: sizes and codes are checked.
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

// Bytes of one of the files that travel with a call.
struct SharedRange {
  uint64_t offset = 0;
  uint64_t size = 0;
};

// Files beside it: the input, then, where there are fields, the output.
struct DecoderCall {
  static constexpr size_t kMaxFields = 16;

  DecoderWork work = DecoderWork::kProbe;
  Medium medium = Medium::kImage;
  std::array<char, 64> suffix{};  // its end, where it is longer; terminated
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
  // Internal where the code is none.
  absl::Status status() const;
};

// Whether facts could be those of a medium that a decoder accepts, so that computing with them is safe: none
// of its divisors is zero, and a turn is one of four. Internal where they could not: a verdict about the
// decoder, not about the medium. Limits are the processor's business.
absl::Status CheckFacts(const MediaFacts& facts, Medium asked);

// The end of `text` that fits, terminated.
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

// One message with its files. Unavailable: the other end is gone.
absl::Status SendBytes(int socket, std::span<const std::byte> bytes, std::span<const int> files);
// Fills `bytes` from one message of exactly that size. Unavailable: the other end is gone, or sent another
// size.
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

// Two ends of a socket that keeps messages whole.
absl::StatusOr<std::pair<Handle, Handle>> MakeSocketPair();

}  // namespace evenkeel::isolation
