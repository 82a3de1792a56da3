#include "preprocess/processor.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "absl/status/status.h"
#include "core/status.h"
#include "tests/preprocess/files.h"
#include "tests/preprocess/items.h"
#include "tests/usual_phases.h"

namespace evenkeel::preprocess {
namespace {

struct Source {
  Medium medium;
  std::string name;
};
const std::vector<Source>& Sources() {
  static const std::vector<Source> sources = {{Medium::kImage, "images/baseline-420.jpg"},
                                              {Medium::kVideo, "video/vp9.webm"},
                                              {Medium::kAudio, "audio/stereo.flac"}};
  return sources;
}

// The example of the header.
absl::StatusOr<Bytes> FirstField(const ProcessorSpec& spec, const Limits& limits, const Bytes& bytes) {
  EVENKEEL_ASSIGN_OR_RETURN(std::unique_ptr<Processor> processor, Processor::LoadMedia(spec, limits));
  EVENKEEL_ASSIGN_OR_RETURN(MediaFacts facts, processor->Probe(Medium::kImage, "jpg", bytes));
  EVENKEEL_ASSIGN_OR_RETURN(ItemLengths lengths, processor->Measure(facts));
  std::vector<Bytes> fields;
  for (const FieldSpec& field : processor->fields(Medium::kImage))
    fields.emplace_back(field.num_bytes(lengths));
  std::vector<std::span<std::byte>> field_bytes(fields.begin(), fields.end());
  EVENKEEL_RETURN_IF_ERROR(processor->Produce({Medium::kImage, "jpg", bytes, facts, lengths}, field_bytes));
  return fields[0];
}

TEST(Processor, TheHeadersExampleWorks) {
  absl::StatusOr<Bytes> field = FirstField(GoldenSpec(), Limits{}, Golden("images/baseline-420.jpg"));
  ASSERT_TRUE(field.ok()) << field.status();
  EXPECT_EQ(field->size() % 588, 0u);  // u8 patches of one frame
}

TEST(Processor, ProducesTheSameBytesEveryTime) {
  for (const Source& source : Sources()) {
    Item first = Make(GoldenSpec(), source.medium, source.name);
    Item second = Make(GoldenSpec(), source.medium, source.name);
    ASSERT_TRUE(first.status.ok()) << source.name << " " << first.status;
    EXPECT_EQ(first.fields, second.fields) << source.name;
  }
}

TEST(Processor, AnInvalidItemIsZeroRowsOfThePlannedSizeWithTheSameMetadata) {
  auto processor = Processor::LoadMedia(GoldenSpec(), Limits{});
  ASSERT_TRUE(processor.ok()) << processor.status();
  for (const Source& source : Sources()) {
    SCOPED_TRACE(source.name);
    Item good = Make(GoldenSpec(), source.medium, source.name);
    ASSERT_TRUE(good.status.ok());
    std::vector<Bytes> fields;
    for (const Bytes& field : good.fields) fields.emplace_back(field.size(), std::byte{0x77});
    std::vector<std::span<std::byte>> spans(fields.begin(), fields.end());
    const std::string suffix = SuffixOf(source.name);
    ItemRequest request{source.medium, suffix, {}, good.facts, good.lengths};
    ASSERT_TRUE((*processor)->FillInvalid(request, spans).ok());
    EXPECT_TRUE(
        std::all_of(fields[0].begin(), fields[0].end(), [](std::byte b) { return b == std::byte{0}; }));
    for (size_t i = 1; i < fields.size(); ++i) EXPECT_EQ(fields[i], good.fields[i]);
  }
}

TEST(Processor, AnItemOfOtherLengthsThanPlannedIsDataLoss) {
  auto processor = Processor::LoadMedia(GoldenSpec(), Limits{});
  for (const Source& source : Sources()) {
    Item good = Make(GoldenSpec(), source.medium, source.name);
    std::vector<std::span<std::byte>> spans(good.fields.begin(), good.fields.end());
    Bytes bytes = Golden(source.name);
    const std::string suffix = SuffixOf(source.name);
    ItemRequest request{source.medium, suffix, bytes, good.facts, good.lengths};
    ++request.planned.output_rows;
    EXPECT_TRUE(absl::IsDataLoss((*processor)->Produce(request, spans))) << source.name;
  }
}

TEST(Processor, AnImageOfOtherDimensionsThanItsFactsIsDataLoss) {
  auto processor = Processor::LoadMedia(GoldenSpec(), Limits{});
  Bytes bytes = Golden("images/baseline-420.jpg");
  MediaFacts facts = *(*processor)->Probe(Medium::kImage, "jpg", bytes);
  facts.width += 1;
  EXPECT_TRUE(absl::IsDataLoss(MakeFrom(**processor, Medium::kImage, "jpg", bytes, facts).status));
}

TEST(Processor, BuffersOfAnotherSizeAreTheCallersFault) {
  auto processor = Processor::LoadMedia(GoldenSpec(), Limits{});
  for (const Source& source : Sources()) {
    Item good = Make(GoldenSpec(), source.medium, source.name);
    good.fields[0].pop_back();
    std::vector<std::span<std::byte>> spans(good.fields.begin(), good.fields.end());
    Bytes bytes = Golden(source.name);
    const std::string suffix = SuffixOf(source.name);
    ItemRequest request{source.medium, suffix, bytes, good.facts, good.lengths};
    EXPECT_TRUE(absl::IsInternal((*processor)->Produce(request, spans))) << source.name;
  }
}

TEST(Processor, DummiesAreMeasurableAndFillable) {
  auto processor = Processor::LoadMedia(GoldenSpec(), Limits{});
  for (const Phase& phase : {kVisionPhase, kAudioPhase}) {
    MediaFacts facts = (*processor)->DummyFacts(phase);
    EXPECT_EQ(UsualPhaseOf(facts.medium), phase);
    absl::StatusOr<ItemLengths> lengths = (*processor)->Measure(facts);
    ASSERT_TRUE(lengths.ok()) << lengths.status();
    EXPECT_GT(lengths->output_rows, 0u);
    std::vector<Bytes> fields;
    for (const FieldSpec& field : (*processor)->fields(facts.medium))
      fields.emplace_back(field.num_bytes(*lengths));
    std::vector<std::span<std::byte>> spans(fields.begin(), fields.end());
    EXPECT_TRUE((*processor)->FillInvalid({facts.medium, "", {}, facts, *lengths}, spans).ok());
  }
}

TEST(Processor, TheDigestNamesWhatValuesDependOn) {
  Digest base = (*Processor::LoadMedia(GoldenSpec(), Limits{}))->digest();
  EXPECT_EQ((*Processor::LoadMedia(GoldenSpec(), Limits{}))->digest(), base);
  auto differs = [&](auto change) {
    ProcessorSpec spec = GoldenSpec();
    change(spec);
    return (*Processor::LoadMedia(spec, Limits{}))->digest() != base;
  };
  EXPECT_TRUE(differs([](ProcessorSpec& spec) { spec.fps = 1; }));
  EXPECT_TRUE(differs([](ProcessorSpec& spec) { spec.min_pixels = 5000; }));
  EXPECT_TRUE(differs([](ProcessorSpec& spec) { spec.video_max_pixels = 200000; }));
  EXPECT_TRUE(differs([](ProcessorSpec& spec) { spec.audio = GoldenPath("processors/whisper"); }));
  EXPECT_TRUE(differs([](ProcessorSpec& spec) { spec.audio.clear(); }));
  EXPECT_FALSE(differs([](ProcessorSpec& spec) { spec.wire = Wire::kF32; })) << "the wire form is layout";
}

TEST(Processor, WithoutATokenizerSequencesAreRefused) {
  auto processor = Processor::LoadMedia(GoldenSpec(), Limits{});
  Sequence sequence;
  EXPECT_TRUE(absl::IsFailedPrecondition((*processor)->BuildSequence({}, {}, {}, sequence)));
  EXPECT_TRUE(absl::IsFailedPrecondition((*processor)->MeasureSequence({}, {}, {}).status()));
  EXPECT_FALSE(Processor::Load(GoldenSpec(), Limits{}).ok()) << "Load needs the tokenizer's folder";
}

TEST(Processor, BrokenMediaBesideTheTreeGiveErrorsOfAType) {
  std::string shared = SharedFolder();
  if (shared.empty()) GTEST_SKIP() << "no folder of media beside the tree";
  auto processor = Processor::LoadMedia(GoldenSpec(), Limits{});
  Bytes jpeg = ReadBytes(shared + "/media/broken/truncated.jpg");
  EXPECT_TRUE(absl::IsInvalidArgument((*processor)->Probe(Medium::kImage, "jpg", jpeg).status()));
  Bytes avi = ReadBytes(shared + "/media/broken/Megamind_bugy.avi");
  absl::StatusOr<MediaFacts> facts = (*processor)->Probe(Medium::kVideo, "avi", avi);
  ASSERT_TRUE(facts.ok()) << facts.status();
  Item first = MakeFrom(**processor, Medium::kVideo, "avi", avi, *facts);
  Item second = MakeFrom(**processor, Medium::kVideo, "avi", avi, *facts);
  EXPECT_EQ(first.status, second.status);
  EXPECT_TRUE(first.status.ok() || absl::IsDataLoss(first.status)) << first.status;
  EXPECT_TRUE(!first.status.ok() || first.fields == second.fields);
}

}  // namespace
}  // namespace evenkeel::preprocess
