// A job's pipeline as it is: which stage computes which share of which phase, and for how long.
//
// Made once per plan. The stream orders microbatches by it, and the step model simulates it. The schedules are in
// pipeline_schedule.h.
//
// Example:
//     const PipelineModel model(job, llm, encoders);
//     PipelineProblem problem = model.Problem(costs);  // [columns][microbatches] of one llm rank
//
// - The chunks are those of the job's section `pipeline`. Without chunks the layers of the encoders on the llm's ranks,
//   followed by the llm's, are cut into chunks that take the same time for the mean microbatch (as OmniBal cuts by
//   profile).
// - Encoders on ranks of their own that are in no chunk are a stage before the others. Several with common ranks add up;
//   otherwise they work at the same time, and the slower one counts. An interleaved schedule has no such stage: these
//   encoders count as hidden by the llm there.
// - Generators come after the llm: on ranks of their own they are likewise a stage after the others.
// - A phase's forward takes its cost times its factor, its backward a multiple of its forward. A frozen encoder has no
//   backward. A frozen llm has half of one, for the gradients of its inputs, unless all encoders are frozen. A frozen
//   generator has half of one, unless everything before it is frozen, too.
//
// Thread safety: immutable after construction.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "core/job.h"
#include "reorder/pipeline/pipeline_schedule.h"

namespace evenkeel::reorder {

class PipelineModel {
 public:
  // `recompute`: how many forwards a backward repeats before it begins.
  PipelineModel(const Job& job, const PhaseSpec& llm, std::span<const PhaseSpec* const> encoders,
                double recompute = 0);

  // Stages of the whole pipeline. With 1 there is nothing to order.
  uint32_t num_stages() const { return stages_; }
  // Costs come in columns. Column 0 is the llm's.
  uint32_t num_columns() const { return static_cast<uint32_t>(columns_.size()); }
  // That of an encoder; nullopt: it does not run in the pipeline. Phases of one column are added up.
  std::optional<uint32_t> ColumnOfEncoder(size_t e) const { return column_of_[e]; }
  // Whether the column's encoder is on ranks of its own, so that all llm ranks wait for the same work.
  bool IsShared(uint32_t column) const { return columns_[column].is_apart; }
  bool HasShared() const;
  // Whether the encoder has a stage of its own before the chunks of the llm's ranks.
  bool IsLead(size_t e) const { return column_of_[e].has_value() && columns_[*column_of_[e]].is_lead; }
  // Whether it is a generator with a stage of its own after them.
  bool IsTail(size_t e) const { return column_of_[e].has_value() && columns_[*column_of_[e]].is_tail; }

  // The pipeline of one llm rank. `costs`: [columns][microbatches], in the job's units, without the factors.
  PipelineProblem Problem(std::span<const std::vector<double>> costs) const;
  // A pass forward and backward of this cost in an encoder or, with nullopt, the llm.
  double Seconds(std::optional<size_t> encoder, double cost) const;

 private:
  struct Column {
    double forward = 1;   // times the cost
    double backward = 0;  // times the forward
    bool is_apart = false;
    bool is_lead = false;
    bool is_tail = false;
    uint32_t unit = 0;  // lead columns of one unit share ranks, and so do tail columns
  };
  struct Share {
    uint32_t column = 0;
    double share = 0;
  };
  using Chunk = std::vector<Share>;

  Column ColumnOf(const PhaseSpec& phase) const;
  void AddEncoders(std::span<const PhaseSpec* const> encoders, const PhaseSpec& llm);
  void FindUnits(std::span<const PhaseSpec* const> encoders);
  void AddChunks(std::span<const PhaseSpec* const> encoders);
  std::vector<Chunk> CutEvenly(std::span<const std::vector<double>> costs) const;
  // The time of the stage before the chunks or, with kTail, after them.
  enum class End { kLead, kTail };
  std::pair<double, double> EndTimes(End end, std::span<const std::vector<double>> costs,
                                     size_t microbatch) const;

  const Job& job_;
  const double recompute_;
  bool trains_encoder_ = false;
  bool has_lead_ = false;
  bool has_tail_ = false;
  PipelineSchedule schedule_ = PipelineSchedule::k1F1B;
  uint32_t stages_ = 1;
  uint32_t body_chunks_ = 1;                        // without the stages before and after them
  std::vector<Column> columns_;                     // the llm's first
  std::vector<std::optional<uint32_t>> column_of_;  // [encoders]
  std::vector<Column> of_encoder_;                  // [encoders] factors, also outside the pipeline
  std::vector<uint32_t> line_;                      // columns that are cut into equal chunks, in their order
  std::vector<Chunk> chunks_;                       // as the job gives them; empty: cut evenly
};

}  // namespace evenkeel::reorder
