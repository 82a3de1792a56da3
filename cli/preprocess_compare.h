// Compares what two processors made of one item, for `evenkeel preprocess --compare`.
// Thread safety: pure functions.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/part.h"

namespace evenkeel::cli {

struct ComparedField {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<std::byte> bytes;
};

struct Comparison {
  bool equal = true;
  std::vector<std::string> lines;  // one for each field, or what failed
};

// Fields of one name are compared value by value, whatever their types. Two failures are equal.
Comparison CompareFields(const absl::StatusOr<std::vector<ComparedField>>& native,
                         const absl::StatusOr<std::vector<ComparedField>>& python);

}  // namespace evenkeel::cli
