// Thread safety: a function without state.
#pragma once

#include "transport/transport.h"

namespace evenkeel::transport {

// In time that does not depend on where they differ.
inline bool SameSecret(const Secret& a, const Secret& b) {
  uint8_t difference = 0;
  for (size_t i = 0; i < a.size(); ++i) difference |= a[i] ^ b[i];
  return difference == 0;
}

}  // namespace evenkeel::transport
