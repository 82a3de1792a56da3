// Builds the pipeline of a job from its section `pipeline`, its topology and its phases, and computes its times.
#include "reorder/pipeline/pipeline_model.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace evenkeel::reorder {
namespace {

double Mean(std::span<const double> times) {
  return times.empty() ? 0 : std::accumulate(times.begin(), times.end(), 0.0) / times.size();
}

// The part of [begin, end) inside chunk `c` of `chunks` equal chunks of [0, whole), as a share of its length.
double ShareIn(uint32_t c, uint32_t chunks, double whole, double begin, double end) {
  if (end <= begin) return 0;
  const double low = std::max(begin, whole * c / chunks), high = std::min(end, whole * (c + 1) / chunks);
  return std::max(0.0, high - low) / (end - begin);
}

bool IsInPipeline(const PhaseSpec& encoder) { return encoder.runs == Runs::kOncePerMicrobatch; }

// The job names one of its own or, without a name, the one that fits its virtual stages.
PipelineSchedule ScheduleOf(const Job& job) {
  const auto by_chunks =
      job.virtual_stages > 1 ? PipelineSchedule::kInterleaved1F1B : PipelineSchedule::k1F1B;
  return job.pipeline.schedule.empty() ? by_chunks
                                       : PipelineScheduleFromName(job.pipeline.schedule).value_or(by_chunks);
}

bool IsInAChunk(const PipelineSpec& pipeline, const PhaseSpec& phase) {
  return std::any_of(pipeline.chunks.begin(), pipeline.chunks.end(), [&](const auto& chunk) {
    return std::any_of(chunk.begin(), chunk.end(),
                       [&](const ChunkPart& part) { return part.phase == phase.phase.name(); });
  });
}

}  // namespace

PipelineModel::PipelineModel(const Job& job, const PhaseSpec& llm, std::span<const PhaseSpec* const> encoders,
                             double recompute)
    : job_(job), recompute_(recompute), schedule_(ScheduleOf(job)) {
  trains_encoder_ = std::any_of(encoders.begin(), encoders.end(), [&](const PhaseSpec* encoder) {
    return !encoder->phase.is_generator() && !job.pipeline.PassOf(encoder->phase.name()).frozen;
  });
  columns_.push_back(ColumnOf(llm));
  AddEncoders(encoders, llm);
  FindUnits(encoders);
  const bool is_given = !job.pipeline.chunks.empty();
  if (is_given) AddChunks(encoders);
  const uint32_t body_stages = is_given ? job.pipeline.stages : job.pipeline_stages;
  body_chunks_ = body_stages * job.virtual_stages;
  stages_ = body_stages + (has_lead_ ? 1 : 0) + (has_tail_ ? 1 : 0);
}

PipelineModel::Column PipelineModel::ColumnOf(const PhaseSpec& phase) const {
  const PassSpec pass = job_.pipeline.PassOf(phase.phase.name());
  Column column{.forward = pass.forward, .backward = pass.backward};
  const bool trains_llm = !job_.pipeline.PassOf(Phase::kLlm.name()).frozen;
  const bool trains_before = (phase.phase == Phase::kLlm && trains_encoder_) ||
                             (phase.phase.is_generator() && (trains_encoder_ || trains_llm));
  if (pass.frozen) column.backward = trains_before ? pass.backward / 2 : 0;
  if (column.backward > 0) column.backward += recompute_;
  return column;
}

void PipelineModel::AddEncoders(std::span<const PhaseSpec* const> encoders, const PhaseSpec& llm) {
  std::optional<uint32_t> merged;  // without a section the encoders on the llm's ranks are one
  std::vector<uint32_t> after;     // columns that come after the llm's
  for (const PhaseSpec* encoder : encoders) {
    Column column = ColumnOf(*encoder);
    const bool is_generator = encoder->phase.is_generator();
    column.is_apart = job_.pipeline.given && AreApart(*encoder, llm);
    const bool in_chunk = IsInAChunk(job_.pipeline, *encoder);
    const bool is_end = column.is_apart && !in_chunk;
    column.is_lead = is_end && !is_generator;
    column.is_tail = is_end && is_generator;
    of_encoder_.push_back(column);
    column_of_.emplace_back();
    if (!IsInPipeline(*encoder)) continue;
    if (is_end && schedule_ == PipelineSchedule::kInterleaved1F1B) continue;
    const bool is_cut = !is_end && !in_chunk;
    if (is_cut && !is_generator && !job_.pipeline.given && merged.has_value()) {
      column_of_.back() = merged;
      continue;
    }
    column_of_.back() = num_columns();
    if (is_cut) (is_generator ? after : line_).push_back(num_columns());
    if (is_cut && !is_generator) merged = num_columns();
    has_lead_ = has_lead_ || column.is_lead;
    has_tail_ = has_tail_ || column.is_tail;
    columns_.push_back(column);
  }
  line_.push_back(0);  // the llm comes after its encoders
  line_.insert(line_.end(), after.begin(), after.end());
}

