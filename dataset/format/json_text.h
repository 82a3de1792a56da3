// Writes a JSON value as text. AppendAsPython writes it exactly as Python's `json.dumps(value,
// ensure_ascii=False)` writes what `json.loads` read: this is the filter `tojson` of chat templates in
// transformers. Keys keep their order. AppendAsWritten differs in numbers, which keep their text in the data.
//
// Thread safety: a function without state.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "dataset/format/json.h"

namespace evenkeel::dataset {

// Appends to `out`. InvalidArgument: an integer with more digits than Python reads (4,300).
absl::Status AppendAsPython(const JsonValue& value, std::string& out);
void AppendAsWritten(const JsonValue& value, std::string& out);
void AppendStringAsPython(std::string_view text, std::string& out);

}  // namespace evenkeel::dataset
