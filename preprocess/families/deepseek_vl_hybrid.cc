// DeepSeek-VL of two encoders: every picture in two resolutions. It is fitted into a large square, around which is the
// mean colour, and that square is resized to a small one; both together have a fixed number of tokens.
//
// The rules are those of transformers' models/deepseek_vl_hybrid/{image_processing,processing}_deepseek_vl_hybrid.py.
#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/status.h"
#include "preprocess/families/both_sinks.h"
#include "preprocess/families/families.h"
#include "preprocess/families/fixed_size.h"
#include "preprocess/families/janus.h"
#include "preprocess/families/patches.h"
#include "preprocess/families/planar_picture.h"

namespace evenkeel::preprocess {
namespace {

constexpr uint32_t kSmallSide = 384, kLargeSide = 1024;
constexpr char kHybridProcessor[] = "DeepseekVLHybridProcessor";

struct Resolution {
  PixelSettings pixels;
  uint32_t side = 0;

  ImageSize tile() const { return {side, side}; }
};

struct HybridSettings {
  Resolution small, large;
  uint32_t shortest = 14;  // no side is below it
  uint32_t patches = 0;    // of both encoders
  uint32_t tokens = 0;
};

class DeepseekVlHybrid final : public MediaFamily {
 public:
  DeepseekVlHybrid(HybridSettings settings, const Limits& limits)
      : settings_(std::move(settings)),
        limits_(limits),
        small_table_(settings_.small.pixels.Table()),
        large_table_(settings_.large.pixels.Table()),
        fields_{TileField("pixel_values", settings_.small.pixels, settings_.small.tile()),
                TileField("high_res_pixel_values", settings_.large.pixels, settings_.large.tile())} {}

  std::vector<MediumStyle> styles() const override { return {{.placeholder = kJanusPlaceholder}}; }
  const std::vector<FieldSpec>& fields(Medium medium) const override {
    return medium == Medium::kImage ? fields_ : NoFields();
  }
  absl::StatusOr<ItemLengths> Measure(const MediaFacts& facts) const override {
    if (facts.medium != Medium::kImage)
      return absl::UnimplementedError("video of the family deepseek_vl_hybrid");
    if (facts.width == 0 || facts.height == 0)
      return absl::InvalidArgumentError("image without pixels: its width or height is 0");
    return ItemLengths{settings_.patches, 1, settings_.tokens};
  }
  absl::Status Produce(const ItemRequest& request,
                       std::span<const std::span<std::byte>> field_bytes) const override;
  absl::Status WriteFacts(const ItemRequest& request,
                          std::span<const std::span<std::byte>> field_bytes) const override {
    EVENKEEL_ASSIGN_OR_RETURN(const ItemLengths lengths, Measure(request.facts));
    if (lengths != request.planned) return absl::DataLossError("got a picture of other lengths than planned");
    return CheckFieldSizes(fields_, lengths, field_bytes);
  }
  // Both fields have values of the picture.
  absl::Status FillInvalid(const ItemRequest& request,
                           std::span<const std::span<std::byte>> field_bytes) const override {
    EVENKEEL_RETURN_IF_ERROR(MediaFamily::FillInvalid(request, field_bytes));
    std::memset(field_bytes[1].data(), 0, field_bytes[1].size());
    return absl::OkStatus();
  }
  MediaFacts DummyFacts() const override {
    MediaFacts facts;
    facts.width = facts.height = settings_.small.side;
    return facts;
  }

