// Any bytes are either a part, whose views lie inside them and whose token fields can be computed, or an
// error. The header is also tried with its sizes mended, in both formats, so that the fuzzer gets past the
// prefix.
#include <cstdlib>
#include <cstring>
#include <vector>

#include "core/part.h"

namespace {

// `bytes` are aligned as receive memory is.
void Read(std::span<const std::byte> bytes) {
  absl::StatusOr<evenkeel::PartView> part = evenkeel::ReadPart(bytes);
  if (!part.ok()) {
    if (part.status().code() != absl::StatusCode::kDataLoss) std::abort();
    return;
  }
  for (const evenkeel::TensorView& tensor : part->tensors) {
    if (tensor.bytes().size() != tensor.spec.num_bytes()) std::abort();
    if (tensor.tokens != nullptr || tensor.wire.empty()) continue;
    if (tensor.wire.data() < bytes.data() ||
        tensor.wire.data() + tensor.wire.size() > bytes.data() + bytes.size()) {
      std::abort();
    }
  }
  evenkeel::Digester digester;
  evenkeel::DigestPart(*part, digester);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto input = std::as_bytes(std::span(data, size));
  Read(std::vector<std::byte>(input.begin(), input.end()));
  if (size > 1 << 16) return 0;
  size_t begin = (16 + size + 63) / 64 * 64;
  for (size_t payload : {0, 64, 4096}) {
    for (uint32_t version : {1, 2}) {
      std::vector<std::byte> part(begin + payload);
      const uint32_t prefix[4] = {0x504b5645, version, static_cast<uint32_t>(size), 0};  // "EVKP"
      std::memcpy(part.data(), prefix, sizeof(prefix));
      if (size != 0) std::memcpy(part.data() + 16, data, size);
      Read(part);
    }
  }
  return 0;
}
