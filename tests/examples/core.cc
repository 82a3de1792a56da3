// The examples of core/.
#include <fcntl.h>

#include <cerrno>
#include <cstddef>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "core/address.h"
#include "core/annotated_mutex.h"
#include "core/attempt.h"
#include "core/context_groups.h"
#include "core/failure.h"
#include "core/handle.h"
#include "core/job.h"
#include "core/job_where.h"
#include "core/max_over_mean.h"
#include "core/mesh.h"
#include "core/no_index.h"
#include "core/part_role.h"
#include "core/planned_tokens.h"
#include "core/status.h"
#include "core/steady_time.h"
#include "core/words.h"

namespace evenkeel {

void LookAtAddress() {
#include "examples/core/address.h.inc"
}

void Wait(bool done, CondVar& changed, Mutex& mutex, absl::Time deadline)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
#include "examples/core/annotated_mutex.h.inc"
}

using Fields = std::span<const std::span<std::byte>>;
void MakeUnit(size_t unit, Fields fields, bool valid, absl::Status (*Make)(size_t, Fields, bool*)) {
#include "examples/core/attempt.h.inc"
}

void SizesOfThePool() {
#include "examples/core/context_groups.h.inc"
}

void Fail(void (*RetryLater)()){
#include "examples/core/failure.h.inc"
}

absl::Status OpenFile(const char* path) {
#include "examples/core/handle.h.inc"
  return absl::OkStatus();
}

absl::Status ReadJob() {
#include "examples/core/job.h.inc"
  return absl::OkStatus();
}

absl::Status LoadProcessor(const Job& job, absl::Status (*Load)(const ProcessorSpec&)) {
#include "examples/core/job_where.h.inc"
  return absl::OkStatus();
}

struct PhaseLoad {
  std::vector<double> load_after;
};
void Compare(const PhaseLoad& phase) {
#include "examples/core/max_over_mean.h.inc"
}

void Find(const std::vector<uint32_t>& all){
#include "examples/core/mesh.h.inc"
}

absl::Status
    Cut(const PartLayout& whole_layout, std::span<const std::byte> whole_part, std::span<std::byte> buffer) {
#include "examples/core/part_role.h.inc"
  return absl::OkStatus();
}

void Count(const Job& job, const SampleLengths& lengths) {
#include "examples/core/planned_tokens.h.inc"
}

void Open(void (*MakeIndex)()) {
#include "examples/core/no_index.h.inc"
}

void WaitForSome(bool done, CondVar& changed, Mutex& mutex, absl::Duration timeout)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
#include "examples/core/steady_time.h.inc"
}

void Encode() {
#include "examples/core/words.h.inc"
}

}  // namespace evenkeel
