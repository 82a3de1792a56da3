// Any bytes as AVIF or HEIF: an error of a type, or pixels. Never a crash, never memory beyond the limits.
#include <cstddef>
#include <cstdint>

#include "tests/preprocess/image/fuzz_format.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  return evenkeel::preprocess::FuzzFormat("heif", data, size);
}