 private:
  const HybridSettings settings_;
  const Limits limits_;
  const std::vector<float> small_table_, large_table_;
  std::vector<FieldSpec> fields_;
};

absl::Status DeepseekVlHybrid::Produce(const ItemRequest& request,
                                       std::span<const std::span<std::byte>> field_bytes) const {
  EVENKEEL_RETURN_IF_ERROR(WriteFacts(request, field_bytes));
  const Resolution &small = settings_.small, &large = settings_.large;
  const PictureOptions& options = large.pixels.picture;
  EVENKEEL_ASSIGN_OR_RETURN(
      const PictureHeader header,
      ReadKnownPictureHeader(request.suffix, request.bytes, limits_, options, request.facts));
  const auto writer = [](const Resolution& of, const std::vector<float>& table, std::span<std::byte> out) {
    return PatchWriter(TileShape(of.tile()), of.side, of.pixels.wire, 1, table, out);
  };
  PatchWriter to_small = writer(small, small_table_, field_bytes[0]);
  PatchWriter to_large = writer(large, large_table_, field_bytes[1]);
  static thread_local PlanarPicture square;
  square.Start(large.tile());
  BothSinks both(to_large, square);
  PictureTarget target{
      .resized = FittedSize(PictureSize(request.facts, options), large.side, settings_.shortest),
      .filter = large.pixels.filter,
      .window = large.tile(),
      .around = MeanColour(large.pixels),
      .sink = &both};
  target.left = -static_cast<int32_t>((large.side - target.resized.width) / 2);
  target.top = -static_cast<int32_t>((large.side - target.resized.height) / 2);
  EVENKEEL_RETURN_IF_ERROR(
      DecodePicture(request.suffix, request.bytes, limits_, options, header, {&target, 1}));
  square.ResizeTo(small.tile(), small.pixels, to_small);
  return absl::OkStatus();
}

// The encoders' patches of both squares, from the model's config.json.
absl::StatusOr<uint32_t> PatchesOf(const ConfigFile& config, const FamilySource& source,
                                   const HybridSettings& settings) {
  EVENKEEL_ASSIGN_OR_RETURN(ConfigFile model, ConfigFile::ReadModel(source.checkpoint));
  const uint32_t small = VisionPatchSize(model, 16);
  const auto large = static_cast<uint32_t>(model.UintIn("high_res_vision_config", "patch_size", 16, 1, 256));
  EVENKEEL_RETURN_IF_ERROR(model.Finish());
  EVENKEEL_ASSIGN_OR_RETURN(const uint32_t of_small,
                            WholePatches(config, "size", settings.small.tile(), small));
  EVENKEEL_ASSIGN_OR_RETURN(const uint32_t of_large,
                            WholePatches(config, "high_res_size", settings.large.tile(), large));
  return of_small + of_large;
}

}  // namespace

MadeFamily MakeDeepseekVlHybrid(ConfigFile config, const FamilySource& source) {
  HybridSettings settings;
  const std::string of = config.Text("processor_class", kHybridProcessor);
  // The class leaves the conversion to the caller, unless the file asks for it.
  if (!config.Has("do_convert_rgb")) config.Passed("do_convert_rgb", false);
  PixelSettings &small = settings.small.pixels, &large = settings.large.pixels;
  EVENKEEL_ASSIGN_OR_RETURN(small, ReadPixelSettings(config, source.spec, kClipMean, kClipStd));
  EVENKEEL_ASSIGN_OR_RETURN(
      large, ReadFurtherPixels(config, "high_res_", small, kClipMean, kClipStd, ResizeFilter::kBicubic));
  // Pillow's class takes the number 0, which is the nearest filter, for none given.
  const bool of_torch = small.picture.resampler == Resampler::kAtenU8;
  if (!of_torch && large.filter == ResizeFilter::kNearest) large.filter = small.filter;
  const auto sides = [&config](const char* key, uint32_t usual) {
    return ReadSideSizes(config, key, NumberIs::kSquare, {.height = usual, .width = usual});
  };
  const SideSizes size = sides("size", kSmallSide), high = sides("high_res_size", kLargeSide);
  settings.shortest = static_cast<uint32_t>(config.Uint("min_size", settings.shortest, 1, 1 << 14));
  config.Pin("do_resize", true);
  config.Pin("do_pad", true);
  config.Pin("do_center_crop", false);
  config.NotNull({"size", "high_res_size", "min_size", "do_pad"});
  // The class takes the colours from the means.
  config.Inert({"crop_size", "background_color", "high_res_background_color"});
  EVENKEEL_RETURN_IF_ERROR(config.Finish());
  EVENKEEL_RETURN_IF_ERROR(config.CheckProcessorClass(of, {kHybridProcessor}));
  EVENKEEL_ASSIGN_OR_RETURN(settings.small.side, SquareSide(config, "size", size));
  EVENKEEL_ASSIGN_OR_RETURN(settings.large.side, SquareSide(config, "high_res_size", high));
  if (settings.shortest > std::min(settings.small.side, settings.large.side)) {
    return config.Error("min_size", absl::StrCat("is ", settings.shortest, ", above the side of a result"));
  }
  EVENKEEL_RETURN_IF_ERROR(CheckTile(small, settings.small.tile()));
  EVENKEEL_RETURN_IF_ERROR(CheckTile(large, settings.large.tile()));
  EVENKEEL_ASSIGN_OR_RETURN(settings.patches, PatchesOf(config, source, settings));
  EVENKEEL_ASSIGN_OR_RETURN(settings.tokens, ReadJanusTokens(source));
  return std::make_unique<DeepseekVlHybrid>(std::move(settings), source.limits);
}

}  // namespace evenkeel::preprocess
