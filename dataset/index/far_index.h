// An index in an object store: s3://bucket/folder, gs://, az://. It has the files of an index folder. A process works on a
// copy of what its job needs, a folder on its machine, so that nothing else has to know of stores.
//
// In both directions the files that are named by their content come first and the catalogue comes last: a reader never
// sees half an index, and a process that is killed leaves nothing that the next one cannot use. Several processes may
// share a copy.
//
// Example:
//     EVENKEEL_RETURN_IF_ERROR(FetchIndex(job));             // job.index is the copy now
//     EVENKEEL_RETURN_IF_ERROR(PublishIndex(job, address));  // after IndexBuilder::Commit
//
// Thread safety: plain functions.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "core/job.h"

namespace evenkeel::dataset {

// Copies what the job's datasets need of the index at job.index, and sets job.index to the copy, which lies below
// `cache_folder`, or below `evenkeel` of the user's cache folder if that is empty. A job.index that is a path stays as it
// is. The tables of steps that a sampler stores stay in the copy.
//
// NotFound with the mark of core/no_index.h: there is no index; job.index is the copy, without a catalogue.
// FailedPrecondition: there is no folder for a copy. DataLoss: a damaged or missing file. Otherwise errors of the store,
// and of writing the copy.
absl::Status FetchIndex(Job& job, const std::string& cache_folder = "");

// Copies the index of the job's datasets, in the folder job.index, to `address`. Datasets of other jobs that are there
// stay. Nothing is written if nothing has changed. PermissionDenied: no right to write; otherwise as FetchIndex.
absl::Status PublishIndex(const Job& job, const std::string& address);

}  // namespace evenkeel::dataset
