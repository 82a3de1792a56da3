#include "preprocess/qwen2_vl.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/status.h"
#include "preprocess/config_file.h"
#include "preprocess/families.h"
#include "preprocess/frame_rules.h"
#include "preprocess/image.h"
#include "preprocess/patches.h"
#include "preprocess/video.h"

namespace evenkeel {
namespace {

constexpr double kMaxAspectRatio = 200;
constexpr uint32_t kFrameFactor = 2;
constexpr double kVideoTotalPixels = 90316800;  // int(128000 * 28 * 28 * 0.9)

double RoundTo(double value, double factor) { return std::nearbyint(value / factor) * factor; }
double FloorTo(double value, double factor) { return std::floor(value / factor) * factor; }
double CeilTo(double value, double factor) { return std::ceil(value / factor) * factor; }

}  // namespace

absl::StatusOr<ImageSize> SmartResize(uint32_t height, uint32_t width, uint32_t factor, double min_pixels,
                                      double max_pixels, bool at_least_factor) {
  if (height == 0 || width == 0) return absl::InvalidArgumentError("no pixels");
  if (static_cast<double>(std::max(height, width)) / std::min(height, width) > kMaxAspectRatio) {
    return absl::InvalidArgumentError(
        absl::StrCat("aspect ratio of ", width, "x", height, " is above 200, which the processor refuses"));
  }
  const double f = factor;
  const double area = static_cast<double>(height) * width;
  double h = RoundTo(height, f);
  double w = RoundTo(width, f);
  if (at_least_factor) {
    h = std::max(f, h);
    w = std::max(f, w);
  }
  if (h * w > max_pixels) {
    double shrink = std::sqrt(area / max_pixels);
    h = std::max(f, FloorTo(height / shrink, f));
    w = std::max(f, FloorTo(width / shrink, f));
  } else if (h * w < min_pixels) {
    double grow = std::sqrt(min_pixels / area);
    h = CeilTo(height * grow, f);
    w = CeilTo(width * grow, f);
  }
  if (h < 1 || w < 1 || h > 65536 || w > 65536) {
    return absl::InvalidArgumentError(absl::StrCat(width, "x", height, " pixels become ", w, "x", h));
  }
  return ImageSize{static_cast<uint32_t>(w), static_cast<uint32_t>(h)};
}

namespace {

struct Settings {
  PatchShape shape;
  uint64_t min_pixels = 0;
  uint64_t max_pixels = 0;
  double rescale = 0;
  std::array<double, 3> mean{};
  std::array<double, 3> std{};
  std::string processor_class;
  bool video = false;
  uint32_t tokens_per_second = 0;
  FrameChoice frames;
  uint64_t video_min_pixels = 0;
  uint64_t video_max_pixels = 0;
  Wire wire = Wire::kU8;
};

// What an item becomes.
struct ItemShape {
  ImageSize size;           // after the resize
  uint32_t num_frames = 1;  // chosen
  double video_fps = 0;
  VisionGrid grid;
};

class Qwen2Vl final : public MediaFamily {
 public:
  Qwen2Vl(Settings settings, const Limits& limits);

  std::vector<MediumStyle> styles() const override;
  uint32_t merge_size() const override { return settings_.shape.merge; }
  uint32_t tokens_per_second() const override { return settings_.tokens_per_second; }
  absl::StatusOr<std::vector<PlaceholderRun>> Placeholders(const MediaFacts& facts) const override {
    EVENKEEL_ASSIGN_OR_RETURN(ItemShape shape, ShapeOf(facts));
    EVENKEEL_ASSIGN_OR_RETURN(ItemLengths lengths, LengthsOf(shape.grid));
    return std::vector<PlaceholderRun>{{.rows = lengths.output_rows, .grid = shape.grid}};
  }
  const std::vector<FieldSpec>& fields(Medium medium) const override {
    return medium == Medium::kImage ? image_fields_ : video_fields_;
  }
  absl::StatusOr<ItemLengths> Measure(const MediaFacts& facts) const override {
    EVENKEEL_ASSIGN_OR_RETURN(ItemShape shape, ShapeOf(facts));
    return LengthsOf(shape.grid);
  }
  absl::Status Produce(const ItemRequest& request,
                       std::span<const std::span<std::byte>> field_bytes) const override;
  absl::Status FillInvalid(const ItemRequest& request,
                           std::span<const std::span<std::byte>> field_bytes) const override;
  MediaFacts DummyFacts() const override {
    MediaFacts facts;
    facts.width = facts.height = factor();
    return facts;
  }
  void AddTo(CanonicalText& text) const override;

