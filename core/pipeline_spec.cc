// Checks the section `pipeline` of a job, and writes its canonical lines.
#include "core/pipeline_spec.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/job_syntax.h"
#include "core/status.h"

namespace evenkeel {
namespace {

constexpr int kMaxChunks = 4096;
constexpr double kMaxFactor = 1e6;
constexpr double kShareTolerance = 1e-6;  // of a sum of shares, which are written with few digits
// Of reorder/pipeline/pipeline_schedule.h.
constexpr std::array<absl::string_view, 3> kSchedules = {"1f1b", "interleaved_1f1b", "gpipe"};
constexpr absl::string_view kInterleaved = kSchedules[1];

class PipelineResolver {
 public:
  PipelineResolver(const pb::JobFile& in, const SourceLines& lines, bool topology_has_stages, Job& job)
      : in_(in.pipeline()),
        topology_(in.topology()),
        lines_(lines),
        topology_has_stages_(topology_has_stages),
        job_(job),
        out_(job.pipeline) {}

  absl::Status Run() {
    for (const PhaseSpec& phase : job_.phases)
      apart_[std::string(phase.phase.name())] = AreApart(phase, *job_.phase(Phase::kLlm));
    out_.given = true;
    out_.schedule = in_.schedule();
    out_.transfer = in_.transfer();
    if (!in_.order().empty()) out_.order = in_.order();
    if (out_.transfer < 0)
      return Error("pipeline.transfer", "must not be negative, is ", out_.transfer, "; give seconds");
    EVENKEEL_RETURN_IF_ERROR(Schedule());
    EVENKEEL_RETURN_IF_ERROR(Passes());
    EVENKEEL_RETURN_IF_ERROR(Chunks());
    EVENKEEL_RETURN_IF_ERROR(Stages());
    return ScheduleFits();
  }

 private:
  template <typename... Args>
  absl::Status Error(const std::string& path, const Args&... why) const {
    return lines_.Error(path, absl::StrCat(why...));
  }

  absl::Status Schedule() const {
    if (out_.schedule.empty()) return absl::OkStatus();
    if (std::find(kSchedules.begin(), kSchedules.end(), out_.schedule) != kSchedules.end())
      return absl::OkStatus();
    return Error("pipeline.schedule", "'", ShortText(out_.schedule), "' is not one of ",
                 absl::StrJoin(kSchedules, ", "));
  }

  absl::Status CheckPhase(const std::string& path, const std::string& name) const {
    if (job_.FindPhase(name) != nullptr) return absl::OkStatus();
    if (name.empty()) return Error(path, "missing; give the name of a phase");
    std::vector<std::string> names;
    for (const PhaseSpec& phase : job_.phases) names.emplace_back(phase.phase.name());
    return Error(path, "there is no phase '", ShortText(name), "'; nearest is '", Nearest(name, names), "'");
  }

  absl::Status Passes() {
    std::set<std::string> seen;
    for (int i = 0; i < in_.passes_size(); ++i) {
      const pb::PipelinePass& in = in_.passes(i);
      const std::string path = absl::StrCat("pipeline.passes[", i, "]");
      EVENKEEL_RETURN_IF_ERROR(CheckPhase(path + ".phase", in.phase()));
      if (!seen.insert(in.phase()).second)
        return Error(path + ".phase", "'", in.phase(), "' is listed twice; put its factors into one entry");
      PassSpec pass{.phase = in.phase(), .frozen = in.frozen()};
      if (in.has_forward()) pass.forward = in.forward();
      if (in.has_backward()) pass.backward = in.backward();
      if (!(pass.forward > 0 && pass.forward <= kMaxFactor))
        return Error(path + ".forward", "must be above 0 and at most 1e6, is ", pass.forward);
      if (!(pass.backward >= 0 && pass.backward <= kMaxFactor))
        return Error(path + ".backward", "must be from 0 to 1e6, is ", pass.backward);
      out_.passes.push_back(std::move(pass));
    }
    return absl::OkStatus();
  }

