// Any text as the files of a checkpoint's processor: a family that can measure, or an InvalidArgument. The
// first byte says which file the text is; the others are those of a known checkpoint, or missing.
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <string_view>

#include "preprocess/processor.h"
#include "tests/fuzz_folder.h"
#include "tests/usual_phases.h"

namespace {

void Measure(const evenkeel::preprocess::Processor& processor, evenkeel::Phase phase) {
  using namespace evenkeel;              // NOLINT
  using namespace evenkeel::preprocess;  // NOLINT
  const MediaFacts dummy = processor.DummyFacts(phase);
  const absl::StatusOr<ItemLengths> lengths = processor.Measure(dummy);
  if (!lengths.ok()) return;
  // Sizes alone: what they are is the family's, that they can be told is not.
  for (const FieldSpec& field : processor.fields(dummy.medium)) (void)field.num_bytes(*lengths);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace evenkeel;              // NOLINT
  using namespace evenkeel::preprocess;  // NOLINT
  static const FuzzFolder folder;
  static constexpr const char* kFiles[] = {"preprocessor_config.json", "processor_config.json", "config.json",
                                           "video_preprocessor_config.json"};
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data + 1), size - 1);
  const size_t which = data[0] % 4;
  folder.Write(kFiles[0], R"({"image_processor_type": "Qwen2VLImageProcessor"})");
  for (size_t i = 1; i < 4; ++i) folder.Write(kFiles[i], "{}");
  folder.Write(kFiles[which], text);
  for (const Phase phase : {kVisionPhase, kAudioPhase}) {
    ProcessorSpec spec;
    (phase == kVisionPhase ? spec.vision : spec.audio) = folder.path();
    const auto processor = Processor::LoadMedia(spec, Limits{});
    if (processor.ok()) {
      Measure(**processor, phase);
    } else if (!absl::IsInvalidArgument(processor.status()) && !absl::IsNotFound(processor.status())) {
      std::cerr << processor.status() << "\n";
      std::abort();
    }
  }
  return 0;
}
