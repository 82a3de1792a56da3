// The base of audio families whose encoders stand alone: clips at one rate become features by one function, and have no
// place in a text.
//
// Thread safety: as MediaFamily.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "preprocess/audio/audio.h"
#include "preprocess/families/config_file.h"
#include "preprocess/families/family.h"

namespace evenkeel::preprocess {

// The clips that an encoder takes.
struct EncodedClips {
  uint32_t rate = kSpeechRate;
  uint32_t least_samples = 1;  // of the shortest clip, at that rate
};

class SpeechEncoder : public MediaFamily {
 public:
  // `fields`: the features, and perhaps a mask.
  SpeechEncoder(std::vector<FieldSpec> fields, const Limits& limits, const EncodedClips& clips)
      : fields_(std::move(fields)), limits_(limits), clips_(clips) {}

  std::vector<MediumStyle> styles() const override { return {}; }
  const std::vector<FieldSpec>& fields(Medium) const override { return fields_; }
  absl::StatusOr<ItemLengths> Measure(const MediaFacts& facts) const override;
  absl::Status Produce(const ItemRequest& request,
                       std::span<const std::span<std::byte>> field_bytes) const override;
  absl::Status WriteFacts(const ItemRequest& request,
                          std::span<const std::span<std::byte>> field_bytes) const override;
  MediaFacts DummyFacts() const override;

 protected:
  // `samples`: at least least_samples.
  virtual ItemLengths LengthsOf(uint64_t samples) const = 0;
  // The first samples of a clip that its features are made of. Here: all.
  virtual uint64_t UsedSamples(uint64_t samples) const { return samples; }
  // False: a value is not finite.
  virtual bool Features(std::span<const float> samples, std::span<float> out) const = 0;
  // Of the second field, where there is one.
  virtual void WriteMask(uint64_t /*samples*/, std::span<int64_t> /*mask*/) const {}

 private:
  const std::vector<FieldSpec> fields_;
  const Limits limits_;
  const EncodedClips clips_;
};

// Keys of feature extractors that do not change what is made of one clip at `rate`.
void ReadCommonSpeechKeys(ConfigFile& config, uint32_t rate);

}  // namespace evenkeel::preprocess
