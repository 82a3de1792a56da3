// The CPU time that a decoder process may use for one item before its attempt fails.
//
// The cost is modelled from what can be counted (bytes, pixels, samples), with a margin. It is never a
// verdict on the item, because CPU time depends on the machine. Thread safety: a plain value; needs none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/time/time.h"
#include "core/job.h"
#include "core/words.h"

namespace evenkeel::isolation {

struct CpuBudget {
  double factor = 10;                             // times the modelled cost
  absl::Duration least = absl::Milliseconds(50);  // start-up of codecs, cold caches
  // Pixels of the largest frame that may be decoded while a container is opened: limits.max_video_pixels.
  uint64_t opened_pixels = Limits{}.max_video_pixels;

  uint64_t most_scans = Limits{}.max_jpeg_scans;  // scans that a JPEG may have: limits.max_jpeg_scans

  // For decoding an item of `num_bytes` stored bytes into `output_bytes` of fields. An audio file may have a
  // cover image, a video file other streams, and a JPEG `scans`, each of which passes over all coefficients.
  absl::Duration ToProduce(const MediaFacts& facts, uint64_t num_bytes, uint64_t output_bytes,
                           uint64_t scans = 0) const;
  // For finding the facts of an item: one pass over its bytes and, where FFmpeg opens it, one frame of
  // unknown size (the first of a video, or an audio file's cover), which may be large even in a small file.
  absl::Duration ToProbe(Medium medium, uint64_t num_bytes) const;
};

// Scans of a JPEG, counted by their markers, which cannot occur in coded data; 0 for other files.
uint64_t ScansOf(std::span<const std::byte> bytes);

}  // namespace evenkeel::isolation
