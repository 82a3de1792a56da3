// Pipelines for tests and benchmarks: random ones, and microbatches drawn from length traces.
#pragma once

#include <cstdint>
#include <vector>

#include "core/words.h"
#include "reorder/pipeline/pipeline_schedule.h"
#include "tests/reorder/omni_trace.h"

namespace evenkeel::reorder {

// Any schedule, up to `max_stages` stages and `max_microbatches` microbatches, times that are even, spread,
// mostly nothing, or rarely enormous.
inline PipelineProblem DrawPipeline(Random& random, uint32_t max_stages, uint32_t max_microbatches) {
  PipelineProblem problem;
  problem.schedule = static_cast<PipelineSchedule>(random.Below(3));
  problem.stages = 1 + static_cast<uint32_t>(random.Below(max_stages));
  uint32_t microbatches = static_cast<uint32_t>(random.Below(max_microbatches + 1));
  if (problem.schedule == PipelineSchedule::kInterleaved1F1B) {
    problem.virtual_stages = 1 + static_cast<uint32_t>(random.Below(4));
    microbatches = microbatches / problem.stages * problem.stages;
  }
  if (random.Below(2) == 0) problem.transfer = random.Uniform();
  const uint64_t kind = random.Below(4);
  const size_t times = size_t{microbatches} * problem.num_chunks();
  for (std::vector<double>* of : {&problem.forward, &problem.backward}) {
    for (size_t i = 0; i < times; ++i) {
      of->push_back(kind == 0   ? 1
                    : kind == 1 ? random.Uniform()
                    : kind == 2 ? (random.Below(3) == 0 ? random.Uniform() : 0)
                                : (random.Below(10) == 0 ? 100 : 1) * random.Uniform());
    }
  }
  return problem;
}

// Where the encoder's work is: on the first stage, as a pipeline that begins with it has it; or cut with the
// layers of the llm, the same share of everything on every stage.
enum class EncoderAt { kFirstStage, kEveryStage };

// Microbatches of `samples` samples each, drawn from the trace with repetition. The encoder costs a quarter
// of its lengths, the llm its length; a backward is twice its forward.
inline PipelineProblem DrawFromTrace(const std::vector<SampleLengths>& trace, PipelineProblem shape,
                                     uint32_t microbatches, uint32_t samples, EncoderAt encoder,
                                     Random& random) {
  const uint32_t chunks = shape.num_chunks();
  for (uint32_t m = 0; m < microbatches; ++m) {
    double encode = 0, llm = 0;
    for (uint32_t k = 0; k < samples; ++k) {
      const SampleLengths& sample = trace[random.Below(trace.size())];
      llm += sample.llm_length;
      for (const SampleItem& item : sample.items) encode += 0.25 * item.lengths.cost_length;
    }
    for (uint32_t c = 0; c < chunks; ++c) {
      const double time = encoder == EncoderAt::kEveryStage ? encode + llm : c == 0 ? encode : llm;
      shape.forward.push_back(time);
      shape.backward.push_back(2 * time);
    }
  }
  return shape;
}

}  // namespace evenkeel::reorder
