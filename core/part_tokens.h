// The reader's half of token words: finds the tensors that belong together and puts the token fields in their
// place. Internal to core.
//
// Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "core/part.h"

namespace evenkeel {

// `tensors`: of one part of format `version`, in order, each inside the part. Where one has a token form, it
// and the two after it are replaced by the fields that they stand for. DataLoss: a form in format 1, two of
// them, tensors that are missing or have another dtype or shape, contents that CheckTokenSource refuses, or a
// tensor with the name of a token field.
absl::Status PlaceTokenFields(uint32_t version, std::vector<TensorView>& tensors);

}  // namespace evenkeel
