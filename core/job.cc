// Loads job files, and finds phases in a job.
#include "core/job.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "core/implied_media.h"
#include "core/job_loader.h"
#include "core/job_resolver.h"
#include "core/read_file.h"
#include "core/status.h"
#include "core/yaml_tree.h"

namespace evenkeel {

std::string_view FormatName(DataFormat format) {
  constexpr std::string_view kNames[] = {"webdataset", "json", "parquet", "text", "mds", "megatron"};
  return kNames[static_cast<size_t>(format)];
}

std::string_view SequencesName(Sequences sequences) {
  constexpr std::string_view kNames[] = {"whole", "zigzag", "contiguous"};
  return kNames[static_cast<size_t>(sequences)];
}

double DatasetSpec::WeightAt(uint64_t draw) const {
  double now = weight;
  for (const WeightChange& change : changes) {
    if (change.from_draw <= draw) now = change.weight;
  }
  return now;
}

const PhaseSpec* Job::phase(const Phase& phase) const {
  for (const PhaseSpec& candidate : phases) {
    if (candidate.phase == phase) return &candidate;
  }
  return nullptr;
}

const PhaseSpec* Job::FindPhase(std::string_view name) const {
  for (const PhaseSpec& candidate : phases) {
    if (candidate.phase.name() == name) return &candidate;
  }
  return nullptr;
}

uint8_t Job::TowerOf(const Phase& phase, Medium medium) const {
  if (phase.is_generator()) return kTargetTower;
  uint8_t tower = 0;
  for (const PhaseSpec& before : phases) {
    if (before.phase == phase) break;
    if (before.phase.encodes(medium)) ++tower;
  }
  return tower;
}

bool Job::IsSharedByGroups(const PhaseSpec& spec) const {
  if (!groups.given || spec.phase == Phase::kLlm) return groups.given;
  return spec.runs == Runs::kOncePerMicrobatch && spec.algorithm == "none" &&
         spec.ranks == phase(Phase::kLlm)->ranks;
}

std::vector<EncoderSpec> ProcessorSpec::Encoders() const {
  if (!encoders.empty()) return encoders;
  std::vector<EncoderSpec> keyed;
  if (!vision.empty()) keyed.push_back({*PhaseOfImpliedMedia("vision"), vision, "processor.vision"});
  if (!audio.empty()) keyed.push_back({*PhaseOfImpliedMedia("audio"), audio, "processor.audio"});
  return keyed;
}

absl::StatusOr<Job> ParseJob(const std::string& yaml, const std::string& path) {
  EVENKEEL_ASSIGN_OR_RETURN(LoadedJobFile file, LoadJobFile(yaml, path));
  return ResolveJob(file);
}

absl::StatusOr<Job> LoadJob(const std::string& path, const std::string& split) {
  // One byte more than is allowed: the parser then names the limit.
  const absl::StatusOr<std::string> text = ReadAtMost(path, kMaxYamlBytes + 1);
  if (!text.ok()) {
    return absl::NotFoundError(absl::StrCat(path, ":1: cannot read the job file: ", text.status().message()));
  }
  EVENKEEL_ASSIGN_OR_RETURN(LoadedJobFile file, LoadJobFile(*text, path));
  if (!split.empty()) file.message.set_split(split);
  return ResolveJob(file);
}

uint64_t PackSpec::CapacityOf(std::string_view phase) const {
  for (const BinCapacity& capacity : capacities) {
    if (capacity.phase == phase) return capacity.length;
  }
  return 0;
}

}  // namespace evenkeel
