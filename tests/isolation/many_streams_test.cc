// Containers with more streams than the one that is wanted: what they cost their decoder.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "isolation/isolated_processor.h"
#include "tests/preprocess/files.h"
#include "tests/source_dir.h"

namespace evenkeel::isolation {
namespace {

// A video of 76x100 pixels beside fifteen of 1024x576, each of which FFmpeg would decode the first frames of,
// and keep them, while it opens the file.
TEST(ManyStreams, OfAVideoAreNotDecodedBesideTheOneThatIsWanted) {
  Job job;
  job.processor.vision = SourceDir() + "/tests/golden/processor/qwen2-vl";
  job.isolation = Isolation::kAll;
  job.limits.max_video_pixels = 1024 * 576;
  auto decoders = StartDecoders(job, {.memory_bytes = 96 << 20});
  ASSERT_TRUE(decoders.ok()) << decoders.status();
  auto processor = preprocess::Processor::LoadMedia(job.processor, job.limits);
  ASSERT_TRUE(processor.ok()) << processor.status();
  const std::unique_ptr<preprocess::Processor> isolated =
      WithDecoders(*std::move(processor), *std::move(decoders), job);
  const Bytes bytes = preprocess::Golden("video/many-streams.mkv");
  const auto facts = isolated->Probe(Medium::kVideo, "mkv", bytes);
  ASSERT_TRUE(facts.ok()) << facts.status();
  EXPECT_EQ(facts->num_frames, 24);
  const auto lengths = isolated->Measure(*facts);
  ASSERT_TRUE(lengths.ok()) << lengths.status();
  std::vector<Bytes> fields;
  for (const preprocess::FieldSpec& field : isolated->fields(Medium::kVideo))
    fields.emplace_back(field.num_bytes(*lengths));
  const std::vector<std::span<std::byte>> spans(fields.begin(), fields.end());
  preprocess::ItemNotes notes;
  const absl::Status made =
      isolated->Produce({Medium::kVideo, "mkv", bytes, *facts, *lengths, &notes}, spans);
  EXPECT_TRUE(made.ok()) << made;
}

}  // namespace
}  // namespace evenkeel::isolation
