// Items and sequences in the steady state allocate nothing in C++: probed, measured and produced whole.
#include "tests/preprocess/allocations.h"

#include <gtest/gtest.h>

#include "preprocess/processor.h"
#include "tests/preprocess/files.h"
#include "tests/preprocess/items.h"
#include "tests/source_dir.h"

namespace evenkeel::preprocess {
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
  uniform.apply_video_rotation = false;
  for (const ProcessorSpec& spec : {GoldenSpec(), uniform}) {
    const auto processor = *Processor::LoadMedia(spec, Limits{});
    for (const std::string name : {"h264.mp4", "h264-open.mp4", "h264-variable.mkv", "h264-rotated.mp4",
                                   "h264-10-bits.mkv", "hevc.mp4", "mpeg4-b.mp4", "mpeg4.avi", "mjpeg.avi",
                                   "vp8.webm", "vp9.webm", "av1.mp4", "cinepak.avi"})
      ExpectNoneIn(*processor, Medium::kVideo, "video/" + name);
  }
}

// The facts of an item of this medium that the processor takes.
MediaFacts SomeFacts(Medium medium) {
  MediaFacts facts;
  facts.medium = medium;
  facts.width = facts.height = 64;
  facts.num_frames = 300;
  facts.fps_num = 25;
  facts.fps_den = 1;
  facts.sample_rate = 16000;
  facts.channels = 1;
  facts.num_samples = 32000;
  return facts;
}

// Whatever the sample before was: long and short ones take turns.
void ExpectNoneInSequences(const Processor& processor, const std::vector<Conversation>& conversations) {
  struct Sample {
    Conversation conversation;
    std::vector<SampleItem> items;
    std::vector<MediaFacts> facts;
  };
  std::vector<Sample> samples;
  for (const Conversation& conversation : conversations) {
    Sample& sample = samples.emplace_back(Sample{.conversation = conversation});
    for (const Turn& turn : conversation.turns) {
      for (const Span& span : turn.spans) {
        if (span.medium == Medium::kText) continue;
        sample.facts.push_back(SomeFacts(span.medium));
        const absl::StatusOr<ItemLengths> lengths = processor.Measure(sample.facts.back());
        ASSERT_TRUE(lengths.ok()) << lengths.status();
        sample.items.push_back({span.medium, *lengths});
      }
    }
  }
  Sequence sequence;
  uint64_t built = 0;
  auto run = [&] {
    for (const Sample& sample : samples) {
      const auto lengths = processor.MeasureSequence(sample.conversation, sample.items, sample.facts);
      const absl::Status status =
          processor.BuildSequence(sample.conversation, sample.items, sample.facts, sequence);
      built += lengths.ok() && status.ok() && lengths->llm_length == sequence.input_ids.size();
    }
  };
  run();
  ASSERT_EQ(built, samples.size());
  const CountedAllocations counted;
  for (int i = 0; i < 3; ++i) run();
  EXPECT_EQ(counted.count(), 0u);
}

TEST(Allocations, SequencesMakeNoneOnceAThreadHasItsScratch) {
  const std::string long_text = std::string(5000, 'a') + " 船\n" + std::string(3000, ' ');
  const Conversation plain{.plain = true, .turns = {{Role::kAssistant, {{.text = long_text}}}}};
  const Conversation chat{
      .turns = {{Role::kUser,
                 {{.text = "  What? "}, {Medium::kImage, "", 0}, {Medium::kVideo, "", 1}, {.text = "And"}}},
                {Role::kAssistant, {{.text = "A boat. "}, {.text = long_text}}},
                {Role::kTool, {{.text = "result"}}},
                {Role::kUser, {{Medium::kAudio, "", 2}, {Medium::kImage, "", 3}}},
                {Role::kAssistant, {{.text = "Nothing."}}}}};
  const Conversation asked{.turns = {{Role::kUser, {{.text = "Hi"}}}}};
  for (const std::string vision : {"qwen2-vl", "qwen3-vl"}) {
    for (const std::string style : {"chatml", "qwen2_audio", "llama3", "llava", "plain"}) {
      ProcessorSpec spec = GoldenSpec();
      spec.vision = GoldenPath("processors/" + vision);
      spec.tokenizer = SourceDir() + "/tests/golden/tokenizer";
      spec.chat = "chatml";  // templates allocate
      spec.chat = style;
      if (style == "llava") spec.added_tokens = {"<s>"};
      if (style == "llama3") {
        spec.added_tokens = {"<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"};
      }
      if (style != "plain") spec.system = "A system prompt of the job that is not short.";
      const auto processor = Processor::Load(spec, Limits{});
      ASSERT_TRUE(processor.ok()) << processor.status();
      SCOPED_TRACE(vision + ", " + style);
      ExpectNoneInSequences(**processor, {plain, chat, asked});
    }
  }
}

}  // namespace
}  // namespace evenkeel::preprocess
