// Hashes with XXH3-128, and writes the canonical texts whose hashes are the digests of streams and layouts.
// No other file includes xxhash.
#include "core/digest.h"

#include <xxhash.h>
#ifdef EVENKEEL_XXHASH_DISPATCH
#define XXH_DISPATCH_DISABLE_REPLACE
#include <xxh_x86dispatch.h>
#endif

#include <algorithm>
#include <cstdio>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/cpu.h"

namespace evenkeel {
namespace {

// Uses the widest vectors of the processor where the library can choose at run time: several times as fast,
// and the same hash by definition.
XXH128_hash_t HashOf(const void* bytes, size_t size) {
#ifdef EVENKEEL_XXHASH_DISPATCH
  if (MayUseFasterInstructions()) return XXH3_128bits_dispatch(bytes, size);
#endif
  return XXH3_128bits(bytes, size);
}

void UpdateState(XXH3_state_t* state, const void* bytes, size_t size) {
#ifdef EVENKEEL_XXHASH_DISPATCH
  if (MayUseFasterInstructions()) {
    XXH3_128bits_update_dispatch(state, bytes, size);
    return;
  }
#endif
  XXH3_128bits_update(state, bytes, size);
}

// The bytes of the hash in big-endian order, as xxhsum prints them.
Digest Canonical(XXH128_hash_t hash) {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, hash);
  Digest digest;
  static_assert(sizeof(canonical.digest) == sizeof(digest.bytes));
  std::copy(std::begin(canonical.digest), std::end(canonical.digest), digest.bytes.begin());
  return digest;
}

int HexValue(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

XXH3_state_t* NewState() {
  XXH3_state_t* state = XXH3_createState();
  if (state == nullptr) throw std::bad_alloc();
  XXH3_128bits_reset(state);
  return state;
}

// Hexadecimal digits of a finite double, independent of printf and locale: sign, "0x1." or "0x0.", the
// mantissa without trailing zeroes, "p", the exponent with its sign. Equal doubles have equal text and the
// reverse.
std::string HexFloat(double value) {
  if (value != value) return "nan";
  uint64_t bits;
  static_assert(sizeof(bits) == sizeof(value));
  __builtin_memcpy(&bits, &value, sizeof(bits));
  const char* sign = (bits >> 63) != 0 ? "-" : "";
  int exponent = static_cast<int>((bits >> 52) & 0x7ff);
  uint64_t mantissa = bits & ((1ull << 52) - 1);
  if (exponent == 0x7ff) return absl::StrCat(sign, "inf");
  if (exponent == 0 && mantissa == 0) return absl::StrCat(sign, "0x0p+0");
  const char* lead = exponent == 0 ? "0x0" : "0x1";
  int power = exponent == 0 ? -1022 : exponent - 1023;
  std::string digits;
  for (; mantissa != 0; mantissa = (mantissa << 4) & ((1ull << 52) - 1)) {
    digits.push_back("0123456789abcdef"[mantissa >> 48]);
  }
  return absl::StrCat(sign, lead, digits.empty() ? "" : ".", digits, "p", power < 0 ? "" : "+", power);
}

// A canonical text has one key and value per line, so line breaks in values are escaped.
void AppendEscaped(std::string_view value, std::string* out) {
  for (char c : value) {
    if (c == '\\') {
      out->append("\\\\");
    } else if (c == '\n') {
      out->append("\\n");
    } else {
      out->push_back(c);
    }
  }
}

XXH3_state_t* State(void* state) { return static_cast<XXH3_state_t*>(state); }

}  // namespace

std::string Digest::Hex() const {
  std::string hex;
  hex.reserve(32);
  for (uint8_t byte : bytes) {
    hex.push_back("0123456789abcdef"[byte >> 4]);
    hex.push_back("0123456789abcdef"[byte & 15]);
  }
  return hex;
}

bool Digest::FromHex(std::string_view hex, Digest* out) {
  if (hex.size() != 32) return false;
  Digest digest;
  for (size_t i = 0; i < digest.bytes.size(); ++i) {
    int high = HexValue(hex[2 * i]);
    int low = HexValue(hex[2 * i + 1]);
    if (high < 0 || low < 0) return false;
    digest.bytes[i] = static_cast<uint8_t>(high << 4 | low);
  }
  *out = digest;
  return true;
}

Digest DigestOf(std::span<const std::byte> bytes) { return Canonical(HashOf(bytes.data(), bytes.size())); }

Digest DigestOf(std::string_view text) { return Canonical(HashOf(text.data(), text.size())); }

// The first eight bytes of the digest, read as little-endian.
uint64_t ChecksumOf(std::span<const std::byte> bytes) {
  const Digest digest = DigestOf(bytes);
  uint64_t sum = 0;
  for (int i = 0; i < 8; ++i) sum |= uint64_t{digest.bytes[i]} << (8 * i);
  return sum;
}

Digester::Digester() : state_(NewState()) {}

Digester::~Digester() { XXH3_freeState(State(state_)); }

Digester::Digester(Digester&& other) noexcept : state_(std::exchange(other.state_, nullptr)) {}

Digester& Digester::operator=(Digester&& other) noexcept {
  if (this != &other) {
    XXH3_freeState(State(state_));
    state_ = std::exchange(other.state_, nullptr);
  }
  return *this;
}

void Digester::Update(std::span<const std::byte> bytes) {
  if (!bytes.empty()) UpdateState(State(state_), bytes.data(), bytes.size());
}

void Digester::Update(std::string_view text) {
  Update(std::as_bytes(std::span<const char>(text.data(), text.size())));
}

void Digester::UpdateU64(uint64_t value) {
  std::array<std::byte, 8> bytes;
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(value >> (8 * i));
  Update(bytes);
}

Digest Digester::Finish() const { return Canonical(XXH3_128bits_digest(State(state_))); }

void Digester::Reset() { XXH3_128bits_reset(State(state_)); }

void CanonicalText::Add(std::string_view key, std::string_view value) {
  text_.append(key);
  text_.push_back('=');
  AppendEscaped(value, &text_);
  text_.push_back('\n');
}

void CanonicalText::Add(std::string_view key, uint64_t value) {
  Add(key, std::string_view(absl::StrCat(value)));
}

void CanonicalText::Add(std::string_view key, double value) { Add(key, std::string_view(HexFloat(value))); }

}  // namespace evenkeel
