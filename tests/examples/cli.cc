// The examples of cli/.
#include "absl/status/status.h"
#include "cli/interrupt.h"

namespace evenkeel::cli {

absl::Status Fetch(bool done, bool (*FetchOne)()) {
#include "examples/cli/interrupt.h.inc"
}

}  // namespace evenkeel::cli
