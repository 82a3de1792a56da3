// The examples of preprocess/.
#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "core/job.h"
#include "core/job_where.h"
#include "core/status.h"
#include "preprocess/audio/audio.h"
#include "preprocess/audio/audio_mpeg.h"
#include "preprocess/audio/frame_powers.h"
#include "preprocess/audio/kaldi_features.h"
#include "preprocess/audio/mel_spectrum.h"
#include "preprocess/families/config_file.h"
#include "preprocess/families/consumed_keys.h"
#include "preprocess/families/patches.h"
#include "preprocess/families/tile_grid.h"
#include "preprocess/ffmpeg.h"
#include "preprocess/image/heif_boxes.h"
#include "preprocess/image/heif_colours.h"
#include "preprocess/image/image.h"
#include "preprocess/image/picture.h"
#include "preprocess/image/turned_picture.h"
#include "preprocess/image/ycc_bands.h"
#include "preprocess/job_words.h"
#include "preprocess/processor.h"
#include "preprocess/resize/float_resizer.h"
#include "preprocess/resize/interpolator.h"
#include "preprocess/resize/row_resizer.h"
#include "preprocess/text/known_templates.h"
#include "preprocess/text/sequence_builder.h"
#include "preprocess/text/tokenizer.h"
#include "preprocess/video/frame_rules.h"

namespace evenkeel::preprocess {

using Bytes = std::span<const std::byte>;

absl::Status Resample(std::span<float> out, const std::vector<std::span<const float>>& blocks) {
#include "examples/preprocess/audio/audio.h.inc"
  return absl::OkStatus();
}

absl::Status DecodeMp3(std::span<const uint8_t> packet) {
#include "examples/preprocess/audio/audio_mpeg.h.inc"
  return absl::OkStatus();
}

absl::Status KaldiClip(std::span<const float> clip) {
#include "examples/preprocess/audio/kaldi_features.h.inc"
  return absl::OkStatus();
}

void PowersOfClip(const MelSpectrum& spectrum, std::span<const float> clip, std::span<const double> hann,
                  std::span<float> features) {
#include "examples/preprocess/audio/frame_powers.h.inc"
}

void PowersOfFrames(std::span<const FramePair> two_windowed_frames){
#include "examples/preprocess/audio/mel_spectrum.h.inc"
}

absl::Status Words(const Job& job) {
#include "examples/preprocess/job_words.h.inc"
  return absl::OkStatus();
}

absl::Status ReadConfig(const std::string& folder, CanonicalText& text) {
#include "examples/preprocess/families/config_file.h.inc"
  return absl::OkStatus();
}

void ChooseGrid() {
#include "examples/preprocess/families/tile_grid.h.inc"
}

void WriteConsumedKeys(){
#include "examples/preprocess/families/consumed_keys.h.inc"
}

absl::Status OpenMedium(Bytes bytes, const Limits& limits) {
#include "examples/preprocess/ffmpeg.h.inc"
  return absl::OkStatus();
}

absl::Status CollectCoded(Bytes bytes, void (*Append)(std::span<const Bytes>, std::vector<std::byte>*)) {
  std::vector<std::byte> coded;
#include "examples/preprocess/image/heif_boxes.h.inc"
  return absl::OkStatus();
}

absl::Status ConvertRows(const CodedPlanes& planes, uint8_t* rgba) {
#include "examples/preprocess/image/heif_colours.h.inc"
  return absl::OkStatus();
}

absl::Status DecodeJpeg(Bytes bytes, const Limits& limits) {
#include "examples/preprocess/image/image.h.inc"
  return absl::OkStatus();
}

absl::Status WritePatches(std::string_view suffix, Bytes bytes, const Limits& limits,
                          const PictureOptions& options, const PatchShape& shape, ImageSize resized,
                          Wire wire, uint32_t frames_on_wire, const std::vector<float>& table,
                          std::span<std::byte> pixels) {
#include "examples/preprocess/image/picture.h.inc"
  return absl::OkStatus();
}

void Turn(TurnedPicture& turned, ImageSize size, std::span<const PixelBand> bands, uint32_t orientation,
          BandSink& sink) {
#include "examples/preprocess/image/turned_picture.h.inc"
}

void DecodeBands(YccBands& bands, const YccShape& shape, BandSink& sink, bool (*rows_are_left)(),
                 void (*Decode)(uint8_t**, uint8_t**, uint8_t**)){
#include "examples/preprocess/image/ycc_bands.h.inc"
}

absl::Status ProduceItem(const Job& job, Bytes bytes, std::span<const std::span<std::byte>> field_bytes) {
#include "examples/preprocess/processor.h.inc"
  return absl::OkStatus();
}

void ResizeFloats(ImageSize size, const std::array<float, 256>& table, std::span<float> values) {
#include "examples/preprocess/resize/float_resizer.h.inc"
}

void Interpolate(ImageSize size, std::span<const float> table, std::span<float> values) {
#include "examples/preprocess/resize/interpolator.h.inc"
}

void Resize(RowSink& sink, std::span<const PixelBand> bands){
#include "examples/preprocess/resize/row_resizer.h.inc"
}

std::string WriteChat(std::string_view source, const Tokenizer& tokenizer, const Conversation& conversation,
                      uint64_t max_text_bytes) {
#include "examples/preprocess/text/known_templates.h.inc"
  return std::string();
}

absl::Status Write(const Job& job, const MediaFamily* family, const Conversation& conversation,
                   std::span<const SampleItem> items, std::span<const ItemPlaceholders> placeholders) {
#include "examples/preprocess/text/sequence_builder.h.inc"
  return absl::OkStatus();
}

absl::Status Tokenize(const std::string& folder) {
#include "examples/preprocess/text/tokenizer.h.inc"
  return absl::OkStatus();
}

absl::Status Choose(const MediaFacts& facts, std::vector<uint32_t>& chosen) {
#include "examples/preprocess/video/frame_rules.h.inc"
  return absl::OkStatus();
}

}  // namespace evenkeel::preprocess
