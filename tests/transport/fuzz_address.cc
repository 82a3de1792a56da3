// Whatever bytes arrive as an address or a message header: refused, or unchanged when packed again.
//
// An address carries a digest of itself, which random bytes never match. So what arrives is tried as it is,
// and once more behind an envelope made here: the first bytes choose role, flags and host, or damage the
// envelope after its digest was made right; the rest is UCX's part, which our parser only carries.
//
// EVENKEEL_FUZZ_REACH in the environment: at exit one line says how many inputs passed the envelope.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

#include "core/digest.h"
#include "transport/address.h"
#include "transport/ucx_message.h"

namespace {

using namespace evenkeel;             // NOLINT
using namespace evenkeel::transport;  // NOLINT

constexpr size_t kDigestOffset = 20, kEnvelopeBytes = 36;

struct Reach {
  uint64_t inputs = 0, passed_as_they_are = 0, passed_sealed = 0, refused_behind_the_digest = 0;
  ~Reach() {
    if (std::getenv("EVENKEEL_FUZZ_REACH") == nullptr) return;
    std::fprintf(stderr,
                 "reach: %llu inputs, %llu passed as they are, %llu passed sealed, %llu refused sealed\n",
                 static_cast<unsigned long long>(inputs), static_cast<unsigned long long>(passed_as_they_are),
                 static_cast<unsigned long long>(passed_sealed),
                 static_cast<unsigned long long>(refused_behind_the_digest));
  }
};

Reach& TheReach() {
  static Reach reach;
  return reach;
}

// Writes the digest that the rest of the envelope has.
void Seal(std::string* wrapped) {
  Digester digester;
  digester.Update(std::string_view(*wrapped).substr(0, kDigestOffset));
  digester.Update(std::string_view(*wrapped).substr(kEnvelopeBytes));
  const Digest digest = digester.Finish();
  std::memcpy(wrapped->data() + kDigestOffset, digest.bytes.data(), digest.bytes.size());
}

bool Check(std::string_view text) {
  const absl::StatusOr<Address> address = UnwrapAddress(text);
  if (!address.ok()) return false;
  if (address->worker.size() > text.size()) std::abort();
  if (WrapAddress(*address) != text) std::abort();  // nothing of it is lost or ignored
  return true;
}

// The header as it stands in the input, whatever it says, with lengths and digest made right on request.
void CheckSealed(std::string_view text) {
  if (text.size() < kEnvelopeBytes + 1) return;
  const uint8_t repair = static_cast<uint8_t>(text[0]);
  std::string wrapped(text.substr(1));
  if ((repair & 1) != 0) std::memcpy(wrapped.data(), "EVKA\2\0", 6);
  if ((repair & 2) != 0) {
    const uint32_t rest = static_cast<uint32_t>(wrapped.size() - kEnvelopeBytes);
    std::memcpy(wrapped.data() + 8, &rest, sizeof(rest));
  }
  Seal(&wrapped);
  ++(Check(wrapped) ? TheReach().passed_sealed : TheReach().refused_behind_the_digest);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  ++TheReach().inputs;
  if (Check(text)) ++TheReach().passed_as_they_are;
  CheckSealed(text);
  const std::span<const std::byte> bytes = std::as_bytes(std::span(data, size));
  if (const auto message = UnpackPartMessage(bytes); message) {
    if (const PartMessageBytes again = Pack(*message); std::memcmp(again.data(), data, again.size()) != 0)
      std::abort();
  }
  if (const auto greeting = UnpackGreeting(bytes); greeting) {
    if (const GreetingBytes again = Pack(*greeting); std::memcmp(again.data(), data, again.size()) != 0)
      std::abort();
  }
  return 0;
}
