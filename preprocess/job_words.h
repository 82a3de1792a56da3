// The words of a job that name a chat style, a resampler, a frame rule, a frame loader or how pictures of unusual kinds
// are read (exif_orientation, sixteen_bit, cmyk, palette, alpha). core/ accepts any; the lists are where the things are.
//
// Example:
//     // "processor.chat: 'chatlm' is not one of template, chatml, ...; nearest is 'chatml'"
//     if (absl::Status status = preprocess::CheckJob(job); !status.ok()) return NameInJob(job, status);
//
// Thread safety: a pure function.
#pragma once

#include "absl/status/status.h"
#include "core/job.h"

namespace evenkeel::preprocess {

// InvalidArgument, with the key: the first word that names nothing. Reads no file; Processor::Load finds the rest.
absl::Status CheckJob(const Job& job);

}  // namespace evenkeel::preprocess
