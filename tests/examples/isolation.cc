// The examples of isolation/.
#include <cstddef>
#include <iostream>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "core/file_limit.h"
#include "core/status.h"
#include "isolation/decoder_pool.h"
#include "isolation/decoder_spawner.h"
#include "isolation/isolated_processor.h"
#include "isolation/python_pool.h"
#include "isolation/python_spawner.h"
#include "isolation/shared_memory.h"

namespace evenkeel::isolation {

absl::Status Decode(const preprocess::Processor* processor, const DecoderCall& call, int input,
                    uint64_t num_bytes, absl::Duration budget, DecoderReply reply,
                    SharedMemory::Block output) {
#include "examples/isolation/decoder_pool.h.inc"
  return absl::OkStatus();
}

absl::Status SpawnDecoder(const preprocess::Processor* processor) {
#include "examples/isolation/decoder_spawner.h.inc"
  return absl::OkStatus();
}

absl::Status Confine(const Job& job, const DecoderPool::Options& options,
                     std::unique_ptr<preprocess::Processor> processor) {
#include "examples/isolation/isolated_processor.h.inc"
  return absl::OkStatus();
}

absl::Status LoadThroughPython(const Job& job) {
#include "examples/isolation/python_pool.h.inc"
  return absl::OkStatus();
}

absl::Status SpawnPython(const ProcessorSpec& spec, const PythonSpawner::Options& options) {
#include "examples/isolation/python_spawner.h.inc"
  return absl::OkStatus();
}

absl::Status Share(uint64_t size, void (*ReadInto)(std::span<std::byte>)) {
#include "examples/isolation/shared_memory.h.inc"
  return absl::OkStatus();
}

}  // namespace evenkeel::isolation
