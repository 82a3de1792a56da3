// Resamples through soxr at the quality that librosa and most loaders use. The only file that includes it.
#include <soxr.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "preprocess/audio/audio.h"

namespace evenkeel::preprocess {
namespace {

// The range in which results were compared between CPUs and with librosa's. It covers telephones and studios;
// a rate outside it is a wrong header.
constexpr uint32_t kMinRate = 4000, kMaxRate = 384000;

}  // namespace

bool CanResample(uint32_t rate) { return rate >= kMinRate && rate <= kMaxRate; }

void SpeechResampler::Free::operator()(soxr* resampler) const { soxr_delete(resampler); }

absl::StatusOr<SpeechResampler> SpeechResampler::Start(uint32_t rate, std::span<float> out, uint32_t to) {
  if (!CanResample(rate)) return absl::UnimplementedError(absl::StrCat("resampling from ", rate, " Hz"));
  SpeechResampler resampler;
  resampler.out_ = out;
  if (rate == to) return resampler;
  // HQ is librosa's "soxr_hq": a filter of linear phase, accurate to 20 bits.
  soxr_error_t error = nullptr;
  soxr_io_spec_t io = soxr_io_spec(SOXR_FLOAT32_I, SOXR_FLOAT32_I);
  soxr_quality_spec_t quality = soxr_quality_spec(SOXR_HQ, 0);
  soxr_runtime_spec_t runtime = soxr_runtime_spec(/*num_threads=*/1);
  resampler.soxr_.reset(soxr_create(rate, to, 1, &error, &io, &quality, &runtime));
  if (resampler.soxr_ == nullptr || error != nullptr) {
    return absl::InternalError(absl::StrCat("soxr: ", error == nullptr ? "no memory" : error));
  }
  return resampler;
}

absl::Status SpeechResampler::Feed(std::span<const float> in) {
  size_t done = 0;
  if (in.empty() || out_.empty()) return absl::OkStatus();
  if (soxr_ == nullptr) {
    done = std::min(in.size(), out_.size());
    std::copy_n(in.begin(), done, out_.begin());
  } else {
    soxr_error_t error =
        soxr_process(soxr_.get(), in.data(), in.size(), nullptr, out_.data(), out_.size(), &done);
    if (error != nullptr) return absl::InternalError(absl::StrCat("soxr: ", error));
  }
  out_ = out_.subspan(done);
  return absl::OkStatus();
}

// The filter delays its output, so the last samples only come once the input has ended. What is still missing
// after that is filled with zeros: the plan has the number of samples.
absl::Status SpeechResampler::Finish() {
  while (soxr_ != nullptr && !out_.empty()) {  // flush the filter
    size_t more = 0;
    soxr_error_t error = soxr_process(soxr_.get(), nullptr, 0, nullptr, out_.data(), out_.size(), &more);
    if (error != nullptr) return absl::InternalError(absl::StrCat("soxr: ", error));
    if (more == 0) break;
    out_ = out_.subspan(more);
  }
  std::fill(out_.begin(), out_.end(), 0.0f);
  return absl::OkStatus();
}

}  // namespace evenkeel::preprocess
