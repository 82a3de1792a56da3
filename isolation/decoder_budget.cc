// The cost model of decoding, in CPU time. The constants were measured for the slowest codec of each kind.
#include "isolation/decoder_budget.h"

#include <algorithm>
#include <string_view>

#include "isolation/decoder_sandbox.h"

namespace evenkeel::isolation {
namespace {

// Nanoseconds on one core, measured as docs/safety.md describes, rounded up.
constexpr double kPerByte = 10;         // entropy decoding
constexpr double kPerPixel = 10;        // a progressive JPEG and its resize
constexpr double kPerScannedPixel = 1;  // of each scan, including empty scans
constexpr double kPerVideoPixel = 15;   // HEVC, colour conversion, resize; every frame is decoded
constexpr double kPerSample = 100;      // of each channel: decoding and resampling
constexpr double kPerOutputByte = 10;   // patches, mel frames
constexpr double kPerProbedByte = 20;
constexpr double kSanitizersAreSlower = kConfinesFully ? 1 : 30;

absl::Duration Scaled(const CpuBudget& budget, double nanoseconds) {
  const absl::Duration modelled = absl::Nanoseconds(nanoseconds * budget.factor);
  return std::max(budget.least, modelled) * kSanitizersAreSlower;
}

}  // namespace

// Entropy decoding grows with the stored bytes, pixels and samples with the facts, patches and mel frames
// with the output.
absl::Duration CpuBudget::ToProduce(const MediaFacts& facts, uint64_t num_bytes, uint64_t output_bytes,
                                    uint64_t scans) const {
  const double pixels = double{1} * facts.width * facts.height;
  double cost =
      kPerByte * static_cast<double>(num_bytes) + kPerOutputByte * static_cast<double>(output_bytes);
  if (facts.medium == Medium::kImage) {
    cost += (kPerPixel + kPerScannedPixel * static_cast<double>(std::min(scans, most_scans))) * pixels;
  }
  if (facts.medium == Medium::kVideo) cost += kPerVideoPixel * pixels * facts.num_frames;
  if (facts.medium == Medium::kAudio) {
    cost += kPerSample * static_cast<double>(facts.num_samples) * std::max(1u, facts.channels);
  }
  // Opening a container may decode a frame of another stream first, such as a cover.
  if (facts.medium != Medium::kImage) cost += kPerVideoPixel * static_cast<double>(opened_pixels);
  return Scaled(*this, cost);
}

absl::Duration CpuBudget::ToProbe(Medium medium, uint64_t num_bytes) const {
  double cost = kPerProbedByte * static_cast<double>(num_bytes);
  if (medium != Medium::kImage) cost += kPerVideoPixel * static_cast<double>(opened_pixels);
  return Scaled(*this, cost);
}

uint64_t ScansOf(std::span<const std::byte> bytes) {
  constexpr std::string_view kStartOfImage = "\xff\xd8", kStartOfScan = "\xff\xda";
  const std::string_view file(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (!file.starts_with(kStartOfImage)) return 0;
  uint64_t scans = 0;
  for (size_t at = file.find(kStartOfScan); at != file.npos; at = file.find(kStartOfScan, at + 2)) ++scans;
  return scans;
}

}  // namespace evenkeel::isolation
