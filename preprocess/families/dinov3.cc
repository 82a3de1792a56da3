// DINOv3: every picture is scaled to floats first, then resized to one size, whatever its shape, then normalised.
//
// The rules are those of transformers' models/dinov3_vit/image_processing_dinov3_vit.py (4.57: ..._fast.py), which has
// them for torchvision alone. The values are not those of any byte, so they travel as f32 also where the job's wire form
// is u8.
#include <array>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/status.h"
#include "preprocess/families/families.h"
#include "preprocess/families/patches.h"
#include "preprocess/families/pixel_settings.h"
#include "preprocess/resize/float_resizer.h"

namespace evenkeel::preprocess {
namespace {

constexpr std::array<double, 3> kImageNetMean = {0.485, 0.456, 0.406};
constexpr std::array<double, 3> kImageNetStd = {0.229, 0.224, 0.225};
constexpr uint32_t kSide = 224;
constexpr uint32_t kPatch = 16;

class Dinov3 final : public MediaFamily {
 public:
  Dinov3(const PixelSettings& pixels, ImageSize size, uint32_t patch, const Limits& limits)
      : pixels_(pixels),
        size_(size),
        patch_(patch),
        limits_(limits),
        fields_{TileField("pixel_values", pixels, size)} {
    for (size_t byte = 0; byte < table_.size(); ++byte) {
      table_[byte] = static_cast<float>(byte) * static_cast<float>(pixels.rescale);
    }
  }

  std::vector<MediumStyle> styles() const override { return {{.placeholder = "<image>"}}; }
  const std::vector<FieldSpec>& fields(Medium medium) const override {
    return medium == Medium::kImage ? fields_ : NoFields();
  }

  absl::StatusOr<ItemLengths> Measure(const MediaFacts& facts) const override {
    if (facts.medium != Medium::kImage) return absl::UnimplementedError("video of the family dinov3");
    if (facts.width == 0 || facts.height == 0) return absl::InvalidArgumentError("no pixels");
    const uint32_t patches = size_.width / patch_ * (size_.height / patch_);
    return ItemLengths{patches, 1, patches};
  }

  absl::Status Produce(const ItemRequest& request,
                       std::span<const std::span<std::byte>> field_bytes) const override {
    EVENKEEL_RETURN_IF_ERROR(WriteFacts(request, field_bytes));
    EVENKEEL_ASSIGN_OR_RETURN(
        const PictureHeader header,
        ReadKnownPictureHeader(request.suffix, request.bytes, limits_, pixels_.picture, request.facts));
    static thread_local FloatResizer resizer;
    static thread_local std::vector<float> values;
    values.resize(size_.rgb_bytes());
    resizer.Start({.in = header.size, .out = size_}, table_, values);
    const PictureTarget whole{.resized = header.size, .filter = pixels_.filter, .sink = &resizer};
    EVENKEEL_RETURN_IF_ERROR(
        DecodePicture(request.suffix, request.bytes, limits_, pixels_.picture, header, {&whole, 1}));
    if (pixels_.normalized) Normalise(values);
    WriteFloats(values, fields_.front().dtype, field_bytes[0]);
    return absl::OkStatus();
  }

  absl::Status WriteFacts(const ItemRequest& request,
                          std::span<const std::span<std::byte>> field_bytes) const override {
    EVENKEEL_ASSIGN_OR_RETURN(const ItemLengths lengths, Measure(request.facts));
    if (lengths != request.planned) {
      return absl::DataLossError(absl::StrCat("got an item of ", lengths.output_rows, " rows, the plan has ",
                                              request.planned.output_rows));
    }
    return CheckFieldSizes(fields_, lengths, field_bytes);
  }

  MediaFacts DummyFacts() const override { return {.width = size_.width, .height = size_.height}; }

 private:
  void Normalise(std::vector<float>& values) const {
    const size_t plane = values.size() / 3;
    for (size_t c = 0; c < 3; ++c) {
      const auto mean = static_cast<float>(pixels_.mean[c]), std = static_cast<float>(pixels_.std[c]);
      for (size_t i = c * plane; i < (c + 1) * plane; ++i) values[i] = (values[i] - mean) / std;
    }
  }

  const PixelSettings pixels_;  // whose wire form is not u8
  const ImageSize size_;
  const uint32_t patch_;
  const Limits limits_;
  const std::vector<FieldSpec> fields_;
  std::array<float, 256> table_;
};

}  // namespace

MadeFamily MakeDinov3(ConfigFile config, const FamilySource& source) {
  EVENKEEL_ASSIGN_OR_RETURN(PixelSettings pixels, ReadPixelSettings(config, source.spec, kImageNetMean,
                                                                    kImageNetStd, ResizeFilter::kBilinear));
  const SideSizes size = ReadSideSizes(config, "size", NumberIs::kSquare, {.height = kSide, .width = kSide});
  for (const char* key : {"do_resize", "do_rescale"}) config.Pin(key, true);
  for (const char* key : {"do_center_crop", "do_pad"}) config.Pin(key, false);
  config.NotNull({"size"});
  config.Inert({"crop_size"});
  EVENKEEL_RETURN_IF_ERROR(config.Finish());
  EVENKEEL_RETURN_IF_ERROR(FinishOuter(source.checkpoint));
  if (pixels.filter != ResizeFilter::kBilinear) return config.Error("resample", "is not bilinear");
  if (!size.fixed()) return config.Error("size", "is not {height, width}");
  EVENKEEL_ASSIGN_OR_RETURN(const uint32_t patch, VisionPatchSize(source.checkpoint, kPatch));
  EVENKEEL_RETURN_IF_ERROR(WholePatches(config, "size", {size.width, size.height}, patch).status());
  if (pixels.wire == Wire::kU8) pixels.wire = Wire::kF32;
  return std::make_unique<Dinov3>(pixels, ImageSize{size.width, size.height}, patch, source.limits);
}

}  // namespace evenkeel::preprocess
