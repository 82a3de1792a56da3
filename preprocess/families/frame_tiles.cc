// Measures, decodes and resizes videos whose frames become one tile each, next to the pictures of the same
// family.
#include "preprocess/families/frame_tiles.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/status.h"
#include "preprocess/families/chosen_frames.h"
#include "preprocess/families/clip.h"
#include "preprocess/families/patches.h"
#include "preprocess/families/planar_picture.h"
#include "preprocess/families/tiles.h"
#include "preprocess/video/video.h"

namespace evenkeel::preprocess {
namespace {

class PicturesAndFrames final : public MediaFamily {
 public:
  PicturesAndFrames(std::unique_ptr<MediaFamily> pictures, absl::StatusOr<FrameTiles> video,
                    const Limits& limits)
      : pictures_(std::move(pictures)), video_(std::move(video)), limits_(limits) {
    if (!video_.ok()) return;
    table_ = video_->pixels.Table();
    video_fields_ = {TileField(video_->field, video_->pixels, video_->tile)};
  }

  std::vector<MediumStyle> styles() const override {
    std::vector<MediumStyle> styles = pictures_->styles();
    if (video_.ok()) styles.push_back(video_->style);
    return styles;
  }
  absl::Status Placeholders(const MediaFacts& facts, std::vector<PlaceholderRun>& runs) const override;
  const std::vector<FieldSpec>& fields(Medium medium) const override {
    return medium == Medium::kVideo ? video_fields_ : pictures_->fields(medium);
  }
  absl::StatusOr<ItemLengths> Measure(const MediaFacts& facts) const override;
  absl::Status Produce(const ItemRequest& request,
                       std::span<const std::span<std::byte>> field_bytes) const override;
  absl::Status WriteFacts(const ItemRequest& request,
                          std::span<const std::span<std::byte>> field_bytes) const override;
  MediaFacts DummyFacts() const override { return pictures_->DummyFacts(); }

 private:
  // The size of frames before the resize.
  ImageSize NativeSize(const MediaFacts& facts) const {
    const MediaFacts seen = video_->upright ? Upright(facts) : facts;
    return {seen.width, seen.height};
  }
  // How frames of `native` pixels become tiles. InvalidArgument: they are smaller than the crop.
  absl::StatusOr<FrameTarget> TargetOf(ImageSize native) const;
  // The number of frames, after checking the planned lengths and the caller's buffers.
  absl::StatusOr<uint32_t> Prepare(const ItemRequest& request,
                                   std::span<const std::span<std::byte>> field_bytes) const;

