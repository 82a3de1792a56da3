// Gemma 4: pictures and frames of videos keep about their shape, within a number of tokens, as patches with their places;
// every square of patches is one token. Frames stand between the tokens of a picture, each after its time.
//
// The rules are those of transformers' models/gemma4/{image_processing,video_processing,processing}_gemma4.py, without
// the padding to the largest number of patches.
#include "preprocess/families/gemma4.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/status.h"
#include "preprocess/families/chosen_frames.h"
#include "preprocess/families/families.h"
#include "preprocess/families/frame_tiles.h"
#include "preprocess/families/gemma_speech.h"
#include "preprocess/families/interleaved_patches.h"
#include "preprocess/families/patches.h"
#include "preprocess/families/tiles.h"

namespace evenkeel::preprocess {
namespace {

constexpr char kVideoClass[] = "Gemma4VideoProcessor";
constexpr std::array<double, 3> kNoMean = {0, 0, 0}, kNoStd = {1, 1, 1};

struct Gemma4Pixels {
  Gemma4Grid grid;
  PixelSettings pixels;
};

struct Gemma4Video : Gemma4Pixels {
  FrameChoice frames;
  bool upright = false;
};

// Of an item: what one picture or frame becomes, and how many there are.
struct Gemma4Shape {
  ImageSize resized;
  uint32_t patches = 0;  // of one
  uint32_t tokens = 0;   // of one
  uint32_t frames = 1;
};

class Gemma4 final : public MediaFamily {
 public:
  Gemma4(Gemma4Pixels pictures, absl::StatusOr<Gemma4Video> video, const Limits& limits)
      : pictures_(std::move(pictures)), video_(std::move(video)), limits_(limits) {
    picture_table_ = pictures_.pixels.Table();
    picture_fields_ = FieldsOf(pictures_, "pixel_values", "image_position_ids");
    if (!video_.ok()) return;
    video_table_ = video_->pixels.Table();
    video_fields_ = FieldsOf(*video_, "pixel_values_videos", "video_position_ids");
    video_fields_.push_back({"num_frames_per_video", DType::kI64, false, {}, nullptr});
  }

  std::vector<MediumStyle> styles() const override {
    MediumStyle picture{.begin = "<|image>", .placeholder = "<|image|>", .end = "<image|>"};
    if (!video_.ok()) return {picture};
    MediumStyle video = picture;
    video.medium = Medium::kVideo;
    video.placeholder = "<|video|>";
    return {picture, video};
  }
  const std::vector<FieldSpec>& fields(Medium medium) const override {
    return medium == Medium::kImage ? picture_fields_ : medium == Medium::kVideo ? video_fields_ : NoFields();
  }
  absl::StatusOr<ItemLengths> Measure(const MediaFacts& facts) const override {
    EVENKEEL_ASSIGN_OR_RETURN(const Gemma4Shape shape, ShapeOf(facts));
    return LengthsOf(shape);
  }
  absl::Status Placeholders(const MediaFacts& facts, std::vector<PlaceholderRun>& runs) const override;
  absl::Status Produce(const ItemRequest& request,
                       std::span<const std::span<std::byte>> field_bytes) const override;
  absl::Status WriteFacts(const ItemRequest& request,
                          std::span<const std::span<std::byte>> field_bytes) const override {
    return Prepare(request, field_bytes).status();
  }
  MediaFacts DummyFacts() const override {
    MediaFacts facts;
    facts.width = facts.height = pictures_.grid.patch * pictures_.grid.pool;
    return facts;
  }

