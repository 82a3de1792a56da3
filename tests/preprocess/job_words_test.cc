// Words of a job that name nothing: the exact answer, with the line of the job.
#include "preprocess/job_words.h"

#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "core/job_where.h"

namespace evenkeel::preprocess {
namespace {

constexpr char kBegin[] =
    "index: ./index\n"
    "datasets: [{name: photos, shards: [a.tar]}]\n"
    "batch: {samples: 64}\n"
    "phases: [{name: llm, ranks: 0-7}, {name: vision, ranks: 0-7}]\n"
    "processor:\n"
    "  folder: f\n";  // the sixth line

// What a command says of a job with this line after those.
std::string Answer(const std::string& line) {
  const std::string path = absl::StrCat(::testing::TempDir(), "job_words_test.yaml");
  std::ofstream(path) << kBegin << "  " << line << "\n";
  const absl::StatusOr<Job> job = LoadJob(path);
  EXPECT_TRUE(job.ok()) << job.status();
  const absl::Status status = NameInJob(*job, CheckJob(*job));
  if (status.ok()) return "";
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_EQ(status.message().find(path), 0u) << status;
  return std::string(status.message().substr(path.size()));
}

TEST(JobWords, ThatNameNothingAreNamedWithTheirLineAndTheNearest) {
  EXPECT_EQ(Answer("chat: llama"),
            ":7: processor.chat: 'llama' is not one of template, chatml, gemma, internvl, llama3, llava, "
            "mistral, pixtral, plain, qwen2_audio, vicuna; nearest is 'llama3'");
  EXPECT_EQ(Answer("like: transformers-4.75"),
            ":7: processor.like: 'transformers-4.75' is not one of transformers-5.23, transformers-4.57, "
            "slow; nearest "
            "is 'transformers-4.57'");
  EXPECT_EQ(Answer("resampler: fast"),
            ":7: processor.resampler: 'fast' is not one of pil, pil13, aten_u8; nearest is 'pil'");
  EXPECT_EQ(Answer("frame_rule: unifrom"),
            ":7: processor.frame_rule: 'unifrom' is not one of qwen_vl_utils, fetch_video, transformers, "
            "uniform; nearest is "
            "'uniform'");
  EXPECT_EQ(
      Answer("frames: opencv"),
      ":7: processor.frames: 'opencv' is not one of torchcodec, pyav, decord, accurate; nearest is 'pyav'");
  EXPECT_EQ(Answer("exif_orientation: aply"),
            ":7: processor.exif_orientation: 'aply' is not one of ignore, apply; nearest is 'apply'");
  EXPECT_EQ(Answer("sixteen_bit: high_bite"),
            ":7: processor.sixteen_bit: 'high_bite' is not one of refuse_grey, clip_grey, high_byte, refuse; "
            "nearest "
            "is 'high_byte'");
  EXPECT_EQ(Answer("cmyk: converted"),
            ":7: processor.cmyk: 'converted' is not one of convert, refuse; nearest is 'convert'");
  EXPECT_EQ(Answer("palette: refused"),
            ":7: processor.palette: 'refused' is not one of convert, refuse; nearest is 'refuse'");
}

TEST(JobWords, ThatNameSomethingPass) {
  for (const char* line :
       {"chat: template", "chat: template\n  labels: all", "chat: vicuna", "chat: plain",
        "resampler: aten_u8", "resampler: pil13", "frame_rule: uniform", "frame_rule: fetch_video",
        "frame_rule: transformers", "frames: decord", "truncate: text", "exif_orientation: apply",
        "sixteen_bit: clip_grey", "cmyk: refuse", "palette: convert"}) {
    EXPECT_EQ(Answer(line), "") << line;
  }
}

}  // namespace
}  // namespace evenkeel::preprocess
