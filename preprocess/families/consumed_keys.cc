// Writes the values that a family was made from as lines of a canonical text.
#include "preprocess/families/consumed_keys.h"

#include <utility>

namespace evenkeel::preprocess {

void ConsumedKeys::Set(std::string_view key, std::vector<Value> values) {
  const std::string members = std::string(key) + ".";
  auto it = values_.lower_bound(members);
  while (it != values_.end() && it->first.starts_with(members)) it = values_.erase(it);
  values_[std::string(key)] = std::move(values);
}

void ConsumedKeys::AddTo(CanonicalText& text) const {
  for (const auto& [key, values] : values_) {
    for (const Value& value : values) {
      std::visit([&text, &key = key](const auto& of_type) { text.Add(key, of_type); }, value);
    }
  }
}

}  // namespace evenkeel::preprocess
