// Where in the job file an error of a checkpoint's folder or of a phase comes from.
//
// Example:
//     absl::Status loaded = Load(job.processor);
//     // "job.yaml:6: processor.vision: /models/qwen2vl: no such folder"
//     if (!loaded.ok()) return NameInJob(job, loaded);
//
// Thread safety: a function without state.
#pragma once

#include "absl/status/status.h"
#include "core/job.h"

namespace evenkeel {

// `status` with file, line and key of the processor folder, of the phase ("phase vision: ...") or of the key
// ("processor.chat: ...") that its message begins with. Reads the job file again; returns `status` as it is where the message names none, or
// the file has changed and cannot be read any more.
absl::Status NameInJob(const Job& job, const absl::Status& status);

}  // namespace evenkeel