 private:
  static std::vector<FieldSpec> FieldsOf(const Gemma4Pixels& of, std::string_view pixels,
                                         std::string_view places) {
    const FieldSpec values = InterleavedField(pixels, of.pixels, of.grid.patch);
    return {values, {std::string(places), DType::kI64, true, {2}, nullptr}};
  }
  static absl::StatusOr<ItemLengths> LengthsOf(const Gemma4Shape& shape) {
    const uint64_t patches = uint64_t{shape.patches} * shape.frames;
    if (patches > std::numeric_limits<uint32_t>::max()) {
      return absl::InvalidArgumentError(
          absl::StrCat("video of ", shape.frames, " frames of ", shape.patches, " patches"));
    }
    return ItemLengths{static_cast<uint32_t>(patches), static_cast<uint32_t>(patches),
                       shape.tokens * shape.frames};
  }
  absl::StatusOr<Gemma4Shape> ShapeOf(const MediaFacts& facts) const;
  // As WriteFacts(); returns the item's shape.
  absl::StatusOr<Gemma4Shape> Prepare(const ItemRequest& request,
                                      std::span<const std::span<std::byte>> field_bytes) const;
  // The size of a picture, or of frames before the resize.
  ImageSize NativeSize(const MediaFacts& facts) const {
    if (facts.medium == Medium::kImage) return PictureSize(facts, pictures_.pixels.picture);
    const MediaFacts seen = video_->upright ? Upright(facts) : facts;
    return {seen.width, seen.height};
  }

