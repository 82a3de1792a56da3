// Any bytes as each kind of video (the first byte chooses it, and whose frames): an error of a type, or frames.
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "preprocess/video/video.h"

namespace {

class Nowhere final : public evenkeel::preprocess::BandSink {
 public:
  void TakeBand(const evenkeel::preprocess::PixelBand&) override {}
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static constexpr const char* kSuffixes[] = {"mp4", "avi", "webm"};
  if (size == 0) return 0;
  const auto loader = static_cast<evenkeel::preprocess::FrameLoader>(data[0] / 3 % 4);
  const char* suffix = kSuffixes[data[0] % 3];
  std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(data + 1), size - 1);
  evenkeel::Limits limits;
  limits.max_video_pixels = 1 << 18;
  limits.max_video_frames = 100;
  auto facts = evenkeel::preprocess::ProbeVideo(suffix, bytes, limits, loader);
  if (!facts.ok()) return 0;
  std::vector<uint32_t> chosen = {0, facts->num_frames / 2, facts->num_frames - 1};
  uint64_t repeated = 0;
  Nowhere nowhere;
  auto sink = [&](size_t, evenkeel::preprocess::FrameRows rows) { return rows(nowhere); };
  (void)evenkeel::preprocess::DecodeVideo(suffix, bytes, limits, *facts, chosen, loader, sink, &repeated);
  return 0;
}
