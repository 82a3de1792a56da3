// SigLIP 2 of any size (NaFlex): pictures keep about their shape, within a number of patches, which are rows of
// [patch, patch, 3] values; each is one output row.
//
// The rules are those of transformers' models/siglip2/image_processing_siglip2.py (4.57: ..._fast.py), without the padding
// to max_num_patches, where pixel_attention_mask would be 0.
#include "preprocess/families/siglip2.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/status.h"
#include "preprocess/families/families.h"
#include "preprocess/families/fixed_size.h"
#include "preprocess/families/interleaved_patches.h"

namespace evenkeel::preprocess {
namespace {

class Siglip2 final : public MediaFamily {
 public:
  Siglip2(const PixelSettings& pixels, uint32_t patch, uint32_t max_patches, const Limits& limits)
      : pixels_(pixels),
        patch_(patch),
        max_patches_(max_patches),
        limits_(limits),
        table_(pixels.Table()),
        fields_{InterleavedField("pixel_values", pixels, patch),
                {"spatial_shapes", DType::kI64, false, {2}, nullptr}} {}

  std::vector<MediumStyle> styles() const override { return {{.placeholder = "<image>"}}; }
  const std::vector<FieldSpec>& fields(Medium medium) const override {
    return medium == Medium::kImage ? fields_ : NoFields();
  }
  absl::StatusOr<ItemLengths> Measure(const MediaFacts& facts) const override {
    EVENKEEL_ASSIGN_OR_RETURN(const ImageSize size, SizeOf(facts));
    const uint32_t patches = size.width / patch_ * (size.height / patch_);
    return ItemLengths{patches, patches, patches};
  }
  absl::Status Produce(const ItemRequest& request,
                       std::span<const std::span<std::byte>> field_bytes) const override {
    EVENKEEL_RETURN_IF_ERROR(WriteFacts(request, field_bytes));
    EVENKEEL_ASSIGN_OR_RETURN(const ImageSize size, SizeOf(request.facts));
    EVENKEEL_ASSIGN_OR_RETURN(
        const PictureHeader header,
        ReadKnownPictureHeader(request.suffix, request.bytes, limits_, pixels_.picture, request.facts));
    InterleavedPatches writer(patch_, pixels_.wire, table_, field_bytes[0]);
    const PictureTarget target{.resized = size, .filter = pixels_.filter, .sink = &writer};
    return DecodePicture(request.suffix, request.bytes, limits_, pixels_.picture, header, {&target, 1});
  }
  absl::Status WriteFacts(const ItemRequest& request,
                          std::span<const std::span<std::byte>> field_bytes) const override {
    EVENKEEL_ASSIGN_OR_RETURN(const ImageSize size, SizeOf(request.facts));
    EVENKEEL_ASSIGN_OR_RETURN(const ItemLengths lengths, Measure(request.facts));
    if (lengths != request.planned) {
      return absl::DataLossError(absl::StrCat("got an item of ", lengths.input_rows,
                                              " patches, the plan has ", request.planned.input_rows));
    }
    EVENKEEL_RETURN_IF_ERROR(CheckFieldSizes(fields_, lengths, field_bytes));
    const int64_t shape[2] = {size.height / patch_, size.width / patch_};
    std::memcpy(field_bytes[1].data(), shape, sizeof(shape));
    return absl::OkStatus();
  }
  MediaFacts DummyFacts() const override {
    MediaFacts facts;
    facts.width = facts.height = patch_;
    return facts;
  }

 private:
  absl::StatusOr<ImageSize> SizeOf(const MediaFacts& facts) const {
    if (facts.medium != Medium::kImage) return absl::UnimplementedError("video of the family siglip2");
    const ImageSize picture = PictureSize(facts, pixels_.picture);
    if (picture.width == 0 || picture.height == 0) return absl::InvalidArgumentError("no pixels");
    return Siglip2Size(picture, patch_, max_patches_);
  }

  const PixelSettings pixels_;
  const uint32_t patch_, max_patches_;
  const Limits limits_;
  const std::vector<float> table_;
  const std::vector<FieldSpec> fields_;
};

}  // namespace

// The scale is found by halving an interval, in the original's doubles and with its bounds, since a side that is
// rounded up could otherwise differ by a patch.
ImageSize Siglip2Size(ImageSize picture, uint32_t patch, uint32_t max_patches) {
  constexpr double kEpsilon = 1e-5, kLargest = 100;
  const auto scaled = [patch](double scale, uint32_t side) {
    return std::max<double>(patch, std::ceil(side * scale / patch) * patch);
  };
  double least = kEpsilon / 10, most = kLargest;
  while (most - least >= kEpsilon) {
    const double scale = (least + most) / 2;
    const double patches = (scaled(scale, picture.height) / patch) * (scaled(scale, picture.width) / patch);
    (patches <= max_patches ? least : most) = scale;
  }
  return {static_cast<uint32_t>(scaled(least, picture.width)),
          static_cast<uint32_t>(scaled(least, picture.height))};
}

MadeFamily MakeSiglip2(ConfigFile config, const FamilySource& source) {
  EVENKEEL_RETURN_IF_ERROR(CheckEncoderClass(config, {"Siglip2Processor"}));
  // The class leaves the conversion to the caller, unless the file asks for it.
  if (!config.Has("do_convert_rgb")) config.Passed("do_convert_rgb", false);
  EVENKEEL_ASSIGN_OR_RETURN(const PixelSettings pixels, ReadPixelSettings(config, source.spec, kHalves,
                                                                          kHalves, ResizeFilter::kBilinear));
  const auto patch = static_cast<uint32_t>(config.Uint("patch_size", 16, 1, 256));
  const auto max_patches = static_cast<uint32_t>(config.Uint("max_num_patches", 256, 1, 1 << 16));
  config.NotNull({"patch_size", "max_num_patches"});
  config.Inert(
      {"size", "crop_size", "default_to_square", "do_center_crop", "do_pad"});  // the class uses none
  EVENKEEL_RETURN_IF_ERROR(config.Finish());
  EVENKEEL_RETURN_IF_ERROR(FinishOuter(source.checkpoint));
  if (!pixels.resized) return config.Error("do_resize", "only true is implemented");
  EVENKEEL_RETURN_IF_ERROR(CheckInterleaved(config, pixels));
  EVENKEEL_RETURN_IF_ERROR(CheckTile(pixels, {patch, patch}));
  return std::make_unique<Siglip2>(pixels, patch, max_patches, source.limits);
}

}  // namespace evenkeel::preprocess
