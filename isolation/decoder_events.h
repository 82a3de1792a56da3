// What happens to decoder processes, for whoever logs or counts it.
//
// Thread safety: all members may be called from many threads.
#pragma once

#include <string_view>

#include "absl/status/status.h"

namespace evenkeel::isolation {

class DecoderEvents {
 public:
  virtual ~DecoderEvents() = default;

  // `reason`: "crash", "cpu", "memory", "forbidden_call", "still" or "killed"; `ended`: how the process did.
  virtual void OnDecoderReplaced(std::string_view reason, std::string_view ended) = 0;
  // The process that decoders come from does not answer, or has ended.
  virtual void OnSpawnerReplaced(const absl::Status& why) = 0;
};

}  // namespace evenkeel::isolation
