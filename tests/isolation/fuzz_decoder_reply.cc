// Whatever a decoder process that was taken over replies: a failed attempt, a verdict, or facts that every
// family can measure.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "isolation/decoder_message.h"
#include "preprocess/processor.h"
#include "tests/source_dir.h"
#include "tests/usual_phases.h"

namespace evenkeel::isolation {
namespace {

struct Family {
  Phase phase;
  const char* folder;
};
constexpr Family kFamilies[] = {
    {kVisionPhase, "qwen2-vl"},   {kVisionPhase, "qwen2_5-vl"},  {kVisionPhase, "qwen3-vl"},
    {kVisionPhase, "internvl"},   {kVisionPhase, "llava"},       {kVisionPhase, "llava-pad"},
    {kVisionPhase, "clip"},       {kVisionPhase, "siglip"},      {kAudioPhase, "whisper"},
    {kAudioPhase, "qwen2-audio"}, {kAudioPhase, "qwen2_5-omni"}, {kAudioPhase, "qwen3-omni"}};

std::vector<std::unique_ptr<preprocess::Processor>> LoadAll() {
  std::vector<std::unique_ptr<preprocess::Processor>> processors;
  for (const Family& family : kFamilies) {
    ProcessorSpec spec;
    (family.phase == kVisionPhase ? spec.vision : spec.audio) =
        SourceDir() + "/tests/golden/data/processors/" + family.folder;
    auto processor = preprocess::Processor::LoadMedia(spec, Limits{});
    if (!processor.ok()) std::abort();
    processors.push_back(*std::move(processor));
  }
  return processors;
}

}  // namespace
}  // namespace evenkeel::isolation

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace evenkeel;             // NOLINT
  using namespace evenkeel::isolation;  // NOLINT
  static const auto* const processors = new std::vector<std::unique_ptr<preprocess::Processor>>(LoadAll());
  DecoderReply reply;
  std::memcpy(static_cast<void*>(&reply), data, std::min(size, sizeof(reply)));
  if (reply.code != 0 && reply.status().ok()) std::abort();
  for (const Medium medium : {Medium::kImage, Medium::kVideo, Medium::kAudio}) {
    if (!CheckFacts(reply.facts, medium).ok()) continue;
    for (const auto& processor : *processors) {
      const absl::StatusOr<ItemLengths> lengths = processor->Measure(reply.facts);
      if (!lengths.ok()) continue;
      for (const preprocess::FieldSpec& field : processor->fields(medium)) (void)field.num_bytes(*lengths);
    }
  }
  return 0;
}