 private:
  uint32_t factor() const { return settings_.shape.patch * settings_.shape.merge; }
  uint32_t frames_on_wire(Medium medium) const {
    return settings_.wire == Wire::kU8 && medium == Medium::kImage ? 1 : settings_.shape.frames;
  }
  FieldSpec PixelField(std::string name, Medium medium) const;
  absl::StatusOr<ItemShape> ShapeOf(const MediaFacts& facts) const;
  absl::StatusOr<ItemLengths> LengthsOf(const VisionGrid& grid) const;
  // Checks the planned lengths and the spans, writes everything but the pixels.
  absl::StatusOr<ItemShape> Prepare(const ItemRequest& request,
                                    std::span<const std::span<std::byte>> field_bytes) const;
  absl::Status ProduceImage(const ItemRequest& request, const ItemShape& shape,
                            std::span<std::byte> pixels) const;
  absl::Status ProduceVideo(const ItemRequest& request, const ItemShape& shape,
                            std::span<std::byte> pixels) const;

  Settings settings_;
  Limits limits_;
  std::vector<float> table_;
  std::vector<FieldSpec> image_fields_;
  std::vector<FieldSpec> video_fields_;
};

Qwen2Vl::Qwen2Vl(Settings settings, const Limits& limits)
    : settings_(std::move(settings)),
      limits_(limits),
      table_(NormalizationTable(settings_.rescale, settings_.mean, settings_.std)) {
  FieldSpec grid{"image_grid_thw", DType::kI64, false, {3}, nullptr};
  image_fields_ = {PixelField("pixel_values", Medium::kImage), grid};
  if (!settings_.video) return;
  grid.name = "video_grid_thw";
  video_fields_ = {PixelField("pixel_values_videos", Medium::kVideo), grid,
                   FieldSpec{"second_per_grid_ts", DType::kF32, false, {}, nullptr}};
}

FieldSpec Qwen2Vl::PixelField(std::string name, Medium medium) const {
  const PatchShape& shape = settings_.shape;
  FieldSpec field;
  field.name = std::move(name);
  field.per_row = true;
  field.trailing = {uint64_t{3} * frames_on_wire(medium) * shape.patch * shape.patch};
  field.dtype = settings_.wire == Wire::kU8     ? DType::kU8
                : settings_.wire == Wire::kBf16 ? DType::kBf16
                                                : DType::kF32;
  if (settings_.wire == Wire::kU8) {
    field.expansion = std::make_shared<const PixelExpansion>(
        PixelExpansion{3, shape.frames, frames_on_wire(medium), shape.patch, table_});
  }
  return field;
}

std::vector<MediumStyle> Qwen2Vl::styles() const {
  std::vector<MediumStyle> styles = {
      {Medium::kImage, "<|vision_start|>", "<|image_pad|>", "<|vision_end|>", /*mrope=*/true}};
  if (settings_.video) {
    styles.push_back({Medium::kVideo, "<|vision_start|>", "<|video_pad|>", "<|vision_end|>", /*mrope=*/true});
  }
  return styles;
}

absl::StatusOr<ItemShape> Qwen2Vl::ShapeOf(const MediaFacts& facts) const {
  ItemShape shape;
  const uint32_t patch = settings_.shape.patch;
  if (facts.medium == Medium::kImage) {
    EVENKEEL_ASSIGN_OR_RETURN(shape.size,
                              SmartResize(facts.height, facts.width, factor(), settings_.min_pixels,
                                          settings_.max_pixels, /*at_least_factor=*/false));
    shape.grid = {1, shape.size.height / patch, shape.size.width / patch, 0};
    return shape;
  }
  if (facts.medium != Medium::kVideo || !settings_.video) {
    return absl::UnimplementedError(absl::StrCat("video of the processor ", settings_.processor_class));
  }
  EVENKEEL_ASSIGN_OR_RETURN(shape.num_frames, NumChosenFrames(settings_.frames, facts));
  shape.video_fps = static_cast<double>(facts.fps_num) / facts.fps_den;
  double max_pixels = std::min(static_cast<double>(settings_.video_max_pixels),
                               kVideoTotalPixels / shape.num_frames * kFrameFactor);
  max_pixels = std::max(max_pixels, std::floor(static_cast<double>(settings_.video_min_pixels) * 1.05));
  EVENKEEL_ASSIGN_OR_RETURN(
      shape.size, SmartResize(facts.height, facts.width, factor(), settings_.video_min_pixels, max_pixels,
                              /*at_least_factor=*/true));
  const uint32_t frames = settings_.shape.frames;
  double sampled_fps = shape.num_frames / static_cast<double>(facts.num_frames) * shape.video_fps;
  shape.grid = {(shape.num_frames + frames - 1) / frames, shape.size.height / patch, shape.size.width / patch,
                static_cast<float>(frames / sampled_fps)};
  return shape;
}

absl::StatusOr<ItemLengths> Qwen2Vl::LengthsOf(const VisionGrid& grid) const {
  uint64_t rows = uint64_t{grid.t} * grid.h * grid.w;
  if (rows > std::numeric_limits<uint32_t>::max()) {
    return absl::InvalidArgumentError(absl::StrCat("item of ", rows, " patches"));
  }
  auto patches = static_cast<uint32_t>(rows);
  return ItemLengths{patches, patches, patches / (settings_.shape.merge * settings_.shape.merge)};
}

absl::StatusOr<ItemShape> Qwen2Vl::Prepare(const ItemRequest& request,
                                           std::span<const std::span<std::byte>> field_bytes) const {
  EVENKEEL_ASSIGN_OR_RETURN(ItemShape shape, ShapeOf(request.facts));
  EVENKEEL_ASSIGN_OR_RETURN(ItemLengths lengths, LengthsOf(shape.grid));
  if (lengths != request.planned) {
    return absl::DataLossError(absl::StrCat("item of ", lengths.input_rows, " patches where the plan says ",
                                            request.planned.input_rows));
  }
  EVENKEEL_RETURN_IF_ERROR(CheckFieldSizes(fields(request.medium), lengths, field_bytes));
  const int64_t grid[3] = {shape.grid.t, shape.grid.h, shape.grid.w};
  std::memcpy(field_bytes[1].data(), grid, sizeof(grid));
  if (request.medium == Medium::kVideo) {
    std::memcpy(field_bytes[2].data(), &shape.grid.second_per_grid, sizeof(float));
  }
  return shape;
}

absl::Status Qwen2Vl::ProduceImage(const ItemRequest& request, const ItemShape& shape,
                                   std::span<std::byte> pixels) const {
  EVENKEEL_ASSIGN_OR_RETURN(ImageHeader header, ReadImageHeader(request.suffix, request.bytes, limits_));
  if (header.width != request.facts.width || header.height != request.facts.height) {
    return absl::DataLossError(absl::StrCat("image of ", header.width, "x", header.height,
                                            " pixels where the index says ", request.facts.width, "x",
                                            request.facts.height));
  }
  auto decoded = std::make_unique_for_overwrite<uint8_t[]>(header.rgb_bytes());
  std::span<uint8_t> rgb(decoded.get(), header.rgb_bytes());
  EVENKEEL_RETURN_IF_ERROR(DecodeImage(request.suffix, request.bytes, limits_, header, rgb));
  auto resized = std::make_unique_for_overwrite<uint8_t[]>(shape.size.rgb_bytes());
  ResizePil(rgb, {header.width, header.height}, ResizeFilter::kBicubic,
            {resized.get(), shape.size.rgb_bytes()}, shape.size);
  std::vector<const uint8_t*> frames(settings_.shape.frames, resized.get());
  WritePatches(settings_.shape, frames, shape.size.width, shape.size.height, settings_.wire,
               frames_on_wire(Medium::kImage), table_, pixels);
  return absl::OkStatus();
}

absl::Status Qwen2Vl::ProduceVideo(const ItemRequest& request, const ItemShape& shape,
                                   std::span<std::byte> pixels) const {
  const uint32_t group_frames = settings_.shape.frames;
  const size_t frame_bytes = shape.size.rgb_bytes();
  const size_t group_bytes = pixels.size() / shape.grid.t;
  auto resized = std::make_unique_for_overwrite<uint8_t[]>(frame_bytes * group_frames);
  std::vector<const uint8_t*> frames;
  for (uint32_t i = 0; i < group_frames; ++i) frames.push_back(resized.get() + frame_bytes * i);
  const ImageSize native{request.facts.width, request.facts.height};
  auto sink = [&](size_t position, std::span<const uint8_t> rgb) {
    size_t in_group = position % group_frames;
    ResizePil(rgb, native, ResizeFilter::kBicubic, {resized.get() + frame_bytes * in_group, frame_bytes},
              shape.size);
    bool last = position + 1 == shape.num_frames;
    for (size_t i = in_group + 1; last && i < group_frames;
         ++i) {  // an incomplete group repeats its last frame
      std::memcpy(resized.get() + frame_bytes * i, frames[in_group], frame_bytes);
    }
    if (!last && in_group + 1 < group_frames) return absl::OkStatus();
    WritePatches(settings_.shape, frames, shape.size.width, shape.size.height, settings_.wire, group_frames,
                 table_, pixels.subspan(group_bytes * (position / group_frames), group_bytes));
    return absl::OkStatus();
  };
  std::vector<uint32_t> chosen =
      ChosenFrames(settings_.frames, request.facts, shape.num_frames, /*times=*/{});
  uint64_t repeated = 0;
  EVENKEEL_RETURN_IF_ERROR(
      DecodeVideo(request.suffix, request.bytes, limits_, request.facts, chosen, sink, &repeated));
  if (request.notes != nullptr) request.notes->frames_repeated += repeated;
  return absl::OkStatus();
}

absl::Status Qwen2Vl::Produce(const ItemRequest& request,
                              std::span<const std::span<std::byte>> field_bytes) const {
  EVENKEEL_ASSIGN_OR_RETURN(ItemShape shape, Prepare(request, field_bytes));
  if (request.medium == Medium::kVideo) return ProduceVideo(request, shape, field_bytes[0]);
  return ProduceImage(request, shape, field_bytes[0]);
}

absl::Status Qwen2Vl::FillInvalid(const ItemRequest& request,
                                  std::span<const std::span<std::byte>> field_bytes) const {
  EVENKEEL_RETURN_IF_ERROR(Prepare(request, field_bytes).status());
  std::memset(field_bytes[0].data(), 0, field_bytes[0].size());
  return absl::OkStatus();
}

void Qwen2Vl::AddTo(CanonicalText& text) const {
  text.Add("vision.family", std::string_view("qwen2_vl"));
  text.Add("vision.processor_class", settings_.processor_class);
  text.Add("vision.resampler", std::string_view("pil"));
  text.Add("vision.patch_size", uint64_t{settings_.shape.patch});
  text.Add("vision.temporal_patch_size", uint64_t{settings_.shape.frames});
  text.Add("vision.merge_size", uint64_t{settings_.shape.merge});
  text.Add("vision.min_pixels", settings_.min_pixels);
  text.Add("vision.max_pixels", settings_.max_pixels);
  text.Add("vision.rescale_factor", settings_.rescale);
  for (double mean : settings_.mean) text.Add("vision.image_mean", mean);
  for (double std : settings_.std) text.Add("vision.image_std", std);
  text.Add("video.supported", uint64_t{settings_.video});
  text.Add("video.tokens_per_second", uint64_t{settings_.tokens_per_second});
  if (settings_.frames.rule != FrameRule::kQwenVlUtils) {
    text.Add("video.frame_rule", FrameRuleName(settings_.frames.rule));
  }
  text.Add("video.fps", settings_.frames.fps);
  text.Add("video.min_frames", uint64_t{settings_.frames.min_frames});
  text.Add("video.max_frames", uint64_t{settings_.frames.max_frames});
  text.Add("video.min_pixels", settings_.video_min_pixels);
  text.Add("video.max_pixels", settings_.video_max_pixels);
}

absl::StatusOr<Settings> ReadSettings(ConfigFile& config, const ProcessorSpec& spec) {
  Settings settings;
  settings.shape.patch = static_cast<uint32_t>(config.Uint("patch_size", 14, 1, 256));
  settings.shape.frames = static_cast<uint32_t>(config.Uint("temporal_patch_size", 2, 1, 16));
  settings.shape.merge = static_cast<uint32_t>(config.Uint("merge_size", 2, 1, 16));
  constexpr uint64_t kMostPixels = 1ull << 32;
  uint64_t min_pixels = config.UintIn("size", "shortest_edge", 1, kMostPixels);
  uint64_t max_pixels = config.UintIn("size", "longest_edge", 1, kMostPixels);
  min_pixels = config.Uint("min_pixels", min_pixels != 0 ? min_pixels : 56 * 56, 1, kMostPixels);
  max_pixels = config.Uint("max_pixels", max_pixels != 0 ? max_pixels : 28 * 28 * 1280, 1, kMostPixels);
  settings.min_pixels = spec.min_pixels != 0 ? spec.min_pixels : min_pixels;
  settings.max_pixels = spec.max_pixels != 0 ? spec.max_pixels : max_pixels;
  std::vector<double> mean = config.Reals("image_mean", {0.48145466, 0.4578275, 0.40821073});
  std::vector<double> std = config.Reals("image_std", {0.26862954, 0.26130258, 0.27577711});
  std::copy(mean.begin(), mean.end(), settings.mean.begin());
  std::copy(std.begin(), std.end(), settings.std.begin());
  settings.rescale = config.Real("rescale_factor", 1.0 / 255);
  settings.processor_class = config.Text("processor_class", "Qwen2VLProcessor");
  settings.video =
      settings.processor_class == "Qwen2VLProcessor" || settings.processor_class == "Qwen2_5_VLProcessor";
  // Every Qwen2.5-VL checkpoint has 2 in the vision_config of its config.json.
  if (settings.processor_class == "Qwen2_5_VLProcessor") settings.tokens_per_second = 2;
  config.Pin("do_resize", true);
  config.Pin("do_rescale", true);
  config.Pin("do_normalize", true);
  config.Pin("do_convert_rgb", true);
  config.Pin("do_center_crop", false);
  config.Pin("do_pad", false);
  config.Pin("resample", 3.0);
  config.Pin("data_format", std::string_view("channels_first"));
  config.Inert({"image_processor_type", "feature_extractor_type", "auto_map", "_valid_processor_keys",
                "device", "return_tensors", "input_data_format", "default_to_square", "disable_grouping",
                "crop_size", "video_processor_type", "_name_or_path", "transformers_version"});
  EVENKEEL_RETURN_IF_ERROR(config.Finish());
  if (settings.min_pixels > settings.max_pixels) {
    return config.Error("min_pixels",
                        absl::StrCat("is ", settings.min_pixels, ", above max_pixels ", settings.max_pixels));
  }
  for (double deviation : settings.std) {
    if (static_cast<float>(deviation) == 0) return config.Error("image_std", "has a zero");
  }
  EVENKEEL_ASSIGN_OR_RETURN(
      FrameRule rule, FrameRuleOf(spec.frame_rule, FrameRule::kQwen2VlProcessor, FrameRule::kQwenVlUtils));
  settings.frames = {rule, spec.fps, spec.min_frames, spec.max_frames, settings.shape.frames};
  settings.video_min_pixels = spec.video_min_pixels;
  settings.video_max_pixels = spec.video_max_pixels;
  settings.wire = spec.wire;
  return settings;
}

}  // namespace

absl::StatusOr<std::unique_ptr<MediaFamily>> MakeQwen2Vl(ConfigFile config, const ProcessorSpec& spec,
                                                         const Limits& limits) {
  EVENKEEL_ASSIGN_OR_RETURN(Settings settings, ReadSettings(config, spec));
  return std::make_unique<Qwen2Vl>(std::move(settings), limits);
}

}  // namespace evenkeel
