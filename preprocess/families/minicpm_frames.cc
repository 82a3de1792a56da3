// Measures, decodes and cuts the frames of MiniCPM-V 4.6's videos.
//
// The rules are those of transformers' models/minicpmv4_6/{video_processing,processing}_minicpmv4_6.py, without the
// frames that it can stack to one picture.
#include "preprocess/families/minicpm_frames.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/status.h"
#include "preprocess/families/chosen_frames.h"
#include "preprocess/families/frame_tiles.h"
#include "preprocess/families/minicpm_v4_6.h"
#include "preprocess/families/patches.h"
#include "preprocess/families/planar_picture.h"
#include "preprocess/video/video.h"

namespace evenkeel::preprocess {
namespace {

constexpr char kVideoClass[] = "MiniCPMV4_6VideoProcessor";

struct MiniCpmVideo {
  PixelSettings pixels;
  MiniCpmRules rules;
  FrameChoice frames;
  bool upright = false;
};

// Gives each row of slices that stand next to each other to the writers of these slices, a row of slices after the
// other.
class SliceRows final : public RowSink {
 public:
  SliceRows(TileGrid grid, ImageSize slice, std::vector<PatchWriter>& writers)
      : grid_(grid), slice_(slice), writers_(writers) {}
  void Take(const PlanarRow& row) override {
    const size_t first = size_t{taken_++ / slice_.height} * grid_.columns;
    for (uint32_t column = 0; column < grid_.columns; ++column) {
      const size_t left = size_t{column} * slice_.width;
      writers_[first + column].Take(
          {{row.plane[0] + left, row.plane[1] + left, row.plane[2] + left}, slice_.width});
    }
  }

 private:
  const TileGrid grid_;
  const ImageSize slice_;
  std::vector<PatchWriter>& writers_;
  uint32_t taken_ = 0;
};

class MiniCpmFrames final : public MediaFamily {
 public:
  MiniCpmFrames(std::unique_ptr<MediaFamily> pictures, absl::StatusOr<MiniCpmVideo> video, bool numbered,
                const Limits& limits)
      : pictures_(std::move(pictures)), video_(std::move(video)), numbered_(numbered), limits_(limits) {
    if (!video_.ok()) return;
    table_ = video_->pixels.Table();
    fields_ = {
        TileField("pixel_values_videos", video_->pixels, {video_->rules.patch, video_->rules.patch}),
        {"target_sizes_videos", DType::kI64, false, {uint64_t{video_->rules.max_slices} + 1, 2}, nullptr},
        {"num_frames_per_video", DType::kI64, false, {}, nullptr}};
  }

  std::vector<MediumStyle> styles() const override {
    std::vector<MediumStyle> styles = pictures_->styles();
    if (video_.ok()) styles.push_back(MiniCpmStyle(Medium::kVideo, "<|video_pad|>"));
    return styles;
  }
  const std::vector<FieldSpec>& fields(Medium medium) const override {
    return medium == Medium::kVideo ? fields_ : pictures_->fields(medium);
  }
  absl::StatusOr<ItemLengths> Measure(const MediaFacts& facts) const override {
    if (facts.medium != Medium::kVideo) return pictures_->Measure(facts);
    EVENKEEL_ASSIGN_OR_RETURN(const Cut cut, CutOf(facts));
    return cut.lengths;
  }
  absl::Status Placeholders(const MediaFacts& facts, std::vector<PlaceholderRun>& runs) const override {
    if (facts.medium != Medium::kVideo) return pictures_->Placeholders(facts, runs);
    EVENKEEL_ASSIGN_OR_RETURN(const Cut cut, CutOf(facts));
    runs.clear();
    if (numbered_) AddMiniCpmNumber(runs);
    for (uint32_t i = 0; i < cut.frames; ++i) AddMiniCpmRuns(cut.shape, video_->rules, runs);
    return absl::OkStatus();
  }
  absl::Status Produce(const ItemRequest& request,
                       std::span<const std::span<std::byte>> field_bytes) const override;
  absl::Status WriteFacts(const ItemRequest& request,
                          std::span<const std::span<std::byte>> field_bytes) const override {
    if (request.medium != Medium::kVideo) return pictures_->WriteFacts(request, field_bytes);
    return Prepare(request, field_bytes).status();
  }
  MediaFacts DummyFacts() const override { return pictures_->DummyFacts(); }

 private:
  // What a video becomes.
  struct Cut {
    ImageSize native;
    MiniCpmShape shape;
    uint32_t frames = 0;
    ItemLengths lengths;
  };
  absl::StatusOr<Cut> CutOf(const MediaFacts& facts) const;
  // Checks the planned lengths and the buffers, and writes the fields after the first.
  absl::StatusOr<Cut> Prepare(const ItemRequest& request,
                              std::span<const std::span<std::byte>> field_bytes) const;
  // `out`: the patches of the frame.
  void WriteFrame(const PlanarPicture& frame, const MiniCpmShape& shape, std::span<std::byte> out) const;

