// Finds entries of a table by their name, and lists all names for a message.
// Example:
//     const auto* policy = FindByName(kPolicies, "none");  // null: there is none
//     std::string names = NamesOf(kPolicies);              // "random, none, ..."
//
// `Table` is a range of structs with a member `name`. Results are valid as long as the table. Thread safety:
// pure functions.
#pragma once

#include <iterator>
#include <memory>
#include <string>
#include <string_view>

#include "absl/strings/str_join.h"

namespace evenkeel::reorder {

template <typename Table>
auto FindByName(const Table& table, std::string_view name) -> decltype(std::addressof(*std::begin(table))) {
  for (const auto& named : table) {
    if (named.name == name) return &named;
  }
  return nullptr;
}

template <typename Table>
std::string NamesOf(const Table& table) {
  return absl::StrJoin(table, ", ", [](std::string* out, const auto& named) { out->append(named.name); });
}

}  // namespace evenkeel::reorder