  const Gemma4Pixels pictures_;
  const absl::StatusOr<Gemma4Video> video_;  // an error: why videos are refused
  const Limits limits_;
  std::vector<float> picture_table_, video_table_;
  std::vector<FieldSpec> picture_fields_, video_fields_;
};

absl::StatusOr<Gemma4Shape> Gemma4::ShapeOf(const MediaFacts& facts) const {
  const bool is_video = facts.medium == Medium::kVideo;
  if (is_video && !video_.ok())
    return absl::UnimplementedError(absl::StrCat("video: ", video_.status().message()));
  const ImageSize native = NativeSize(facts);
  if (native.width == 0 || native.height == 0) return absl::InvalidArgumentError("no pixels");
  const Gemma4Grid& grid = is_video ? video_->grid : pictures_.grid;
  Gemma4Shape out;
  EVENKEEL_ASSIGN_OR_RETURN(out.resized, Gemma4Size(native, grid));
  out.patches = (out.resized.width / grid.patch) * (out.resized.height / grid.patch);
  out.tokens = out.patches / (grid.pool * grid.pool);
  if (is_video) {
    EVENKEEL_ASSIGN_OR_RETURN(out.frames, NumChosenFrames(video_->frames, facts));
  }
  return out;
}

absl::Status Gemma4::Placeholders(const MediaFacts& facts, std::vector<PlaceholderRun>& runs) const {
  EVENKEEL_ASSIGN_OR_RETURN(const Gemma4Shape shape, ShapeOf(facts));
  runs.clear();
  if (facts.medium == Medium::kImage) {
    runs.push_back({.rows = shape.tokens});
    return absl::OkStatus();
  }
  static thread_local std::vector<uint32_t> chosen;
  ChooseFrames(video_->frames, facts, shape.frames, /*times=*/{}, chosen);
  const double fps = static_cast<double>(facts.fps_num) / facts.fps_den;
  for (const uint32_t frame : chosen) {
    const auto second = static_cast<uint64_t>(frame / fps);
    runs.push_back(
        {.text = absl::StrFormat("%s%02d:%02d ", runs.empty() ? "" : " ", second / 60, second % 60),
         .rows = shape.tokens});
  }
  return absl::OkStatus();
}

absl::StatusOr<Gemma4Shape> Gemma4::Prepare(const ItemRequest& request,
                                            std::span<const std::span<std::byte>> field_bytes) const {
  EVENKEEL_ASSIGN_OR_RETURN(const Gemma4Shape shape, ShapeOf(request.facts));
  EVENKEEL_ASSIGN_OR_RETURN(const ItemLengths lengths, LengthsOf(shape));
  if (lengths != request.planned) {
    return absl::DataLossError(absl::StrCat("got an item of ", lengths.input_rows, " patches, the plan has ",
                                            request.planned.input_rows));
  }
  EVENKEEL_RETURN_IF_ERROR(CheckFieldSizes(fields(request.facts.medium), lengths, field_bytes));
  const bool is_video = request.facts.medium == Medium::kVideo;
  const uint32_t columns = shape.resized.width / (is_video ? video_->grid : pictures_.grid).patch;
  auto* place = reinterpret_cast<int64_t*>(field_bytes[1].data());
  for (uint32_t row = 0; row < lengths.input_rows; ++row) {
    *place++ = row % shape.patches % columns;
    *place++ = row % shape.patches / columns;
  }
  if (is_video) *reinterpret_cast<int64_t*>(field_bytes[2].data()) = shape.frames;
  return shape;
}

absl::Status Gemma4::Produce(const ItemRequest& request,
                             std::span<const std::span<std::byte>> field_bytes) const {
  EVENKEEL_ASSIGN_OR_RETURN(const Gemma4Shape shape, Prepare(request, field_bytes));
  if (request.medium == Medium::kImage) {
    const PixelSettings& pixels = pictures_.pixels;
    EVENKEEL_ASSIGN_OR_RETURN(
        PictureHeader header,
        ReadKnownPictureHeader(request.suffix, request.bytes, limits_, pixels.picture, request.facts));
    InterleavedPatches writer(pictures_.grid.patch, pixels.wire, picture_table_, field_bytes[0]);
    std::vector<PictureTarget> targets = {
        {.resized = shape.resized, .filter = pixels.filter, .sink = &writer}};
    return DecodePicture(request.suffix, request.bytes, limits_, pixels.picture, header, targets);
  }
  const ImageSize native = NativeSize(request.facts);
  const size_t bytes = field_bytes[0].size() / shape.frames;
  auto sink = [&](size_t position, FrameRows rows) {
    InterleavedPatches writer(video_->grid.patch, video_->pixels.wire, video_table_,
                              field_bytes[0].subspan(bytes * position, bytes));
    return ResizeFrame(rows, native, video_->pixels, {.resized = shape.resized}, writer);
  };
  return DecodeChosenFrames(request, limits_, video_->frames, shape.frames, video_->upright, std::ref(sink));
}

// Reads what the files of pictures and of videos have in common. `normalized`: the class does so by default.
absl::StatusOr<Gemma4Pixels> ReadPixels(ConfigFile& config, const ProcessorSpec& spec, uint32_t max_tokens,
                                        bool normalized) {
  constexpr uint32_t kSupported[] = {70, 140, 280, 560, 1120};
  Gemma4Pixels out;
  if (!config.Has("do_normalize") && !config.IsNull("do_normalize"))
    config.Passed("do_normalize", normalized);
  EVENKEEL_ASSIGN_OR_RETURN(out.pixels, ReadPixelSettings(config, spec, kNoMean, kNoStd));
  out.grid.patch = static_cast<uint32_t>(config.Uint("patch_size", out.grid.patch, 1, 256));
  out.grid.pool = static_cast<uint32_t>(config.Uint("pooling_kernel_size", out.grid.pool, 1, 16));
  out.grid.max_tokens = static_cast<uint32_t>(config.Uint("max_soft_tokens", max_tokens, 1, 1 << 16));
  config.NotNull({"patch_size", "pooling_kernel_size", "max_soft_tokens"});
  config.Pin("do_center_crop", false);
  config.Inert({"size", "default_to_square", "crop_size", "do_pad"});  // no part of the class uses them
  IgnoreGemmaSpeech(config);
  if (std::find(std::begin(kSupported), std::end(kSupported), out.grid.max_tokens) == std::end(kSupported)) {
    return config.Error("max_soft_tokens",
                        absl::StrCat("is ", out.grid.max_tokens, ", not one of 70, 140, 280, 560 and 1120"));
  }
  if (!out.pixels.resized) return config.Error("do_resize", "only true is implemented");
  EVENKEEL_RETURN_IF_ERROR(CheckInterleaved(config, out.pixels));
  EVENKEEL_RETURN_IF_ERROR(CheckTile(out.pixels, {out.grid.patch, out.grid.patch}));
  return out;
}

// NotFound: the folder has no file of videos.
absl::StatusOr<Gemma4Video> ReadVideo(const FamilySource& source) {
  EVENKEEL_ASSIGN_OR_RETURN(ConfigFile config, ConfigFile::ReadVideoProcessor(source.checkpoint));
  const std::string kind = config.Choice("video_processor_type", "");
  if (kind != kVideoClass) {
    return absl::UnimplementedError(
        absl::StrCat(source.checkpoint.folder,
                     kind.empty() ? ": has no file of a video processor" : ": transformers uses " + kind,
                     "; only ", kVideoClass, " is implemented"));
  }
  Gemma4Video out;
  EVENKEEL_ASSIGN_OR_RETURN(static_cast<Gemma4Pixels&>(out),
                            ReadPixels(config, source.ForFrames(), /*max_tokens=*/70, /*normalized=*/true));
  EVENKEEL_ASSIGN_OR_RETURN(out.frames, ReadFrameChoice(config, source.spec, FrameRule::kDefaultProcessor,
                                                        {.samples = true, .num_frames = 32}));
  out.upright = source.spec.apply_video_rotation;
  AddFrames(config, out.frames, out.upright);
  EVENKEEL_RETURN_IF_ERROR(config.Finish());
  return out;
}

}  // namespace

absl::StatusOr<ImageSize> Gemma4Size(ImageSize picture, const Gemma4Grid& grid) {
  const double most = static_cast<double>(grid.max_patches()) * grid.patch * grid.patch;
  const double factor = std::sqrt(most / (static_cast<double>(picture.height) * picture.width));
  const double step = grid.pool * grid.patch;  // a token's side in pixels
  const auto whole = [&](double side) { return std::floor(factor * side / step); };
  double height = whole(picture.height), width = whole(picture.width);
  const double longest = grid.max_patches() / (grid.pool * grid.pool);
  if (height == 0 && width > 0) {
    height = 1;
    width = std::min(std::floor(static_cast<double>(picture.width) / picture.height), longest);
  } else if (width == 0 && height > 0) {
    width = 1;
    height = std::min(std::floor(static_cast<double>(picture.height) / picture.width), longest);
  }
  if (height == 0 || width == 0 || height * width * step * step > most) {
    return absl::InvalidArgumentError(absl::StrCat("picture of ", picture.width, "x", picture.height,
                                                   " pixels has no size of at most ", grid.max_tokens,
                                                   " tokens of ", step, "x", step, " pixels"));
  }
  return ImageSize{static_cast<uint32_t>(width * step), static_cast<uint32_t>(height * step)};
}

MadeFamily MakeGemma4(ConfigFile config, const FamilySource& source) {
  EVENKEEL_ASSIGN_OR_RETURN(Gemma4Pixels pictures,
                            ReadPixels(config, source.spec, /*max_tokens=*/280, /*normalized=*/false));
  EVENKEEL_RETURN_IF_ERROR(config.Finish());
  EVENKEEL_ASSIGN_OR_RETURN(ConfigFile outer,
                            ConfigFile::ReadIfThere(source.checkpoint, "processor_config.json"));
  // A picture has the tokens of its size.
  outer.Inert({"image_seq_length", "audio_seq_length", "audio_ms_per_token"});
  EVENKEEL_RETURN_IF_ERROR(FinishOuter(outer));
  absl::StatusOr<Gemma4Video> video = ReadVideo(source);
  const absl::Status& status = video.status();
  if (!video.ok() && !absl::IsNotFound(status) && !absl::IsUnimplemented(status)) return status;
  return std::make_unique<Gemma4>(std::move(pictures), std::move(video), source.limits);
}

}  // namespace evenkeel::preprocess
