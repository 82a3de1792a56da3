// Writes the members of a sample's JSON that the job names.
#include "dataset/format/sample_columns.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "dataset/format/json_text.h"

namespace evenkeel::dataset {

absl::Status AppendColumns(const JsonValue* root, const Job& job, std::string_view key, std::string& out) {
  if (job.columns.empty()) return absl::OkStatus();
  const size_t begin = out.size();
  // Values shorter than null count as much as that: the members of a damaged sample are delivered as null, into
  // the same room.
  size_t longer_as_null = 0;
  out += '{';
  for (const std::string& name : job.columns) {
    if (out.size() > begin + 1) out += ", ";
    AppendStringAsPython(name, out);
    out += ": ";
    if (name == kKeyColumn) {
      AppendStringAsPython(key, out);
      continue;
    }
    constexpr std::string_view kNull = "null";
    const size_t value = out.size();
    const JsonValue* member = root == nullptr || !root->is_object() ? nullptr : root->Find(name);
    if (member == nullptr) {
      out += kNull;
    } else {
      AppendAsWritten(*member, out);
    }
    longer_as_null += kNull.size() - std::min(kNull.size(), out.size() - value);
  }
  out += '}';
  const size_t num_bytes = out.size() - begin + longer_as_null;
  if (num_bytes <= job.limits.max_column_bytes) return absl::OkStatus();
  out.resize(begin);
  return absl::ResourceExhaustedError(
      absl::StrCat(num_bytes, " bytes of columns; limits.max_column_bytes is ", job.limits.max_column_bytes));
}

}  // namespace evenkeel::dataset
