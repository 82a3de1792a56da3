// Callbacks for what happens to decoder processes, to log or count it.
//
// Thread safety: all members may be called from many threads.
#pragma once

#include <string_view>

#include "absl/status/status.h"

namespace evenkeel::isolation {

class DecoderEvents {
 public:
  virtual ~DecoderEvents() = default;

  // `reason`: "crash", "cpu", "memory", "forbidden_call", "still", "killed". `ended`: exit code or signal.
  virtual void OnDecoderReplaced(std::string_view reason, std::string_view ended) = 0;
  // The spawner does not answer or has ended, and was replaced.
  virtual void OnSpawnerReplaced(const absl::Status& why) = 0;
};

}  // namespace evenkeel::isolation
