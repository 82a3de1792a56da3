// The examples of stream/.
#include "stream/stream.h"

#include <cstddef>
#include <cstdint>
#include <iostream>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "core/file_limit.h"
#include "core/status.h"
#include "stream/bin_packer.h"
#include "stream/part_builder.h"
#include "stream/part_task.h"
#include "stream/text_cache.h"

namespace evenkeel::stream {

absl::Status PackBins(const Job& job, const std::vector<SampleLengths>& lengths) {
#include "examples/stream/bin_packer.h.inc"
  return absl::OkStatus();
}

absl::Status BuildParts(const PartBuilder& builder, const std::shared_ptr<const StepPlan>& plan,
                        uint32_t global_rank) {
#include "examples/stream/part_builder.h.inc"
  return absl::OkStatus();
}

absl::Status RunTask(PartTask& task, std::span<std::byte> part) {
#include "examples/stream/part_task.h.inc"
  return absl::OkStatus();
}

absl::Status Plan12() {
#include "examples/stream/stream.h.inc"
  return absl::OkStatus();
}

std::vector<uint32_t> Tokenize(const SampleRef& ref) { return {static_cast<uint32_t>(ref.index)}; }

void KeepText(TextCache& cache, const SampleRef& ref) {
#include "examples/stream/text_cache.h.inc"
}

}  // namespace evenkeel::stream
