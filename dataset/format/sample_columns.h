// The columns of a sample that are delivered with it: members of its JSON that the job names.
//
// They are one JSON object with the names in the job's order, {"id": 17, "source": null}. Strings are written
// with the shortest escapes, numbers as they are in the data, never as a program would print them. A member that
// the JSON does not have is null; "__key__" is the sample's key (kKeyColumn).
//
// Thread safety: functions without state.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "core/job.h"
#include "dataset/format/json.h"

namespace evenkeel::dataset {

inline constexpr std::string_view kKeyColumn = "__key__";

// Appends the object; nothing if the job names no columns. `root`: the JSON of a sample's text; null, or a value
// that is no object: every member is null. `key`: the sample's. ResourceExhausted: longer than
// limits.max_column_bytes, where every value counts at least four bytes; `out` is then as before.
absl::Status AppendColumns(const JsonValue* root, const Job& job, std::string_view key, std::string& out);

}  // namespace evenkeel::dataset