  absl::Status Chunks() {
    if (in_.chunks_size() > kMaxChunks)
      return Error("pipeline.chunks", in_.chunks_size(), " chunks; at most ", kMaxChunks, " are supported");
    std::map<std::string, double> sums;  // by phase
    std::map<std::string, bool> layers;
    for (int c = 0; c < in_.chunks_size(); ++c) {
      std::vector<ChunkPart>& chunk = out_.chunks.emplace_back();
      for (int i = 0; i < in_.chunks(c).phases_size(); ++i) {
        const std::string path = absl::StrCat("pipeline.chunks[", c, "].phases[", i, "]");
        const pb::ChunkPhase& in = in_.chunks(c).phases(i);
        EVENKEEL_RETURN_IF_ERROR(Part(in, path, chunk));
        sums[in.phase()] += chunk.back().share;
        if (!layers.emplace(in.phase(), in.has_layers()).second && layers[in.phase()] != in.has_layers())
          return Error(path, "gives ", in.has_layers() ? "layers" : "a share", " of ", in.phase(),
                       ", other chunks the other; give one of the two in all chunks");
      }
    }
    for (const auto& [phase, sum] : sums) {
      if (layers[phase]) continue;
      if (std::abs(sum - 1) > kShareTolerance)
        return Error("pipeline.chunks", "the shares of ", phase, " sum to ", sum, ", not to 1");
    }
    for (std::vector<ChunkPart>& chunk : out_.chunks) {
      for (ChunkPart& part : chunk) part.share /= sums[part.phase];
    }
    return in_.chunks().empty() ? absl::OkStatus() : EveryPhaseIsThere(sums);
  }

  absl::Status Part(const pb::ChunkPhase& in, const std::string& path, std::vector<ChunkPart>& chunk) const {
    EVENKEEL_RETURN_IF_ERROR(CheckPhase(path + ".phase", in.phase()));
    const PhaseSpec& phase = *job_.FindPhase(in.phase());
    if (phase.phase != Phase::kLlm && phase.runs != Runs::kOncePerMicrobatch) {
      return Error(path + ".phase", "'", in.phase(), "' runs once per step, before the pipeline; give it ",
                   "runs: once_per_microbatch, or remove it from the chunks");
    }
    for (const ChunkPart& part : chunk) {
      if (part.phase == in.phase())
        return Error(path + ".phase", "'", in.phase(), "' is twice in this chunk; add up the two");
    }
    if (in.size_case() == pb::ChunkPhase::SIZE_NOT_SET)
      return Error(path, "has no size; give the share or the layers of ", in.phase(), " in this chunk");
    if (in.has_layers() && in.layers() == 0) return Error(path + ".layers", "must be above 0, is 0");
    if (in.has_share() && !(in.share() > 0 && in.share() <= 1))
      return Error(path + ".share", "must be above 0 and at most 1, is ", in.share());
    chunk.push_back({.phase = in.phase(), .share = in.has_layers() ? in.layers() : in.share()});
    return absl::OkStatus();
  }

  // Phases on ranks of their own may be left out: they are a stage of their own then.
  absl::Status EveryPhaseIsThere(const std::map<std::string, double>& sums) const {
    for (const PhaseSpec& phase : job_.phases) {
      const std::string name(phase.phase.name());
      if (sums.contains(name) || apart_.at(name)) continue;
      if (phase.phase != Phase::kLlm && phase.runs != Runs::kOncePerMicrobatch) continue;
      return Error("pipeline.chunks", "no chunk has ", name, "; give its shares or layers");
    }
    return absl::OkStatus();
  }

  absl::Status Stages() {
    if (out_.chunks.empty()) {
      if (in_.stages() == 0) return absl::OkStatus();
      return Error("pipeline.stages", "belongs to pipeline.chunks; give chunks, or topology.pipeline_stages ",
                   "for stages that take equal time");
    }
    const uint32_t chunks = static_cast<uint32_t>(out_.chunks.size());
    out_.stages = in_.stages() == 0 ? chunks : in_.stages();
    if (chunks % out_.stages != 0) {
      return Error("pipeline.chunks", chunks, " chunks are not a multiple of the ", out_.stages,
                   " stages; every stage has as many chunks, of which some may be empty: {phases: []}");
    }
    return AgreeWithTopology(chunks / out_.stages);
  }

