// 128-bit digests: XXH3-128 in its canonical (big-endian) byte order.
//
// Not cryptographic: it distinguishes versions of the same honest data and finds damage on the way.
// The canonical text of the stream and layout digests is written down in docs/digests.md.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace evenkeel {

struct Digest {
  std::array<uint8_t, 16> bytes{};

  std::string Hex() const;  // 32 lower-case hex digits
  // False where `hex` is not 32 hex digits.
  static bool FromHex(std::string_view hex, Digest* out);
  friend bool operator==(const Digest&, const Digest&) = default;
};

Digest DigestOf(std::span<const std::byte> bytes);
Digest DigestOf(std::string_view text);
// The first 8 bytes of the digest, little-endian: against damage and change, not a name.
uint64_t ChecksumOf(std::span<const std::byte> bytes);

// Streaming form. Not thread-safe; movable.
class Digester {
 public:
  Digester();
  ~Digester();
  Digester(Digester&& other) noexcept;
  Digester& operator=(Digester&& other) noexcept;

  void Update(std::span<const std::byte> bytes);
  void Update(std::string_view text);
  void UpdateU64(uint64_t value);  // as 8 little-endian bytes
  Digest Finish() const;
  void Reset();

 private:
  void* state_;  // XXH3_state_t
};

// Lines "key=value\n" in the order in which they are added, values escaped (backslash, newline).
// Doubles are written as hexadecimal floats, so no rounding and no locale is involved.
class CanonicalText {
 public:
  explicit CanonicalText(std::string_view title) : text_(std::string(title) + "\n") {}

  void Add(std::string_view key, std::string_view value);
  void Add(std::string_view key, uint64_t value);
  void Add(std::string_view key, double value);
  const std::string& text() const { return text_; }
  Digest digest() const { return DigestOf(text_); }

 private:
  std::string text_;
};

}  // namespace evenkeel