  const std::unique_ptr<MediaFamily> pictures_;
  const absl::StatusOr<FrameTiles> video_;  // an error: why videos are refused
  const Limits limits_;
  std::vector<float> table_;
  std::vector<FieldSpec> video_fields_;
};

absl::StatusOr<FrameTarget> PicturesAndFrames::TargetOf(ImageSize native) const {
  const ImageSize tile = video_->tile;
  FrameTarget out{.resized = tile};
  if (video_->cropped) {
    out.resized = video_->pixels.resized ? ResizedBy(video_->size, native) : native;
    if (out.resized.width < tile.width || out.resized.height < tile.height) {
      return absl::InvalidArgumentError(absl::StrCat(
          "frames of ", native.width, "x", native.height, " pixels become ", out.resized.width, "x",
          out.resized.height, ", smaller than their crop of ", tile.width, "x", tile.height));
    }
    const Resampler resampler = video_->pixels.picture.resampler;
    out.left = static_cast<uint32_t>(CropBegin(out.resized.width, tile.width, resampler));
    out.top = static_cast<uint32_t>(CropBegin(out.resized.height, tile.height, resampler));
    out.window = tile;
  } else if (!video_->pixels.resized) {
    if (native != tile) return NotOfItsSize("frames", native, tile);
  } else if (video_->first_size) {
    out.resized = video_->first_size(native);
    if (out.resized.rgb_bytes() > 3 * limits_.max_image_pixels) {
      return absl::InvalidArgumentError(absl::StrCat(
          "frames of ", native.width, "x", native.height, " pixels would be resized to ", out.resized.width,
          "x", out.resized.height, ", more than limits.max_image_pixels allows"));
    }
  }
  return out;
}

absl::StatusOr<ItemLengths> PicturesAndFrames::Measure(const MediaFacts& facts) const {
  if (facts.medium != Medium::kVideo) return pictures_->Measure(facts);
  if (!video_.ok()) return absl::UnimplementedError(absl::StrCat("video: ", video_.status().message()));
  if (facts.width == 0 || facts.height == 0) return absl::InvalidArgumentError("no pixels");
  EVENKEEL_RETURN_IF_ERROR(TargetOf(NativeSize(facts)).status());
  EVENKEEL_ASSIGN_OR_RETURN(const uint32_t frames, NumChosenFrames(video_->frames, facts));
  const uint64_t most = std::max(video_->tokens_per_frame, video_->patches_per_frame);
  if (frames * most + video_->extra_tokens > std::numeric_limits<uint32_t>::max()) {
    return absl::InvalidArgumentError(absl::StrCat("video of ", frames, " frames of ", most, " rows each"));
  }
  const uint32_t groups = frames / video_->frames_per_patch;  // the model leaves out a last, partial one
  if (groups == 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a clip of ", frames, " frames is shorter than one patch of ", video_->frames_per_patch, " frames"));
  }
  return ItemLengths{groups * video_->patches_per_frame, frames,
                     groups * video_->tokens_per_frame + video_->extra_tokens};
}

absl::Status PicturesAndFrames::Placeholders(const MediaFacts& facts,
                                             std::vector<PlaceholderRun>& runs) const {
  if (facts.medium != Medium::kVideo) return pictures_->Placeholders(facts, runs);
  EVENKEEL_ASSIGN_OR_RETURN(ItemLengths lengths, Measure(facts));
  runs.clear();
  if (video_->runs) {
    video_->runs(facts, lengths.input_rows, runs);
  } else {
    runs.push_back({.rows = lengths.output_rows});
  }
  return absl::OkStatus();
}

absl::StatusOr<uint32_t> PicturesAndFrames::Prepare(const ItemRequest& request,
                                                    std::span<const std::span<std::byte>> field_bytes) const {
  EVENKEEL_ASSIGN_OR_RETURN(ItemLengths lengths, Measure(request.facts));
  if (lengths != request.planned) {
    return absl::DataLossError(absl::StrCat("got a video of ", lengths.input_rows, " frames, the plan has ",
                                            request.planned.input_rows));
  }
  EVENKEEL_RETURN_IF_ERROR(CheckFieldSizes(video_fields_, lengths, field_bytes));
  return lengths.input_rows;
}

absl::Status PicturesAndFrames::Produce(const ItemRequest& request,
                                        std::span<const std::span<std::byte>> field_bytes) const {
  if (request.medium != Medium::kVideo) return pictures_->Produce(request, field_bytes);
  EVENKEEL_ASSIGN_OR_RETURN(const uint32_t frames, Prepare(request, field_bytes));
  const ImageSize native = NativeSize(request.facts), tile = video_->tile;
  EVENKEEL_ASSIGN_OR_RETURN(const FrameTarget target, TargetOf(native));
  const size_t bytes = field_bytes[0].size() / frames;
  const bool twice = video_->pixels.resized && video_->first_size != nullptr;
  auto sink = [&](size_t position, FrameRows rows) -> absl::Status {
    PatchWriter writer(TileShape(tile), tile.width, video_->pixels.wire, 1, table_,
                       field_bytes[0].subspan(bytes * position, bytes));
    if (!twice) return ResizeFrame(rows, native, video_->pixels, target, writer);
    static thread_local PlanarPicture stage;
    stage.Start(target.resized);
    EVENKEEL_RETURN_IF_ERROR(ResizeFrame(rows, native, video_->pixels, target, stage));
    stage.ResizeTo(tile, video_->pixels, writer);
    return absl::OkStatus();
  };
  return DecodeChosenFrames(request, limits_, video_->frames, frames, video_->upright, std::ref(sink));
}

absl::Status PicturesAndFrames::WriteFacts(const ItemRequest& request,
                                           std::span<const std::span<std::byte>> field_bytes) const {
  if (request.medium != Medium::kVideo) return pictures_->WriteFacts(request, field_bytes);
  return Prepare(request, field_bytes).status();
}

}  // namespace

absl::Status CheckAskedFrames(const ProcessorSpec& spec, FrameRule rule) {
  if (spec.video_min_pixels || spec.video_max_pixels) {
    return absl::InvalidArgumentError(
        "processor.video_min_pixels and video_max_pixels mean nothing here: frames have the size of the "
        "video processor's file");
  }
  if (rule == FrameRule::kQwenVlUtils) {
    return absl::InvalidArgumentError(
        "processor.frame_rule: 'qwen_vl_utils' is of the Qwen families; this family's are transformers and "
        "uniform");
  }
  const uint32_t least = spec.min_frames.value_or(kVideoDefaults.min_frames);
  const uint32_t most = spec.max_frames.value_or(kVideoDefaults.max_frames);
  if (rule != FrameRule::kUniform && (spec.min_frames || spec.max_frames) && least != most) {
    return absl::InvalidArgumentError(
        "processor.min_frames and max_frames: this family's processor has no bounds; give the same number "
        "for both, which is its num_frames, or the frame_rule uniform");
  }
  return absl::OkStatus();
}

absl::StatusOr<FrameChoice> ReadFrameChoice(ConfigFile& config, const ProcessorSpec& spec, FrameRule own,
                                            const FrameDefaults& usual) {
  constexpr uint32_t kMaxFrames = 1 << 20;
  const bool samples = config.Flag("do_sample_frames", usual.samples);
  const auto num_frames = static_cast<uint32_t>(config.Uint("num_frames", usual.num_frames, 1, kMaxFrames));
  const double fps = config.Real("fps", 0);
  if (config.Has("fps") && !(fps > 0)) return config.Error("fps", "is not positive");
  if (own == FrameRule::kDefaultProcessor && samples && num_frames != 0 && fps != 0) {
    return absl::UnimplementedError(
        config.Error("num_frames", "is given together with fps, which fails in transformers").message());
  }

  FrameChoice out;
  EVENKEEL_ASSIGN_OR_RETURN(out.rule, FrameRuleOf(spec.frame_rule, own, own));
  const bool asks_fps = spec.fps.has_value();
  const bool asks_bounds = spec.min_frames || spec.max_frames;
  out.fps = spec.fps.value_or(fps == 0 ? kVideoDefaults.fps : fps);
  out.min_frames = spec.min_frames.value_or(kVideoDefaults.min_frames);
  out.max_frames = spec.max_frames.value_or(kVideoDefaults.max_frames);
  out.multiple = 1;
  EVENKEEL_RETURN_IF_ERROR(CheckAskedFrames(spec, out.rule));
  if (out.rule == FrameRule::kUniform) return out;
  if (asks_fps && !asks_bounds && num_frames != 0) {
    return config.Error("num_frames",
                        "decides, so that processor.fps would mean nothing; give min_frames and max_frames, "
                        "the same number, to replace it");
  }
  out.num_frames = asks_bounds ? out.min_frames : num_frames;
  // What a call without arguments samples. The default rule uses every frame unless a number or a rate is
  // given.
  const bool samples_all = own == FrameRule::kDefaultProcessor && num_frames == 0 && fps == 0;
  if (spec.frame_rule.empty() && !asks_fps && !asks_bounds && (!samples || samples_all)) {
    out.rule = FrameRule::kAll;
  }
  return out;
}

absl::StatusOr<FrameTiles> ReadFrameTiles(const FamilySource& source, std::string_view name,
                                          const FixedSizeClass& usual,
                                          std::initializer_list<std::string_view> inert) {
  EVENKEEL_ASSIGN_OR_RETURN(ConfigFile config, ConfigFile::ReadVideoProcessor(source.checkpoint));
  const std::string said = config.Choice("video_processor_type", "");
  if (!said.empty() && said != name) {
    return absl::UnimplementedError(absl::StrCat(source.checkpoint.folder, ": transformers uses ", said,
                                                 " for its videos, but only ", std::string(name),
                                                 " is implemented"));
  }
  return ReadFrameTilesOf(config, source, source.ForFrames(), usual, inert);
}

absl::StatusOr<FrameTiles> ReadFrameTilesOf(ConfigFile& config, const FamilySource& source,
                                            const ProcessorSpec& spec, const FixedSizeClass& usual,
                                            std::initializer_list<std::string_view> inert) {
  FrameTiles out;
  EVENKEEL_ASSIGN_OR_RETURN(out.frames, ReadFrameChoice(config, source.spec, FrameRule::kDefaultProcessor));
  out.upright = source.spec.apply_video_rotation;
  AddFrames(config, out.frames, out.upright);
  out.size = ReadSideSizes(config, "size", usual.number_is, usual.size);
  out.cropped = config.Flag("do_center_crop", usual.crop != 0 && !config.IsNull("do_center_crop"));
  const bool is_edge = out.size == SideSizes{.shortest_edge = out.size.shortest_edge};
  const bool of_one_size = out.cropped ? is_edge || out.size.fixed() : out.size.fixed();
  if (!of_one_size) {
    return absl::UnimplementedError(
        absl::StrCat(source.checkpoint.folder,
                     ": size of the video processor: frames of different sizes are not implemented; ",
                     "{height, width} is, and {shortest_edge} with do_center_crop"));
  }
  config.Inert(inert);
  EVENKEEL_ASSIGN_OR_RETURN(const FixedSize fixed, ReadFixedSize(config, spec, usual));
  out.pixels = fixed.pixels;
  out.size = fixed.size;
  out.tile = fixed.result;
  return out;
}

absl::StatusOr<std::unique_ptr<MediaFamily>> MakePicturesAndFrames(std::unique_ptr<MediaFamily> pictures,
                                                                   absl::StatusOr<FrameTiles> video,
                                                                   const Limits& limits) {
  const absl::Status& status = video.status();
  if (!video.ok() && !absl::IsNotFound(status) && !absl::IsUnimplemented(status)) return status;
  if (video.ok()) EVENKEEL_RETURN_IF_ERROR(CheckTile(video->pixels, video->tile));
  return std::make_unique<PicturesAndFrames>(std::move(pictures), std::move(video), limits);
}

}  // namespace evenkeel::preprocess