  // Stages of phases on ranks of their own are not stages of the llm.
  absl::Status AgreeWithTopology(uint32_t virtual_stages) {
    uint32_t of_llm = 0;
    for (uint32_t s = 0; s < out_.stages; ++s) of_llm += IsStageOfLlmRanks(s) ? 1 : 0;
    if (topology_has_stages_ && of_llm != job_.pipeline_stages) {
      return Error("pipeline.stages", of_llm, " of the ", out_.stages,
                   " stages are on ranks of the llm, but the topology has ", job_.pipeline_stages,
                   " pipeline stages; make the two agree");
    }
    if (topology_.virtual_stages() != 0 && topology_.virtual_stages() != virtual_stages) {
      return Error("pipeline.chunks", virtual_stages, " chunks per stage, but topology.virtual_stages is ",
                   topology_.virtual_stages(), "; make the two agree");
    }
    job_.pipeline_stages = of_llm;
    job_.virtual_stages = virtual_stages;
    return absl::OkStatus();
  }

  bool IsStageOfLlmRanks(uint32_t stage) const {
    bool is_empty = true;
    for (size_t c = stage; c < out_.chunks.size(); c += out_.stages) {
      for (const ChunkPart& part : out_.chunks[c]) {
        if (!apart_.at(part.phase)) return true;
        is_empty = false;
      }
    }
    return is_empty;
  }

  absl::Status ScheduleFits() const {
    const bool has_several = job_.virtual_stages > 1;
    if (has_several && !out_.schedule.empty() && out_.schedule != kInterleaved) {
      return Error("pipeline.schedule", "'", out_.schedule, "' has one chunk per stage, the job has ",
                   job_.virtual_stages, "; take interleaved_1f1b, or one chunk per stage");
    }
    return absl::OkStatus();
  }

  const pb::Pipeline& in_;
  const pb::Topology& topology_;
  const SourceLines& lines_;
  const bool topology_has_stages_;
  Job& job_;
  PipelineSpec& out_;
  std::map<std::string, bool> apart_;  // by phase: on ranks that the llm does not have
};

}  // namespace

absl::Status ResolvePipeline(const pb::JobFile& in, const SourceLines& lines, bool topology_has_stages,
                             Job& job) {
  if (!in.has_pipeline()) {
    const PhaseSpec& llm = *job.phase(Phase::kLlm);
    job.pipeline.given = std::any_of(job.phases.begin(), job.phases.end(), [&](const PhaseSpec& phase) {
      return phase.phase != Phase::kLlm && phase.runs == Runs::kOncePerMicrobatch && AreApart(phase, llm);
    });
    return absl::OkStatus();
  }
  return PipelineResolver(in, lines, topology_has_stages, job).Run();
}

PassSpec PipelineSpec::PassOf(std::string_view phase) const {
  for (const PassSpec& pass : passes) {
    if (pass.phase == phase) return pass;
  }
  return {.phase = std::string(phase)};
}

bool AreApart(const PhaseSpec& a, const PhaseSpec& b) {
  const auto members = [](const PhaseSpec& of) { return of.mesh.ranks.empty() ? of.ranks : of.mesh.ranks; };
  std::vector<uint32_t> of_a = members(a);
  std::sort(of_a.begin(), of_a.end());
  const std::vector<uint32_t> of_b = members(b);
  return std::none_of(of_b.begin(), of_b.end(),
                      [&](uint32_t rank) { return std::binary_search(of_a.begin(), of_a.end(), rank); });
}

uint32_t Job::InterleavedStages() const {
  if (virtual_stages == 1 && pipeline.schedule != kInterleaved) return 1;
  return pipeline.stages > 0 ? pipeline.stages : pipeline_stages;
}

void AddPipeline(const PipelineSpec& pipeline, CanonicalText* text) {
  if (!pipeline.given) return;
  text->Add("pipeline.schedule", std::string_view(pipeline.schedule));
  text->Add("pipeline.transfer", pipeline.transfer);
  text->Add("pipeline.order", std::string_view(pipeline.order));
  text->Add("pipeline.stages", std::string_view(absl::StrCat(pipeline.stages)));
  for (const std::vector<ChunkPart>& chunk : pipeline.chunks) {
    text->Add("pipeline.chunk", std::string_view(absl::StrCat(chunk.size())));
    for (const ChunkPart& part : chunk) {
      text->Add("pipeline.chunk.phase", std::string_view(part.phase));
      text->Add("pipeline.chunk.share", part.share);
    }
  }
  for (const PassSpec& pass : pipeline.passes) {
    text->Add("pipeline.pass.phase", std::string_view(pass.phase));
    text->Add("pipeline.pass.forward", pass.forward);
    text->Add("pipeline.pass.backward", pass.backward);
    text->Add("pipeline.pass.frozen", std::string_view(pass.frozen ? "1" : "0"));
  }
}

}  // namespace evenkeel
