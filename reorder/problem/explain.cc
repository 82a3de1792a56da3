// Walks through a JSON text and a message type in parallel until the first place that does not fit.
#include "reorder/problem/explain.h"

#include <google/protobuf/struct.pb.h>
#include <google/protobuf/util/json_util.h>

#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "core/job_syntax.h"

namespace evenkeel::reorder {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Value;

using Found = std::optional<std::string>;

std::string Fault(const std::string& path, const std::string& what) {
  return path.empty() ? what : absl::StrCat(path, ": ", what);
}

const FieldDescriptor* FieldOf(const Descriptor& type, const std::string& key) {
  const FieldDescriptor* field = type.FindFieldByName(key);
  return field != nullptr ? field : type.FindFieldByCamelcaseName(key);
}

std::string UnknownField(const Descriptor& type, const std::string& key) {
  std::vector<std::string> known;
  known.reserve(type.field_count());
  for (int f = 0; f < type.field_count(); ++f) known.push_back(type.field(f)->name());
  return absl::StrCat("unknown field '", ShortText(key), "'; nearest is '", Nearest(key, known),
                      "'; expected one of ", absl::StrJoin(known, ", "));
}

std::string Shown(const Value& value) {
  switch (value.kind_case()) {
    case Value::kNumberValue:
      // All digits of an integer: it may be just outside its range.
      return std::abs(value.number_value()) < 0x1p53 &&
                     std::floor(value.number_value()) == value.number_value()
                 ? absl::StrCat(static_cast<int64_t>(value.number_value()))
                 : absl::StrCat(value.number_value());
    case Value::kStringValue:
      return absl::StrCat("'", ShortText(value.string_value()), "'");
    case Value::kBoolValue:
      return value.bool_value() ? "true" : "false";
    case Value::kListValue:
      return "a list";
    default:
      return "an object";
  }
}

// JSON forms of messages may write numbers as strings.
std::optional<double> NumberOf(const Value& value) {
  double number = 0;
  if (value.kind_case() == Value::kNumberValue) return value.number_value();
  if (value.kind_case() == Value::kStringValue && absl::SimpleAtod(value.string_value(), &number))
    return number;
  return std::nullopt;
}

Found FaultOfWhole(const Value& value, double most, std::string_view says, const std::string& path) {
  const std::optional<double> number = NumberOf(value);
  if (number && *number >= 0 && *number <= most && *number == std::floor(*number)) return std::nullopt;
  return Fault(path, absl::StrCat(Shown(value), " is not a whole number from 0 to ", std::string(says)));
}

Found FaultOfMessage(const Value& value, const Descriptor& type, const std::string& path);

Found FaultOfOne(const Value& value, const FieldDescriptor& field, const std::string& path) {
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return FaultOfMessage(value, *field.message_type(), path);
    case FieldDescriptor::CPPTYPE_UINT32:
      return FaultOfWhole(value, std::numeric_limits<uint32_t>::max(), "2^32 - 1", path);
    case FieldDescriptor::CPPTYPE_UINT64:
      return FaultOfWhole(value, 18446744073709549568.0, "2^64 - 1", path);
    case FieldDescriptor::CPPTYPE_DOUBLE:
      if (NumberOf(value)) return std::nullopt;
      return Fault(path, absl::StrCat(Shown(value), " is not a number"));
    case FieldDescriptor::CPPTYPE_BOOL:
      if (value.kind_case() == Value::kBoolValue) return std::nullopt;
      return Fault(path, absl::StrCat(Shown(value), " is neither true nor false"));
    case FieldDescriptor::CPPTYPE_STRING:
      if (value.kind_case() == Value::kStringValue) return std::nullopt;
      return Fault(path, absl::StrCat(Shown(value), " is not a string"));
    default:
      return std::nullopt;
  }
}

Found FaultOfField(const Value& value, const FieldDescriptor& field, const std::string& path) {
  if (!field.is_repeated()) return FaultOfOne(value, field, path);
  if (value.kind_case() != Value::kListValue) {
    return Fault(path, absl::StrCat(Shown(value), " is not a list"));
  }
  for (int i = 0; i < value.list_value().values_size(); ++i) {
    const Value& member = value.list_value().values(i);
    if (Found found = FaultOfOne(member, field, absl::StrCat(path, "[", i, "]"))) return found;
  }
  return std::nullopt;
}

Found FaultOfMessage(const Value& value, const Descriptor& type, const std::string& path) {
  if (value.kind_case() != Value::kStructValue) {
    return Fault(path, absl::StrCat(Shown(value), " is not an object with fields"));
  }
  // The map has no order, so fields are visited in the type's order.
  const auto& fields = value.struct_value().fields();
  const std::map<std::string, Value> sorted(fields.begin(), fields.end());
  std::map<std::string, std::string> chosen;  // for every oneof, the field that was given
  for (const auto& [key, member] : sorted) {
    const FieldDescriptor* field = FieldOf(type, key);
    if (field == nullptr) return Fault(path, UnknownField(type, key));
    if (member.kind_case() == Value::kNullValue) continue;
    if (const auto* choice = field->real_containing_oneof()) {
      const auto [other, first] = chosen.emplace(choice->name(), key);
      if (!first) {
        return Fault(
            path, absl::StrCat("has both '", other->second, "' and '", key, "'; give one ", choice->name()));
      }
    }
    const std::string inner = path.empty() ? key : absl::StrCat(path, ".", key);
    if (Found found = FaultOfField(member, *field, inner)) return found;
  }
  return std::nullopt;
}

// The parser's error is a sentence, then the place with a marker below it.
std::string NoJson(const std::string& refusal) {
  const std::vector<std::string> lines = absl::StrSplit(refusal, '\n');
  if (lines.size() < 2 || lines[1].empty()) return absl::StrCat("not JSON: ", lines[0]);
  return absl::StrCat("not JSON: ", lines[0], " Near: ", ShortText(lines[1]));
}

}  // namespace

std::string Explain(const std::string& json, const Descriptor& type, const std::string& root,
                    const std::string& refusal) {
  Value value;
  if (!google::protobuf::util::JsonStringToMessage(json, &value).ok()) return NoJson(refusal);
  return FaultOfMessage(value, type, root).value_or(refusal);
}

}  // namespace evenkeel::reorder
