// Writes a .safetensors file: 8 bytes of little-endian header length, a JSON header, and the tensors one
// after another. Thread safety: a free function without state.
#pragma once

#include <span>
#include <string>

#include "absl/status/status.h"
#include "core/part.h"

namespace evenkeel::cli {

// Writes the tensors in the given order; names must be plain identifiers. Internal: a tensor whose bytes do
// not fit its shape, or a name that needs escaping; Unavailable: the file cannot be written.
absl::Status WriteSafetensors(const std::string& path, std::span<const TensorView> tensors);

}  // namespace evenkeel::cli
