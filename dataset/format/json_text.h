// A JSON value as text again, letter for letter as Python's `json.dumps(value, ensure_ascii=False)` writes
// what `json.loads` read: what the filter `tojson` of chat templates is in transformers. Keys keep their
// order.
//
// Thread safety: none needed.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "dataset/format/json.h"

namespace evenkeel::dataset {

// Appends to `out`. InvalidArgument: a whole number of more digits than Python reads (4,300).
absl::Status AppendAsPython(const JsonValue& value, std::string& out);

}  // namespace evenkeel::dataset
