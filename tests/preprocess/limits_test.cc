// Every limit on media has an error of its type that names it, by which it is counted.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "preprocess/processor.h"
#include "tests/preprocess/files.h"

namespace evenkeel::preprocess {
namespace {

using testing::HasSubstr;

// What becomes of a medium: the first error of its probe and its production.
absl::Status Fate(Medium medium, const std::string& suffix, const Bytes& bytes, const Limits& limits) {
  ProcessorSpec spec;
  spec.vision = GoldenPath("processors/qwen2-vl");
  spec.audio = GoldenPath("processors/qwen2-audio");
  const auto processor = *Processor::LoadMedia(spec, limits);
  const absl::StatusOr<MediaFacts> facts = processor->Probe(medium, suffix, bytes);
  if (!facts.ok()) return facts.status();
  const absl::StatusOr<ItemLengths> lengths = processor->Measure(*facts);
  if (!lengths.ok()) return lengths.status();
  std::vector<Bytes> fields;
  for (const FieldSpec& field : processor->fields(medium)) fields.emplace_back(field.num_bytes(*lengths));
  const std::vector<std::span<std::byte>> spans(fields.begin(), fields.end());
  ItemNotes notes;
  return processor->Produce({medium, suffix, bytes, *facts, *lengths, &notes}, spans);
}

// A PNG header that announces `width` x `height` pixels, with the right checksum.
Bytes PngOf(uint32_t width, uint32_t height) {
  Bytes bytes = Golden("images/grey.png");
  constexpr size_t kType = 12, kWidth = 16, kHeight = 20, kChecksum = 29;
  const auto put = [&](size_t at, uint32_t value) {
    for (int i = 0; i < 4; ++i) bytes[at + i] = static_cast<std::byte>(value >> (24 - 8 * i));
  };
  put(kWidth, width);
  put(kHeight, height);
  uint32_t sum = ~0u;
  for (size_t at = kType; at < kChecksum; ++at) {
    sum ^= std::to_integer<uint32_t>(bytes[at]);
    for (int bit = 0; bit < 8; ++bit) sum = (sum & 1) != 0 ? sum >> 1 ^ 0xedb88320u : sum >> 1;
  }
  put(kChecksum, ~sum);
  return bytes;
}

struct Case {
  const char* limit;
  Medium medium;
  std::string suffix;
  Bytes bytes;
  void (*lower)(Limits&);
};

TEST(Limits, EachIsRefusedByAnErrorThatNamesIt) {
  const auto golden = [](const char* name) { return Golden(name); };
  const std::vector<Case> cases = {
      {"max_image_bytes", Medium::kImage, "jpg", golden("images/progressive.jpg"),
       [](Limits& limits) { limits.max_image_bytes = 100; }},
      {"max_image_pixels", Medium::kImage, "jpg", golden("images/progressive.jpg"),
       [](Limits& limits) { limits.max_image_pixels = 100; }},
      {"max_image_side", Medium::kImage, "webp", golden("images/lossy.webp"),
       [](Limits& limits) { limits.max_image_side = 20; }},
      {"max_image_side", Medium::kImage, "tif", golden("images/rgb.tif"),
       [](Limits& limits) { limits.max_image_side = 20; }},
      {"max_image_side", Medium::kImage, "heic", golden("heif/420.heic"),
       [](Limits& limits) { limits.max_image_side = 20; }},
      {"max_image_pixels", Medium::kImage, "avif", golden("heif/420.avif"),
       [](Limits& limits) { limits.max_image_pixels = 100; }},
      {"max_image_side", Medium::kImage, "png", PngOf(16385, 1), [](Limits&) {}},
      {"max_image_side", Medium::kImage, "png", PngOf(1, 0x7fffffff), [](Limits&) {}},
      {"max_image_pixels", Medium::kImage, "png", PngOf(16384, 16384), [](Limits&) {}},
      {"max_decode_ratio", Medium::kImage, "png", PngOf(8192, 8192), [](Limits&) {}},
      {"max_jpeg_scans", Medium::kImage, "jpg", golden("images/progressive.jpg"),
       [](Limits& limits) { limits.max_jpeg_scans = 2; }},
      {"max_jpeg_coefficient_bytes", Medium::kImage, "jpg", golden("images/progressive.jpg"),
       [](Limits& limits) { limits.max_jpeg_coefficient_bytes = 1000; }},
      {"max_audio_bytes", Medium::kAudio, "wav", golden("audio/voice.wav"),
       [](Limits& limits) { limits.max_audio_bytes = 1000; }},
      {"max_audio_seconds", Medium::kAudio, "mp3", golden("audio/stereo.mp3"),
       [](Limits& limits) { limits.max_audio_seconds = 0; }},
      {"max_streams", Medium::kAudio, "m4a", golden("audio/stereo.m4a"),
       [](Limits& limits) { limits.max_streams = 0; }},
      {"max_streams", Medium::kVideo, "mp4", golden("video/h264.mp4"),
       [](Limits& limits) { limits.max_streams = 0; }},
      {"max_video_bytes", Medium::kVideo, "mp4", golden("video/h264.mp4"),
       [](Limits& limits) { limits.max_video_bytes = 100; }},
      {"max_video_pixels", Medium::kVideo, "mp4", golden("video/h264.mp4"),
       [](Limits& limits) { limits.max_video_pixels = 100; }},
      {"max_video_pixels", Medium::kVideo, "avi", golden("video/mjpeg.avi"),
       [](Limits& limits) { limits.max_video_pixels = 100; }},
      {"max_video_frames", Medium::kVideo, "webm", golden("video/vp9.webm"),
       [](Limits& limits) { limits.max_video_frames = 3; }}};
  for (const Case& c : cases) {
    Limits limits;
    c.lower(limits);
    const absl::Status fate = Fate(c.medium, c.suffix, c.bytes, limits);
    EXPECT_TRUE(absl::IsResourceExhausted(fate)) << c.limit << ", " << c.suffix << ": " << fate;
    EXPECT_THAT(std::string(fate.message()), HasSubstr(std::string("limits.") + c.limit));
  }
}

}  // namespace
}  // namespace evenkeel::preprocess
