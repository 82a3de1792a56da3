// Compares the fields of two processors value by value, and writes a line for each.
#include "cli/preprocess_compare.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace evenkeel::cli {
namespace {

template <typename T>
double At(const std::byte* bytes) {
  T value;
  std::memcpy(&value, bytes, sizeof(value));
  return static_cast<double>(value);
}

double ValueAt(const ComparedField& field, size_t i) {
  const std::byte* at = field.bytes.data() + i * DTypeBytes(field.dtype);
  switch (field.dtype) {
    case DType::kU8:
      return At<uint8_t>(at);
    case DType::kI32:
      return At<int32_t>(at);
    case DType::kI64:
      return At<int64_t>(at);
    case DType::kF32:
      return At<float>(at);
    case DType::kF64:
      return At<double>(at);
    case DType::kBf16: {
      uint16_t bits = 0;
      std::memcpy(&bits, at, sizeof(bits));
      return std::bit_cast<float>(uint32_t{bits} << 16);
    }
  }
  return 0;
}

std::string CompareValues(const ComparedField& native, const ComparedField& python, bool* equal) {
  const size_t count = native.bytes.size() / DTypeBytes(native.dtype);
  const size_t theirs = python.bytes.size() / DTypeBytes(python.dtype);
  if (count != theirs) {
    *equal = false;
    return absl::StrCat(native.name, ": ", count, " values native, ", theirs, " in Python");
  }
  size_t differing = 0;
  double largest = 0;
  for (size_t i = 0; i < count; ++i) {
    const double difference = std::fabs(ValueAt(native, i) - ValueAt(python, i));
    if (difference == 0) continue;
    ++differing;
    largest = std::max(largest, difference);
  }
  *equal = *equal && differing == 0;
  return absl::StrCat(native.name, ": ", differing, " of ", count, " values differ",
                      differing == 0 ? "" : absl::StrCat(", by at most ", largest));
}

const ComparedField* Named(const std::vector<ComparedField>& fields, const std::string& name) {
  const auto found =
      std::find_if(fields.begin(), fields.end(), [&](const ComparedField& one) { return one.name == name; });
  return found == fields.end() ? nullptr : &*found;
}

}  // namespace

Comparison CompareFields(const absl::StatusOr<std::vector<ComparedField>>& native,
                         const absl::StatusOr<std::vector<ComparedField>>& python) {
  Comparison out;
  if (!native.ok() || !python.ok()) {
    out.equal = native.ok() == python.ok();
    out.lines = {absl::StrCat("native: ", native.ok() ? "OK" : native.status().ToString()),
                 absl::StrCat("Python: ", python.ok() ? "OK" : python.status().ToString())};
    return out;
  }
  for (const ComparedField& field : *native) {
    const ComparedField* other = Named(*python, field.name);
    out.equal = out.equal && other != nullptr;
    out.lines.push_back(other == nullptr ? absl::StrCat(field.name, ": only native")
                                         : CompareValues(field, *other, &out.equal));
  }
  for (const ComparedField& field : *python) {
    if (Named(*native, field.name) != nullptr) continue;
    out.equal = false;
    out.lines.push_back(absl::StrCat(field.name, ": only in Python"));
  }
  return out;
}

}  // namespace evenkeel::cli