  const std::unique_ptr<MediaFamily> pictures_;
  const absl::StatusOr<MiniCpmVideo> video_;  // an error: why videos are refused
  const bool numbered_;
  const Limits limits_;
  std::vector<float> table_;
  std::vector<FieldSpec> fields_;
};

absl::StatusOr<MiniCpmFrames::Cut> MiniCpmFrames::CutOf(const MediaFacts& facts) const {
  if (!video_.ok()) return absl::UnimplementedError(absl::StrCat("video: ", video_.status().message()));
  const MediaFacts seen = video_->upright ? Upright(facts) : facts;
  Cut out{.native = {seen.width, seen.height}};
  if (seen.width == 0 || seen.height == 0) return absl::InvalidArgumentError("video without pixels");
  out.shape = MiniCpmShapeOf(out.native, video_->rules);
  const uint64_t largest = std::max(out.shape.whole.rgb_bytes(), out.shape.canvas.rgb_bytes());
  if (largest > 3 * limits_.max_image_pixels) {
    return absl::InvalidArgumentError(absl::StrCat(
        "frames of ", seen.width, "x", seen.height,
        " pixels, which the processor would enlarge to more than limits.max_image_pixels allows"));
  }
  EVENKEEL_ASSIGN_OR_RETURN(out.frames, NumChosenFrames(video_->frames, facts));
  const uint64_t tokens = uint64_t{out.frames} * MiniCpmTokens(out.shape, video_->rules);
  const uint64_t patches = tokens * video_->rules.merge * video_->rules.merge;
  if (patches > std::numeric_limits<uint32_t>::max()) {
    return absl::InvalidArgumentError(
        absl::StrCat("video of ", out.frames, " frames, which are ", patches, " patches"));
  }
  out.lengths = {static_cast<uint32_t>(patches), static_cast<uint32_t>(patches),
                 static_cast<uint32_t>(tokens)};
  return out;
}

absl::StatusOr<MiniCpmFrames::Cut> MiniCpmFrames::Prepare(
    const ItemRequest& request, std::span<const std::span<std::byte>> field_bytes) const {
  EVENKEEL_ASSIGN_OR_RETURN(Cut cut, CutOf(request.facts));
  if (cut.lengths != request.planned) {
    return absl::DataLossError(absl::StrCat("got a video of ", cut.lengths.input_rows,
                                            " patches, the plan has ", request.planned.input_rows));
  }
  EVENKEEL_RETURN_IF_ERROR(CheckFieldSizes(fields_, cut.lengths, field_bytes));
  std::memset(field_bytes[1].data(), 0, field_bytes[1].size());
  auto* const sizes = reinterpret_cast<int64_t*>(field_bytes[1].data());
  const auto write = [&](size_t i, ImageSize size) {
    sizes[2 * i] = size.height / video_->rules.patch;
    sizes[2 * i + 1] = size.width / video_->rules.patch;
  };
  write(0, cut.shape.whole);
  for (uint32_t i = 0; cut.shape.is_cut() && i < cut.shape.grid.tiles(); ++i) write(1 + i, cut.shape.slice());
  const int64_t frames = cut.frames;
  std::memcpy(field_bytes[2].data(), &frames, sizeof(frames));
  return cut;
}

void MiniCpmFrames::WriteFrame(const PlanarPicture& frame, const MiniCpmShape& shape,
                               std::span<std::byte> out) const {
  const uint32_t patch = video_->rules.patch;
  const size_t patch_bytes = fields_[0].trailing.size() == 1
                                 ? fields_[0].trailing[0]
                                 : size_t{3} * patch * patch * DTypeBytes(fields_[0].dtype);
  size_t done = 0;
  const auto writer_of = [&](ImageSize size) {
    const size_t bytes = patch_bytes * (size.width / patch) * (size.height / patch);
    done += bytes;
    return PatchWriter(TileShape({patch, patch}), size.width, video_->pixels.wire, 1, table_,
                       out.subspan(done - bytes, bytes));
  };
  {
    PatchWriter whole = writer_of(shape.whole);
    frame.ResizeTo(shape.whole, video_->pixels, whole);
  }
  if (!shape.is_cut()) return;
  std::vector<PatchWriter> writers;
  writers.reserve(shape.grid.tiles());
  for (uint32_t i = 0; i < shape.grid.tiles(); ++i) writers.push_back(writer_of(shape.slice()));
  SliceRows slices(shape.grid, shape.slice(), writers);
  frame.ResizeTo(shape.canvas, video_->pixels, slices);
}

absl::Status MiniCpmFrames::Produce(const ItemRequest& request,
                                    std::span<const std::span<std::byte>> field_bytes) const {
  if (request.medium != Medium::kVideo) return pictures_->Produce(request, field_bytes);
  EVENKEEL_ASSIGN_OR_RETURN(const Cut cut, Prepare(request, field_bytes));
  const size_t bytes = field_bytes[0].size() / cut.frames;
  auto sink = [&](size_t position, FrameRows rows) -> absl::Status {
    static thread_local PlanarPicture frame;  // two resizes of it
    frame.Start(cut.native);
    EVENKEEL_RETURN_IF_ERROR(ResizeFrame(rows, cut.native, video_->pixels, {.resized = cut.native}, frame));
    WriteFrame(frame, cut.shape, field_bytes[0].subspan(bytes * position, bytes));
    return absl::OkStatus();
  };
  return DecodeChosenFrames(request, limits_, video_->frames, cut.frames, video_->upright, std::ref(sink));
}

// Unimplemented: why there are no videos.
absl::StatusOr<FrameChoice> FramesOf(ConfigFile& config, const ProcessorSpec& spec) {
  const auto most = static_cast<uint32_t>(config.Uint("max_num_frames", 128, 1, 1 << 20));
  const uint64_t stacked = config.Uint("stack_frames", 1, 0, 1 << 10);
  const bool samples = config.Flag("do_sample_frames", true);
  config.NotNull({"max_num_frames", "stack_frames", "do_sample_frames"});
  if (stacked > 1) {
    return absl::UnimplementedError(
        config
            .Error("stack_frames",
                   "is above 1: frames that are stacked to one picture are not implemented; "
                   "processor.python: transformers lets Python make them")
            .message());
  }
  FrameChoice out{.multiple = 1};
  EVENKEEL_ASSIGN_OR_RETURN(
      out.rule, FrameRuleOf(spec.frame_rule, FrameRule::kMiniCpmProcessor, FrameRule::kMiniCpmProcessor));
  EVENKEEL_RETURN_IF_ERROR(CheckAskedFrames(spec, out.rule));
  out.fps = spec.fps.value_or(kVideoDefaults.fps);
  out.min_frames = spec.min_frames.value_or(kVideoDefaults.min_frames);
  out.max_frames = spec.max_frames.value_or(kVideoDefaults.max_frames);
  if (out.rule == FrameRule::kUniform) return out;
  if (spec.fps) {
    return absl::InvalidArgumentError(
        "processor.fps: this family's processor takes a frame a second; give min_frames and max_frames, the "
        "same number, which is its max_num_frames, or the frame_rule uniform");
  }
  const bool asks_bounds = spec.min_frames || spec.max_frames;
  out.num_frames = asks_bounds ? out.max_frames : most;
  if (spec.frame_rule.empty() && !asks_bounds && !samples) out.rule = FrameRule::kAll;
  return out;
}

// Unimplemented: why there are no videos.
absl::StatusOr<MiniCpmVideo> ReadVideo(const FamilySource& source) {
  EVENKEEL_ASSIGN_OR_RETURN(ConfigFile config, ConfigFile::ReadOwnVideoProcessor(source.checkpoint));
  const std::string kind = config.Choice("video_processor_type", "");
  if (kind != kVideoClass) {
    return absl::UnimplementedError(absl::StrCat(source.checkpoint.folder, ": only ", kVideoClass,
                                                 " is implemented, which no file of videos names"));
  }
  MiniCpmVideo out;
  EVENKEEL_ASSIGN_OR_RETURN(out.pixels, ReadPixelSettings(config, source.ForFrames(), kHalves, kHalves));
  out.rules = ReadMiniCpmRules(config);
  EVENKEEL_ASSIGN_OR_RETURN(out.frames, FramesOf(config, source.spec));
  out.upright = source.spec.apply_video_rotation;
  AddFrames(config, out.frames, out.upright);
  config.Pin("do_resize", true);
  config.Pin("do_center_crop", false);
  config.Pin("do_pad", false);
  // The processor numbers videos by the image processor's key.
  config.Inert({"use_image_id", "size", "crop_size", "default_to_square"});
  EVENKEEL_RETURN_IF_ERROR(config.Finish());
  EVENKEEL_RETURN_IF_ERROR(CheckTile(out.pixels, {out.rules.patch, out.rules.patch}));
  return out;
}

}  // namespace

absl::StatusOr<std::unique_ptr<MediaFamily>> MakeMiniCpmFrames(std::unique_ptr<MediaFamily> pictures,
                                                               bool numbered, const FamilySource& source) {
  absl::StatusOr<MiniCpmVideo> video = ReadVideo(source);
  if (!video.ok() && !absl::IsUnimplemented(video.status())) return video.status();
  return std::make_unique<MiniCpmFrames>(std::move(pictures), std::move(video), numbered, source.limits);
}

}  // namespace evenkeel::preprocess
