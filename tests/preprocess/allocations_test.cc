// Items in the steady state allocate nothing in C++, probed and produced whole, of every codec.
#include "tests/preprocess/allocations.h"

#include <gtest/gtest.h>

#include "preprocess/processor.h"
#include "tests/preprocess/files.h"
#include "tests/preprocess/items.h"

namespace evenkeel {
namespace {

void ExpectNoneIn(const Processor& processor, Medium medium, const std::string& name) {
  const Bytes bytes = Golden(name);
  const std::string suffix = SuffixOf(name);
  std::vector<Bytes> fields;
  std::vector<std::span<std::byte>> spans;
  ItemNotes notes;
  auto run = [&] {
    const absl::StatusOr<MediaFacts> facts = processor.Probe(medium, suffix, bytes);
    ASSERT_TRUE(facts.ok()) << name << ": " << facts.status();
    const absl::StatusOr<ItemLengths> lengths = processor.Measure(*facts);
    ASSERT_TRUE(lengths.ok()) << name << ": " << lengths.status();
    if (spans.empty()) {  // the part's arena
      for (const FieldSpec& field : processor.fields(medium)) fields.emplace_back(field.num_bytes(*lengths));
      spans.assign(fields.begin(), fields.end());
    }
    const absl::Status made = processor.Produce({medium, suffix, bytes, *facts, *lengths, &notes}, spans);
    ASSERT_TRUE(made.ok()) << name << ": " << made;
  };
  run();
  const CountedAllocations counted;
  for (int i = 0; i < 3; ++i) run();
  EXPECT_EQ(counted.count(), 0u) << name;
}

TEST(Allocations, PicturesMakeNoneOnceAThreadHasItsScratch) {
  const auto processor = *Processor::LoadMedia(GoldenSpec(), Limits{});
  for (const std::string name :
       {"smooth.jpg", "turned-6.jpg", "scene.png", "rgba.png", "palette.png", "rgba.webp"})
    ExpectNoneIn(*processor, Medium::kImage, "pictures/" + name);
}

TEST(Allocations, ClipsMakeNoneOnceAThreadHasItsScratch) {
  ProcessorSpec unpadded = GoldenSpec();
  unpadded.audio = GoldenPath("processors/qwen3-omni");
  for (const ProcessorSpec& spec : {GoldenSpec(), unpadded}) {
    const auto processor = *Processor::LoadMedia(spec, Limits{});
    for (const std::string name : {"stereo.wav", "stereo.flac", "stereo-alac.m4a", "stereo.mp3", "stereo.m4a",
                                   "stereo.ac3", "stereo.opus", "mulaw.wav", "float.wav", "voice.wav",
                                   "stereo.ogg", "vorbis.mka", "opus.webm", "variable.mp3"})
      ExpectNoneIn(*processor, Medium::kAudio, "audio/" + name);
  }
}

TEST(Allocations, VideosMakeNoneOnceAThreadHasItsScratch) {
  ProcessorSpec uniform = GoldenSpec();
  uniform.frame_rule = "uniform";
  uniform.apply_video_rotation = true;
  for (const ProcessorSpec& spec : {GoldenSpec(), uniform}) {
    const auto processor = *Processor::LoadMedia(spec, Limits{});
    for (const std::string name : {"h264.mp4", "h264-open.mp4", "h264-variable.mkv", "h264-rotated.mp4",
                                   "h264-10-bits.mkv", "hevc.mp4", "mpeg4-b.mp4", "mpeg4.avi", "mjpeg.avi",
                                   "vp8.webm", "vp9.webm", "av1.mp4", "cinepak.avi"})
      ExpectNoneIn(*processor, Medium::kVideo, "video/" + name);
  }
}

}  // namespace
}  // namespace evenkeel
