// SmolVLM and SmolVLM2: Idefics3's pictures, and videos as frames, each resized to a longest edge and then stretched to
// one tile, with its time before it.
//
// The rules are those of transformers' models/smolvlm/{processing,video_processing}_smolvlm.py.
#include "preprocess/families/smolvlm.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/status.h"
#include "preprocess/families/chosen_frames.h"
#include "preprocess/families/families.h"
#include "preprocess/families/frame_tiles.h"
#include "preprocess/families/idefics3.h"

namespace evenkeel::preprocess {
namespace {

constexpr char kClass[] = "SmolVLMVideoProcessor";
constexpr uint32_t kUsualTile = 364;
constexpr uint32_t kLargestEdge = 4096;
// Indices into MediumStyle::tokens.
constexpr uint32_t kAround = 0, kWhole = 1;

// What its processor writes for a conversation with a video if the caller names no template, since the published
// templates write pictures alone: of each turn the role, a colon, a space unless a picture comes first, and its parts.
constexpr char kTemplateOfVideos[] =
    "{{ '<|im_start|>' }}{% for turn in messages %}{{ turn.role | capitalize }}"
    "{{ ':' if turn.content[0].type == 'image' else ': ' }}{% for part in turn.content %}"
    "{{ part.text if part.type == 'text' else '<image>' if part.type == 'image' else '<video>' if part.type "
    "== 'video' "
    "else '' }}{% endfor %}{{ '<end_of_utterance>\n' }}{% endfor %}{{ 'Assistant:' if add_generation_prompt "
    "else '' }}";

constexpr const char* kBelowTwenty[] = {"zero",    "one",     "two",       "three",    "four",
                                        "five",    "six",     "seven",     "eight",    "nine",
                                        "ten",     "eleven",  "twelve",    "thirteen", "fourteen",
                                        "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"};
constexpr const char* kTens[] = {"",      "",      "twenty",  "thirty", "forty",
                                 "fifty", "sixty", "seventy", "eighty", "ninety"};

// How many frames a second, and how many at most; 0: not given.
struct Sampling {
  double fps = 0;
  uint32_t num_frames = 0;
};

absl::StatusOr<Sampling> ReadSampling(ConfigFile& config, std::string_view num_frames) {
  Sampling out;
  out.num_frames = static_cast<uint32_t>(config.Uint(num_frames, 0, 1, 1 << 20));
  out.fps = config.Real("fps", 0);
  if (config.Has("fps") && !(out.fps > 0)) return config.Error("fps", "is not positive");
  return out;
}

// The frames of apply_chat_template, which always samples if it can: by a rate and a maximum, both of which the rule
// needs. A file with neither gives all frames.
absl::StatusOr<FrameChoice> FramesOf(const Sampling& sampling, const ConfigFile& config,
                                     const ProcessorSpec& spec) {
  FrameChoice out{.multiple = 1};
  EVENKEEL_ASSIGN_OR_RETURN(
      out.rule, FrameRuleOf(spec.frame_rule, FrameRule::kSmolVlmProcessor, FrameRule::kSmolVlmProcessor));
  EVENKEEL_RETURN_IF_ERROR(CheckAskedFrames(spec, out.rule));
  out.fps = spec.fps.value_or(sampling.fps == 0 ? kVideoDefaults.fps : sampling.fps);
  out.min_frames = spec.min_frames.value_or(kVideoDefaults.min_frames);
  out.max_frames = spec.max_frames.value_or(kVideoDefaults.max_frames);
  if (out.rule == FrameRule::kUniform) return out;
  out.num_frames = spec.min_frames || spec.max_frames ? out.min_frames : sampling.num_frames;
  const bool has_fps = spec.fps || sampling.fps != 0;
  if (out.num_frames != 0 && has_fps) return out;
  if (out.num_frames == 0 && !has_fps && spec.frame_rule.empty()) {
    out.rule = FrameRule::kAll;
    return out;
  }
  const absl::Status missing =
      config.Error(has_fps ? "num_frames" : "fps",
                   "is missing; frames are sampled by both, num_frames and fps, without which transformers "
                   "fails. The job can give "
                   "processor.fps, and the number as processor.min_frames and max_frames");
  return absl::UnimplementedError(missing.message());
}

// The size that frames are resized to first: that of the file, else that of `sampling`.
absl::StatusOr<SideSizes> ReadFirstSize(ConfigFile& config, ConfigFile* sampling) {
  const bool of_sampling = sampling != nullptr && !config.Has("size");
  if (sampling != nullptr && !of_sampling) sampling->Inert({"video_size"});
  ConfigFile& file = of_sampling ? *sampling : config;
  const char* const key = of_sampling ? "video_size" : "size";
  const SideSizes usual = of_sampling ? SideSizes{} : SideSizes{.longest_edge = 4 * kUsualTile};
  const SideSizes size = ReadSideSizes(file, key, NumberIs::kSquare, usual);
  const bool is_edge = size.longest_edge != 0 && size == SideSizes{.longest_edge = size.longest_edge};
  if (is_edge || size.fixed()) return size;
  return file.Error(key, "is neither {longest_edge} nor {height, width}");
}

void WriteRuns(const FrameChoice& choice, const MediaFacts& facts, uint32_t frames, uint32_t tokens,
               std::vector<PlaceholderRun>& runs) {
  const double fps = static_cast<double>(facts.fps_num) / facts.fps_den;
  std::string text =
      absl::StrCat("You are provided the following series of ", NumberInWords(frames), " frames from a ",
                   DurationText(static_cast<uint64_t>(facts.num_frames / fps)), " [H:MM:SS] video.\n");
  static thread_local std::vector<uint32_t> chosen;
  ChooseFrames(choice, facts, frames, /*times=*/{}, chosen);
  for (const uint32_t frame : chosen) {
    const auto second = static_cast<uint64_t>(frame / fps);
    absl::StrAppendFormat(&text, "\nFrame from %02d:%02d:", second / 60, second % 60);
    runs.push_back({.text = std::move(text), .token = kAround});
    runs.push_back({.token = kWhole});
    runs.push_back({.rows = tokens});
    runs.push_back({.token = kAround});
    text.clear();
  }
  runs.push_back({.text = "\n\n"});
}

// NotFound: the folder has no file of videos.
absl::StatusOr<FrameTiles> ReadVideo(const FamilySource& source, uint32_t tokens, uint32_t patch) {
  EVENKEEL_ASSIGN_OR_RETURN(ConfigFile config, ConfigFile::ReadVideoProcessor(source.checkpoint));
  const std::string kind = config.Choice("video_processor_type", kClass);
  if (kind != kClass) {
    return absl::UnimplementedError(absl::StrCat(source.checkpoint.folder, ": transformers uses ", kind,
                                                 " for its videos, but only ", kClass, " is implemented"));
  }
  FrameTiles out;
  EVENKEEL_ASSIGN_OR_RETURN(
      out.pixels, ReadPixelSettings(config, source.ForFrames(), kHalves, kHalves, ResizeFilter::kLanczos));
  std::optional<ConfigFile> nested = config.Member("video_sampling");
  EVENKEEL_ASSIGN_OR_RETURN(const SideSizes first, ReadFirstSize(config, nested ? &*nested : nullptr));
  EVENKEEL_ASSIGN_OR_RETURN(const uint32_t tile, LongestEdge(config, "max_image_size", kUsualTile));
  config.NotNull({"size", "max_image_size"});
  config.Pin("do_center_crop", false);
  // apply_chat_template samples whatever do_sample_frames is. Padding concerns batches of several videos, and frames are
  // never split. The other keys are the image processor's, whose file may stand in.
  config.Inert({"do_sample_frames", "do_pad", "crop_size", "do_image_splitting", "return_row_col_info"});
  EVENKEEL_ASSIGN_OR_RETURN(const Sampling sampling, nested ? ReadSampling(*nested, "max_frames")
                                                            : ReadSampling(config, "num_frames"));
  if (nested) EVENKEEL_RETURN_IF_ERROR(nested->Finish());
  EVENKEEL_ASSIGN_OR_RETURN(out.frames, FramesOf(sampling, config, source.spec));
  out.upright = source.spec.apply_video_rotation;
  AddFrames(config, out.frames, out.upright);
  EVENKEEL_RETURN_IF_ERROR(config.Finish());
  out.tile = {tile, tile};
  out.first_size = [first](ImageSize native) {
    if (first.fixed()) return ImageSize{first.width, first.height};
    return Idefics3Size(native, std::min(first.longest_edge, kLargestEdge));
  };
  out.tokens_per_frame = tokens;
  out.patches_per_frame = (tile / patch) * (tile / patch);
  out.style = {.medium = Medium::kVideo,
               .placeholder = "<image>",
               .tokens = {"<fake_token_around_image>", "<global-img>"},
               .in_template = "<video>",
               .own_template = kTemplateOfVideos};
  out.runs = [choice = out.frames, tokens](const MediaFacts& facts, uint32_t frames,
                                           std::vector<PlaceholderRun>& runs) {
    WriteRuns(choice, facts, frames, tokens, runs);
  };
  return out;
}

}  // namespace

std::string NumberInWords(uint32_t number) {
  if (number < 20) return kBelowTwenty[number];
  if (number < 100) {
    return absl::StrCat(kTens[number / 10], number % 10 == 0 ? "" : "-",
                        number % 10 == 0 ? "" : kBelowTwenty[number % 10]);
  }
  uint32_t unit = 100;
  const char* name = " hundred";
  constexpr std::pair<uint32_t, const char*> kUnits[] = {
      {1000, " thousand"}, {1'000'000, " million"}, {1'000'000'000, " billion"}};
  for (const auto& [larger, larger_name] : kUnits) {
    if (number >= larger) unit = larger, name = larger_name;
  }
  const uint32_t rest = number % unit;
  const std::string whole = absl::StrCat(NumberInWords(number / unit), name);
  return rest == 0 ? whole : absl::StrCat(whole, rest < 100 ? " and " : ", ", NumberInWords(rest));
}

std::string DurationText(uint64_t seconds) {
  constexpr uint64_t kDay = 24 * 60 * 60;
  const uint64_t days = seconds / kDay;
  const std::string whole = days == 0 ? "" : absl::StrCat(days, days == 1 ? " day, " : " days, ");
  return absl::StrFormat("%s%d:%02d:%02d", whole, seconds % kDay / 3600, seconds / 60 % 60, seconds % 60);
}

MadeFamily MakeSmolVlm(ConfigFile config, const FamilySource& source) {
  EVENKEEL_ASSIGN_OR_RETURN(Idefics3Pictures made, ReadIdefics3(std::move(config), source));
  return MakePicturesAndFrames(std::move(made.pictures), ReadVideo(source, made.tokens_per_tile, made.patch),
                               source.limits);
}

}  // namespace evenkeel::preprocess
