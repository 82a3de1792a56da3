// The section `pipeline` of a job: what it gives, what it must agree with, and the exact words of its errors.
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/job.h"
#include "gtest/gtest.h"

namespace evenkeel {
namespace {

// Lines 1 to 7; a test's text begins on line 8.
std::string JobWithVisionOn(const char* ranks) {
  return absl::StrCat(
      "index: ./index\n"
      "datasets: [{name: photos, shards: [a.tar]}]\n"
      "processor: {folder: ./qwen2-vl}\n"
      "batch: {samples: 64}\n"
      "phases:\n"
      "  - {name: llm, ranks: 0-3}\n"
      "  - {name: vision, ranks: ",
      ranks, ", runs: once_per_microbatch}\n");
}
const std::string kJob = JobWithVisionOn("0-3"), kApart = JobWithVisionOn("8-9");

std::string ErrorOf(const std::string& text, const std::string& job = kJob) {
  const absl::StatusOr<Job> parsed = ParseJob(job + text, "job.yaml");
  return parsed.ok() ? "no error" : std::string(parsed.status().message());
}

Job JobOf(const std::string& text, const std::string& job = kJob) {
  const absl::StatusOr<Job> parsed = ParseJob(job + text, "job.yaml");
  EXPECT_TRUE(parsed.ok()) << parsed.status();
  return parsed.ok() ? *parsed : Job();
}

TEST(PipelineSpec, HasChunksPassesAndTheStagesOfTheLlm) {
  const Job job = JobOf(
      "pipeline:\n"
      "  transfer: 0.001\n"
      "  order: disttrain\n"
      "  chunks:\n"
      "    - phases: [{phase: vision, share: 1}]\n"
      "    - phases: [{phase: llm, layers: 8}]\n"
      "    - phases: [{phase: llm, layers: 24}]\n"
      "  passes: [{phase: vision, forward: 2, backward: 1, frozen: true}]\n",
      kApart);
  EXPECT_TRUE(job.pipeline.given);
  EXPECT_EQ(job.pipeline.stages, 3u);
  EXPECT_EQ(job.pipeline_stages, 2u) << "the encoder's stage is not one of the llm's";
  EXPECT_EQ(job.virtual_stages, 1u);
  EXPECT_EQ(job.pipeline.transfer, 0.001);
  EXPECT_EQ(job.pipeline.order, "disttrain");
  EXPECT_EQ(job.pipeline.chunks[1][0].share, 0.25);
  EXPECT_EQ(job.pipeline.chunks[2][0].share, 0.75);
  EXPECT_TRUE(job.pipeline.PassOf("vision").frozen);
  EXPECT_EQ(job.pipeline.PassOf("vision").forward, 2);
  EXPECT_EQ(job.pipeline.PassOf("llm").backward, 2);
}

TEST(PipelineSpec, SeveralChunksOfAStageAreVirtualStages) {
  const Job job = JobOf(
      "pipeline:\n"
      "  stages: 2\n"
      "  chunks:\n"
      "    - phases: [{phase: vision, share: 1}, {phase: llm, share: 0.1}]\n"
      "    - phases: [{phase: llm, share: 0.3}]\n"
      "    - phases: [{phase: llm, share: 0.3}]\n"
      "    - phases: [{phase: llm, share: 0.3}]\n");
  EXPECT_EQ(job.pipeline_stages, 2u);
  EXPECT_EQ(job.virtual_stages, 2u);
  EXPECT_EQ(job.microbatch.count_multiple, 2u);
}

TEST(PipelineSpec, ErrorsNameThePlaceAndWhatToDo) {
  const std::string vision = "{phases: [{phase: vision, share: 1}]}";
  const auto chunks = [&](const std::string& rest) {
    return "pipeline: {chunks: [" + vision + ", " + rest + "]}\n";
  };
  EXPECT_EQ(ErrorOf(chunks("{phases: [{phase: llm, share: 0.5}]}, {phases: [{phase: llm, share: 0.4}]}")),
            "job.yaml:8: pipeline.chunks: the shares of llm sum to 0.9, not to 1");
  EXPECT_EQ(ErrorOf(chunks("{phases: [{phase: lm, share: 1}]}")),
            "job.yaml:8: pipeline.chunks[1].phases[0].phase: there is no phase 'lm'; nearest is 'llm'");
  EXPECT_EQ(
      ErrorOf("pipeline: {stages: 2, chunks: [" + vision +
              ", {phases: [{phase: llm, share: 0.5}]}, {phases: [{phase: llm, share: 0.5}]}]}\n"),
      "job.yaml:8: pipeline.chunks: 3 chunks are not a multiple of the 2 stages; every stage has as many "
      "chunks, of which some may be empty: {phases: []}");
  EXPECT_EQ(ErrorOf(chunks("{phases: []}")),
            "job.yaml:8: pipeline.chunks: no chunk has llm; give its shares or layers");
  EXPECT_EQ(
      ErrorOf(chunks("{phases: [{phase: llm}]}")),
      "job.yaml:8: pipeline.chunks[1].phases[0]: has no size; give the share or the layers of llm in this "
      "chunk");
  EXPECT_EQ(
      ErrorOf(chunks("{phases: [{phase: llm, share: 0.5}]}, {phases: [{phase: llm, layers: 4}]}")),
      "job.yaml:8: pipeline.chunks[2].phases[0]: gives layers of llm, other chunks the other; give one of "
      "the two in all chunks");
  EXPECT_EQ(
      ErrorOf("pipeline: {stages: 4}\n"),
      "job.yaml:8: pipeline.stages: belongs to pipeline.chunks; give chunks, or topology.pipeline_stages "
      "for stages that take equal time");
  EXPECT_EQ(ErrorOf("pipeline: {shedule: 1f1b}\n"),
            "job.yaml:8: unknown key 'shedule' in pipeline; nearest is 'schedule'");
  EXPECT_EQ(ErrorOf("pipeline: {schedule: zero}\n"),
            "job.yaml:8: pipeline.schedule: 'zero' is not one of 1f1b, interleaved_1f1b, gpipe");
  EXPECT_EQ(ErrorOf("pipeline: {transfer: -1}\n"),
            "job.yaml:8: pipeline.transfer: must not be negative, is -1; give seconds");
  EXPECT_EQ(ErrorOf("pipeline: {passes: [{phase: vision, forward: 0}]}\n"),
            "job.yaml:8: pipeline.passes[0].forward: must be above 0 and at most 1e6, is 0");
  EXPECT_EQ(ErrorOf("pipeline: {passes: [{phase: llm}, {phase: llm}]}\n"),
            "job.yaml:8: pipeline.passes[1].phase: 'llm' is listed twice; put its factors into one entry");
}

TEST(PipelineSpec, AgreesWithTheTopologyAndThePhases) {
  const std::string two =
      "pipeline: {chunks: [{phases: [{phase: vision, share: 1}]}, {phases: [{phase: llm, share: 1}]}]}\n";
  EXPECT_EQ(ErrorOf("topology: {pipeline_stages: 3}\n" + two),
            "job.yaml:9: pipeline.stages: 2 of the 2 stages are on ranks of the llm, but the topology has 3 "
            "pipeline stages; make the two agree");
  EXPECT_EQ(ErrorOf("topology: {pipeline_stages: 2}\n" + two), "no error");
  std::string per_step = kJob;
  per_step.replace(per_step.find(", runs: once_per_microbatch"), 27, "");
  EXPECT_EQ(
      ErrorOf(two, per_step),
      "job.yaml:8: pipeline.chunks[0].phases[0].phase: 'vision' runs once per step, before the pipeline; "
      "give it runs: once_per_microbatch, or remove it from the chunks");
  EXPECT_EQ(ErrorOf("pipeline: {schedule: gpipe, stages: 1, chunks: [{phases: [{phase: vision, share: 1}]}, "
                    "{phases: [{phase: llm, share: 1}]}]}\n"),
            "job.yaml:8: pipeline.schedule: 'gpipe' has one chunk per stage, the job has 2; take "
            "interleaved_1f1b, or one chunk per stage");
}

TEST(PipelineSpec, IsInTheLayoutDigestOnlyWhereItIsGiven) {
  EXPECT_EQ(LayoutCanonicalText(JobOf("")).find("pipeline.schedule"), std::string::npos);
  EXPECT_NE(LayoutCanonicalText(JobOf("", kApart)).find("pipeline.schedule"), std::string::npos)
      << "its encoders are a stage of their own";
  const std::string text =
      LayoutCanonicalText(JobOf("pipeline: {passes: [{phase: vision, frozen: true}]}\n"));
  EXPECT_NE(text.find("pipeline.order=local_search\n"), std::string::npos) << text;
  EXPECT_NE(text.find("pipeline.pass.frozen=1\n"), std::string::npos) << text;
}

}  // namespace
}  // namespace evenkeel
