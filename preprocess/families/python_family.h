// The family whose items Python processes measure and produce (preprocess/python_processes.h).
//
// Its lengths are functions of an item's facts, kept from one call to the next, or of its bytes. Then the
// index alone measures items, and the sequence follows from the lengths that it has.
//
// Thread safety: all members may be called from many threads.
#pragma once

#include <memory>
#include <span>

#include "absl/status/statusor.h"
#include "core/job.h"
#include "preprocess/families/family.h"
#include "preprocess/python_processes.h"

namespace evenkeel::preprocess {

// `python` may be null, for decoder processes: then items can only be probed. InvalidArgument: the Python code
// does not take a medium of `media`.
absl::StatusOr<std::unique_ptr<MediaFamily>> MakePythonFamily(std::shared_ptr<PythonProcesses> python,
                                                              std::span<const Medium> media);

}  // namespace evenkeel::preprocess
