// The values that a family was made from: the keys that were read from a checkpoint's files, with the defaults that
// apply, and what follows from the job. Their text is what the processor's digest contains of the family.
//
// Example:
//     ConsumedKeys keys;
//     keys.Set("image_processor.patch_size", {uint64_t{14}});
//     CanonicalText text("evenkeel processor 1");
//     keys.AddTo(text);  // "image_processor.patch_size=14"
//
// Thread safety: as a plain value.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/digest.h"

namespace evenkeel::preprocess {

class ConsumedKeys {
 public:
  using Value = std::variant<uint64_t, double, std::string>;

  // Replaces the values of `key` and of its members ("size.height" is a member of "size"). An empty list has no line.
  void Set(std::string_view key, std::vector<Value> values);
  // One line for each value, sorted by key, so that the order in which keys are read does not matter.
  void AddTo(CanonicalText& text) const;

 private:
  std::map<std::string, std::vector<Value>, std::less<>> values_;
};

}  // namespace evenkeel::preprocess
