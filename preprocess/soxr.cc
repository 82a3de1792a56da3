// Resampling through soxr, at the quality that librosa and most loaders use. The only file that includes it.
#include <soxr.h>

#include <algorithm>
#include <array>
#include <memory>

#include "absl/strings/str_cat.h"
#include "preprocess/audio.h"

namespace evenkeel {
namespace {

struct ResamplerFree {
  void operator()(soxr_t resampler) const { soxr_delete(resampler); }
};
using ResamplerPtr = std::unique_ptr<soxr, ResamplerFree>;

// Rates whose results were compared between sets of CPU features (tests/preprocess/audio_test.cc).
constexpr std::array<uint32_t, 14> kTestedRates = {8000,  11025, 12000, 16000, 22050, 24000, 32000,
                                                   37800, 44056, 44100, 48000, 88200, 96000, 192000};

}  // namespace

bool IsTestedRate(uint32_t rate) {
  return std::find(kTestedRates.begin(), kTestedRates.end(), rate) != kTestedRates.end();
}

absl::StatusOr<std::vector<float>> ResampleToSpeech(std::span<const float> in, uint32_t rate,
                                                    uint64_t num_out) {
  if (!IsTestedRate(rate)) return absl::UnimplementedError(absl::StrCat("resampling from ", rate, " Hz"));
  std::vector<float> out(num_out);
  if (rate == kSpeechRate) {
    std::copy_n(in.begin(), std::min<uint64_t>(in.size(), num_out), out.begin());
    return out;
  }
  soxr_error_t error = nullptr;
  soxr_io_spec_t io = soxr_io_spec(SOXR_FLOAT32_I, SOXR_FLOAT32_I);
  soxr_quality_spec_t quality = soxr_quality_spec(SOXR_HQ, 0);
  soxr_runtime_spec_t runtime = soxr_runtime_spec(/*num_threads=*/1);
  ResamplerPtr resampler(soxr_create(rate, kSpeechRate, 1, &error, &io, &quality, &runtime));
  if (resampler == nullptr || error != nullptr) {
    return absl::InternalError(absl::StrCat("soxr: ", error == nullptr ? "no memory" : error));
  }
  size_t done = 0;
  error = soxr_process(resampler.get(), in.data(), in.size(), nullptr, out.data(), out.size(), &done);
  if (error != nullptr) return absl::InternalError(absl::StrCat("soxr: ", error));
  while (done < out.size()) {  // flush
    size_t more = 0;
    error = soxr_process(resampler.get(), nullptr, 0, nullptr, out.data() + done, out.size() - done, &more);
    if (error != nullptr) return absl::InternalError(absl::StrCat("soxr: ", error));
    if (more == 0) break;
    done += more;
  }
  return out;
}

}  // namespace evenkeel