// Two lead encoders are of one unit where they have a rank in common; so are two generators after the llm.
void PipelineModel::FindUnits(std::span<const PhaseSpec* const> encoders) {
  for (size_t e = 0; e < encoders.size(); ++e) {
    if (!IsLead(e) && !IsTail(e)) continue;
    Column& column = columns_[*column_of_[e]];
    column.unit = static_cast<uint32_t>(e);
    for (size_t before = 0; before < e; ++before) {
      if (IsLead(before) != IsLead(e) || IsTail(before) != IsTail(e) ||
          AreApart(*encoders[before], *encoders[e]))
        continue;
      column.unit = columns_[*column_of_[before]].unit;
      break;
    }
  }
}

void PipelineModel::AddChunks(std::span<const PhaseSpec* const> encoders) {
  for (const std::vector<ChunkPart>& given : job_.pipeline.chunks) {
    Chunk& chunk = chunks_.emplace_back();
    for (const ChunkPart& part : given) {
      if (part.phase == Phase::kLlm.name()) chunk.push_back({0, part.share});
      for (size_t e = 0; e < encoders.size(); ++e) {
        if (encoders[e]->phase.name() != part.phase || !column_of_[e].has_value()) continue;
        chunk.push_back({*column_of_[e], part.share});
      }
    }
  }
}

bool PipelineModel::HasShared() const {
  return std::any_of(columns_.begin(), columns_.end(), [](const Column& column) { return column.is_apart; });
}

std::vector<PipelineModel::Chunk> PipelineModel::CutEvenly(std::span<const std::vector<double>> costs) const {
  std::vector<double> begin(line_.size()), end(line_.size());
  double whole = 0;
  for (size_t i = 0; i < line_.size(); ++i) {
    begin[i] = whole;
    whole += columns_[line_[i]].forward * Mean(costs[line_[i]]);
    end[i] = whole;
  }
  std::vector<Chunk> chunks(body_chunks_);
  for (uint32_t c = 0; c < body_chunks_; ++c) {
    for (size_t i = 0; i < line_.size(); ++i) {
      chunks[c].push_back({line_[i], ShareIn(c, body_chunks_, whole, begin[i], end[i])});
    }
  }
  return chunks;
}

std::pair<double, double> PipelineModel::EndTimes(End end, std::span<const std::vector<double>> costs,
                                                  size_t microbatch) const {
  const auto is_there = [end](const Column& column) {
    return end == End::kLead ? column.is_lead : column.is_tail;
  };
  std::pair<double, double> longest;
  for (const Column& unit : columns_) {
    if (!is_there(unit)) continue;
    double forward = 0, backward = 0;
    for (uint32_t c = 0; c < num_columns(); ++c) {
      const Column& column = columns_[c];
      if (!is_there(column) || column.unit != unit.unit) continue;
      const double time = column.forward * costs[c][microbatch];
      forward += time;
      backward += column.backward * time;
    }
    longest = {std::max(longest.first, forward), std::max(longest.second, backward)};
  }
  return longest;
}

PipelineProblem PipelineModel::Problem(std::span<const std::vector<double>> costs) const {
  PipelineProblem problem{.schedule = schedule_,
                          .stages = stages_,
                          .virtual_stages = job_.virtual_stages,
                          .transfer = job_.pipeline.transfer};
  const std::vector<Chunk> cut = chunks_.empty() ? CutEvenly(costs) : std::vector<Chunk>();
  const std::vector<Chunk>& chunks = chunks_.empty() ? cut : chunks_;
  const size_t microbatches = costs[0].size();
  problem.forward.reserve(microbatches * problem.num_chunks());
  problem.backward.reserve(microbatches * problem.num_chunks());
  const auto add_end = [&](End end, size_t m) {
    const auto [forward, backward] = EndTimes(end, costs, m);
    problem.forward.push_back(forward);
    problem.backward.push_back(backward);
  };
  for (size_t m = 0; m < microbatches; ++m) {
    if (has_lead_) add_end(End::kLead, m);
    for (const Chunk& chunk : chunks) {
      double forward = 0, backward = 0;
      for (const Share& part : chunk) {
        const double time = columns_[part.column].forward * costs[part.column][m] * part.share;
        forward += time;
        backward += columns_[part.column].backward * time;
      }
      problem.forward.push_back(forward);
      problem.backward.push_back(backward);
    }
    if (has_tail_) add_end(End::kTail, m);
  }
  return problem;
}

double PipelineModel::Seconds(std::optional<size_t> encoder, double cost) const {
  const Column& column = encoder.has_value() ? of_encoder_[*encoder] : columns_[0];
  return column.forward * cost * (1 + column.backward);
}

}  // namespace evenkeel::reorder
