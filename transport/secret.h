// Compares session secrets in constant time. Thread safety: a function without state.
#pragma once

#include "transport/transport.h"

namespace evenkeel::transport {

// Takes the same time wherever the secrets differ, so that a peer cannot find a secret byte by byte.
inline bool SameSecret(const Secret& a, const Secret& b) {
  uint8_t difference = 0;
  for (size_t i = 0; i < a.size(); ++i) difference |= a[i] ^ b[i];
  return difference == 0;
}

}  // namespace evenkeel::transport
