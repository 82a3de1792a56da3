// How much CPU time a decoder process may take for one item before its attempt fails.
//
// A model of the cost from what is counted (bytes, pixels, samples), with a margin. Never a verdict on the
// item, since CPU time depends on the machine.
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
  // Of the largest frame that may be decoded while a container is opened: limits.max_video_pixels.
  uint64_t opened_pixels = Limits{}.max_video_pixels;

  uint64_t most_scans = Limits{}.max_jpeg_scans;  // that a JPEG may have: limits.max_jpeg_scans

  // To produce an item of `num_bytes` stored bytes and `output_bytes` of fields. A file of sound may have a
  // cover, one of video other streams, and a JPEG `scans`, each of which passes over all of its coefficients.
  absl::Duration ToProduce(const MediaFacts& facts, uint64_t num_bytes, uint64_t output_bytes,
                           uint64_t scans = 0) const;
  // To find the facts of an item: one pass over its bytes and, where FFmpeg opens it, a frame of unknown size
  // (a video's first, or an audio file's cover): a small file may have a large one.
  absl::Duration ToProbe(Medium medium, uint64_t num_bytes) const;
};

// The scans of a JPEG, or a few more: their markers, which stand nowhere in coded data. Zero of other files.
uint64_t ScansOf(std::span<const std::byte> bytes);

}  // namespace evenkeel::isolation
