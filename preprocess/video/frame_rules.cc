// Computes how many frames each rule takes from a video, and which. Formulas and their precision follow the
// sources named in the header.
#include "preprocess/video/frame_rules.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "preprocess/unknown_word.h"

namespace evenkeel::preprocess {
namespace {

double FloorTo(double value, double factor) { return std::floor(value / factor) * factor; }
double CeilTo(double value, double factor) { return std::ceil(value / factor) * factor; }

// Python's min(max(wanted, least), most, total).
double Clamp(double wanted, double least, double most, double total) {
  return std::min(std::min(std::max(wanted, least), most), total);
}

// The count before rounding by arange; 0 or less if the rule finds no frame. `wanted` is the duration in
// seconds times the wanted rate, and rarely a whole number: the rules differ in how they round it (down to
// temporal patches, down to whole frames, to nearest) and in whether bounds apply before or after that.
double WantedCount(const FrameChoice& choice, double total, double video_fps) {
  const double wanted = total / video_fps * choice.fps;
  const double multiple = choice.multiple;
  const double most = FloorTo(std::min<double>(choice.max_frames, total), multiple);
  switch (choice.rule) {
    case FrameRule::kQwenVlUtils:
    case FrameRule::kFetchVideo:
      return FloorTo(Clamp(wanted, CeilTo(choice.min_frames, multiple), most, total), multiple);
    case FrameRule::kQwen2VlProcessor:
      return choice.num_frames != 0 ? choice.num_frames
                                    : FloorTo(Clamp(wanted, choice.min_frames, most, total), multiple);
    case FrameRule::kErnie45VlProcessor:  // not rounded
      return choice.num_frames != 0
                 ? choice.num_frames
                 : Clamp(choice.fps == 0 ? total : wanted, choice.min_frames, choice.max_frames, total);
    case FrameRule::kMolmo2Processor: {
      const bool too_fast = choice.fps > 0 && video_fps > choice.fps;
      const double most_frames =
          too_fast ? std::min<double>(choice.num_frames, std::trunc(wanted)) : choice.num_frames;
      return std::max(std::min(most_frames, total), 1.0);
    }
    case FrameRule::kMiniCpmProcessor: {
      const double duration = total / video_fps;
      return duration > choice.num_frames ? std::min<double>(choice.num_frames, std::trunc(duration / 0.1))
                                          : std::ceil(duration);
    }
    case FrameRule::kQwen3VlProcessor:
      return Clamp(std::trunc(wanted), choice.min_frames, choice.max_frames, total);
    case FrameRule::kUniform: {
      double count = Clamp(std::nearbyint(wanted), choice.min_frames, choice.max_frames, total);
      return count >= multiple ? FloorTo(count, multiple) : count;
    }
    case FrameRule::kInternVlProcessor:
      return choice.num_frames != 0 ? choice.num_frames : std::trunc(wanted);
    case FrameRule::kDefaultProcessor:
      return choice.num_frames != 0 ? choice.num_frames : std::max(std::trunc(wanted), 1.0);
    case FrameRule::kGlm4vProcessor:  // counted by ListedFrames
    case FrameRule::kGlm46vProcessor:
    case FrameRule::kSmolVlmProcessor:
    case FrameRule::kAll:
      return total;
  }
  return 0;
}

// Frames per second; 0 if unknown.
double RateOf(const MediaFacts& facts) {
  return facts.fps_den == 0 ? 0 : static_cast<double>(facts.fps_num) / facts.fps_den;
}

// np.linspace(0, total - 1, count).round(): f64, halves to even. numpy multiplies the step, which is rounded
// once, and sets the last element to the end itself.
void Linspace(uint32_t total, std::span<uint32_t> chosen) {
  const auto count = static_cast<uint32_t>(chosen.size());
  double step = count > 1 ? static_cast<double>(total - 1) / (count - 1) : 0;
  for (uint32_t i = 0; i < count; ++i) chosen[i] = static_cast<uint32_t>(std::nearbyint(i * step));
  if (count > 1) chosen.back() = total - 1;
}

// np.linspace(begin, end, count, dtype=int): f64, rounded down after `begin` is added. The last element is
// `end` itself, which the product could miss by a last bit and so by a whole frame.
void FlooredLinspace(uint32_t begin, uint32_t end, uint64_t count, std::vector<uint32_t>& out) {
  out.clear();
  const double step = count > 1 ? static_cast<double>(end - begin) / static_cast<double>(count - 1) : 0;
  for (uint64_t i = 0; i < count; ++i) {
    const double at = static_cast<double>(i) * step + begin;
    out.push_back(count > 1 && i + 1 == count ? end : static_cast<uint32_t>(at));
  }
}

uint32_t CeilWithin(double frame, uint32_t last) {
  return frame >= last ? last : static_cast<uint32_t>(std::ceil(frame));
}

// Glm4vVideoProcessor.sample_frames, before repeated frames are removed. Up to max_duration seconds, one
// frame every 1 / fps seconds; of longer videos max_duration * fps frames at equal distances from the first
// to the end. Times are rounded up to the next frame.
void Glm4vFrames(const FrameChoice& choice, uint32_t total, double video_fps, std::vector<uint32_t>& out) {
  const double duration = total / video_fps;
  const uint32_t last = total - 1;
  if (duration <= choice.max_duration) {
    const double wanted = std::max(std::floor(duration * choice.fps), 1.0);
    // All after the last frame repeat it.
    for (double i = 0; i < wanted && (out.empty() || out.back() != last); ++i) {
      out.push_back(CeilWithin(i * video_fps / choice.fps, last));
    }
    return;
  }
  const double wanted = std::trunc(choice.max_duration * choice.fps);
  if (wanted >= total) {
    out.resize(total);
    std::iota(out.begin(), out.end(), 0u);
    return;
  }
  const double step = wanted > 1 ? duration / (wanted - 1) : 0;
  for (double i = 0; i < wanted; ++i) {
    const double second = wanted > 1 && i + 1 == wanted ? duration : i * step;
    out.push_back(CeilWithin(second * video_fps, last));
  }
}

// Glm46VVideoProcessor.sample_frames, likewise: its rates follow from the duration alone (3 a second up to 30
// s, 1 up to 300 s, else a half), times the frames of a temporal patch. It walks over all frames and takes
// one whenever the next wanted time has come. The number that this gives may be off by some, so it is then
// forced to `wanted` by a linspace.
void Glm46vFrames(const FrameChoice& choice, uint32_t total, double video_fps, std::vector<uint32_t>& out) {
  constexpr double kMaxDuration = 2400, kMaxFrames = 640;
  const double duration = total / video_fps, counted = std::min(duration, kMaxDuration);
  const double fps = counted <= 30 ? 3 : counted <= 300 ? 1 : 0.5;
  const auto wanted =
      static_cast<uint64_t>(std::min(std::trunc(counted * fps * choice.multiple), kMaxFrames));
  if (total < wanted) return FlooredLinspace(0, total - 1, wanted, out);
  const double seconds_per_frame = 1 / video_fps, step = 1 / (choice.multiple * fps);
  double next = 0;
  for (uint32_t frame = 0; frame < total; ++frame) {
    if (frame * seconds_per_frame < next) continue;
    next += step;
    out.push_back(frame);
    if (next >= std::trunc(duration)) break;
  }
  if (out.size() < wanted) FlooredLinspace(out.front(), out.back(), wanted, out);
  if (out.size() > wanted) FlooredLinspace(0, total - 1, wanted, out);
}

// SmolVLMVideoProcessor.sample_frames, before repeated frames are removed: fps frames a second, at most num_frames, at
// equal distances from the first frame to the last one. A second at each end is left out of videos longer than those two
// seconds and num_frames * fps, a product of two numbers that are not seconds, as in the source.
void SmolVlmFrames(const FrameChoice& choice, uint32_t total, double video_fps, std::vector<uint32_t>& out) {
  const double duration = total / video_fps;
  const double wanted =
      std::max(std::min<double>(std::nearbyint(choice.fps * duration), choice.num_frames), 1.0);
  uint32_t begin = 0, end = total - 1;
  if (duration - 2 > choice.num_frames * choice.fps) {
    const double last = std::min<double>(std::trunc(total - video_fps), total - 1);
    if (std::trunc(video_fps) < last) {
      begin = static_cast<uint32_t>(video_fps);
      end = static_cast<uint32_t>(last);
    }
  }
  FlooredLinspace(begin, end, static_cast<uint64_t>(wanted), out);
}

// Whether a rule lists its frames, none twice, and counts them afterwards.
bool IsListed(FrameRule rule) {
  return rule == FrameRule::kGlm4vProcessor || rule == FrameRule::kGlm46vProcessor ||
         rule == FrameRule::kSmolVlmProcessor;
}

// The frames of such a rule: ascending, each once. GLM repeats the last one to an even number.
void ListedFrames(const FrameChoice& choice, uint32_t total, double video_fps, std::vector<uint32_t>& out) {
  out.clear();
  const bool is_smolvlm = choice.rule == FrameRule::kSmolVlmProcessor;
  if (is_smolvlm) {
    SmolVlmFrames(choice, total, video_fps, out);
  } else if (choice.rule == FrameRule::kGlm4vProcessor) {
    Glm4vFrames(choice, total, video_fps, out);
  } else {
    Glm46vFrames(choice, total, video_fps, out);
  }
  out.erase(std::unique(out.begin(), out.end()), out.end());
  if (!is_smolvlm && out.size() % 2 != 0) out.push_back(out.back());
}

// MiniCPMV4_6VideoProcessor.sample_frames without stacked frames: the first frame of each second; of a video of more
// seconds than num_frames as many of those that come every tenth of a second, at equal distances.
void MiniCpmSeconds(const FrameChoice& choice, uint32_t total, double video_fps, std::span<uint32_t> chosen) {
  const double duration = total / video_fps;
  const auto frame_at = [&](double second) {
    return static_cast<uint32_t>(std::min<double>(std::trunc(second * video_fps), total - 1));
  };
  if (duration <= choice.num_frames) {
    for (size_t i = 0; i < chosen.size(); ++i) chosen[i] = frame_at(static_cast<double>(i));
    return;
  }
  static thread_local std::vector<uint32_t> tenths;
  FlooredLinspace(0, static_cast<uint32_t>(duration / 0.1) - 1, chosen.size(), tenths);
  for (size_t i = 0; i < chosen.size(); ++i) chosen[i] = frame_at(tenths[i] / 10.0);
}

// The number of elements of torch.arange(first, total, step): `total` itself is excluded.
double ArangeCount(double first, double total, double step) { return std::ceil((total - first) / step); }

// torch.arange(begin, total, step).int(), whose elements are f32. torch computes blocks of two vectors of
// eight lanes: each vector counts up from its own first element, rounded to f32; the elements after the last
// block count up from `begin`. (Compared with torch 1.13 and 2.15.)
void Arange(double begin, uint32_t total, double step, std::span<uint32_t> chosen) {
  constexpr uint32_t kLanes = 8;
  const auto count = static_cast<uint32_t>(chosen.size());
  const uint32_t in_blocks = count / (2 * kLanes) * (2 * kLanes);
  for (uint32_t i = 0; i < count; ++i) {
    uint32_t first = i < in_blocks ? i / kLanes * kLanes : 0;
    double base = static_cast<float>(begin + first * step);
    auto value = static_cast<float>((i < in_blocks ? base : begin) + (i - first) * step);
    chosen[i] = std::min(static_cast<uint32_t>(value), total - 1);
  }
}

// The first frame of kInternVlProcessor, for a video of `total` frames of which it wants `wanted`.
double FirstOf(const FrameChoice& choice, double total, double wanted) {
  return choice.first ? *choice.first : total / wanted / 2;
}

// The frames shown at the middles of `count` equal spans: at (2 i + 1) / (2 count) of the whole, rounded
// down, for span i. Without times the whole is the number of frames. With times it is the time span, in
// 128-bit integers, because a product of two 64-bit numbers may overflow; the frame is then the last one
// shown at or before that time. Both lists ascend, so one pass over the frames finds all.
void Middles(uint32_t total, std::span<const int64_t> times, std::span<uint32_t> chosen) {
  const auto count = static_cast<uint32_t>(chosen.size());
  if (times.size() != size_t{total} + 1) {
    for (uint32_t i = 0; i < count; ++i)
      chosen[i] = static_cast<uint32_t>((2 * uint64_t{i} + 1) * total / (2 * uint64_t{count}));
    return;
  }
  const auto length = static_cast<unsigned __int128>(times.back() - times.front());
  uint32_t frame = 0;
  for (uint32_t i = 0; i < count; ++i) {
    int64_t at = times.front() + static_cast<int64_t>((2 * uint64_t{i} + 1) * length / (2 * uint64_t{count}));
    while (frame + 1 < total && times[frame + 1] <= at) ++frame;
    chosen[i] = frame;
  }
}

}  // namespace

absl::StatusOr<FrameRule> FrameRuleOf(std::string_view word, FrameRule transformers, FrameRule usual,
                                      bool has_fetch_video) {
  if (word.empty()) return usual;
  const std::pair<const char*, FrameRule> rules[] = {{"qwen_vl_utils", FrameRule::kQwenVlUtils},
                                                     {"fetch_video", FrameRule::kFetchVideo},
                                                     {"transformers", transformers},
                                                     {"uniform", FrameRule::kUniform}};
  std::vector<std::string> known;
  for (const auto& [name, rule] : rules) {
    if (word == name && rule == FrameRule::kFetchVideo && !has_fetch_video) {
      return absl::InvalidArgumentError(
          "processor.frame_rule: fetch_video resizes frames for the Qwen-VL families alone; qwen_vl_utils "
          "chooses the "
          "same frames");
    }
    if (word == name) return rule;
    known.emplace_back(name);
  }
  return UnknownWord("frame_rule", word, known);
}

std::string_view FrameRuleName(FrameRule rule) {
  switch (rule) {
    case FrameRule::kQwenVlUtils:
      return "qwen_vl_utils";
    case FrameRule::kFetchVideo:
      return "fetch_video";
    case FrameRule::kQwen2VlProcessor:
      return "transformers_qwen2_vl";
    case FrameRule::kQwen3VlProcessor:
      return "transformers_qwen3_vl";
    case FrameRule::kInternVlProcessor:
      return "transformers_internvl";
    case FrameRule::kDefaultProcessor:
      return "transformers_default";
    case FrameRule::kGlm4vProcessor:
      return "transformers_glm4v";
    case FrameRule::kGlm46vProcessor:
      return "transformers_glm46v";
    case FrameRule::kSmolVlmProcessor:
      return "transformers_smolvlm";
    case FrameRule::kErnie45VlProcessor:
      return "transformers_ernie4_5_vl";
    case FrameRule::kMolmo2Processor:
      return "transformers_molmo2";
    case FrameRule::kMiniCpmProcessor:
      return "transformers_minicpm";
    case FrameRule::kUniform:
      return "uniform";
    case FrameRule::kAll:
      return "all";
  }
  return "";
}

absl::StatusOr<uint32_t> NumChosenFrames(const FrameChoice& choice, const MediaFacts& facts) {
  const double total = facts.num_frames;
  const double video_fps = RateOf(facts);
  if (facts.num_frames == 0 || !(video_fps > 0)) {
    return absl::InvalidArgumentError(absl::StrCat("video of ", facts.num_frames, " frames at ", video_fps,
                                                   " per second; sampling needs frames and a frame rate"));
  }
  double wanted = WantedCount(choice, total, video_fps);
  if (IsListed(choice.rule)) {
    static thread_local std::vector<uint32_t> chosen;
    ListedFrames(choice, facts.num_frames, video_fps, chosen);
    wanted = static_cast<double>(chosen.size());
  }
  if (!(wanted >= 1)) {
    return absl::InvalidArgumentError(absl::StrCat("no frame of ", facts.num_frames,
                                                   " is chosen by the rule ",
                                                   std::string(FrameRuleName(choice.rule))));
  }
  // A video of less than a frame a second has some more than once by kMiniCpmProcessor.
  if (wanted > total && !IsListed(choice.rule) && choice.rule != FrameRule::kMiniCpmProcessor) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a video of ", facts.num_frames, " frames has fewer than the ", wanted, " that num_frames asks for"));
  }
  // The quotient may be rounded so that torch.arange has one more element than wanted.
  if (choice.rule == FrameRule::kQwen2VlProcessor || choice.rule == FrameRule::kErnie45VlProcessor ||
      choice.rule == FrameRule::kMolmo2Processor)
    wanted = ArangeCount(0, total, total / wanted);
  if (choice.rule == FrameRule::kInternVlProcessor) {
    wanted = ArangeCount(FirstOf(choice, total, wanted), total, total / wanted);
    if (!(wanted >= 1)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "the first frame to choose is beyond the end of a video of ", facts.num_frames, " frames"));
    }
  }
  return static_cast<uint32_t>(wanted);
}

void ChooseFrames(const FrameChoice& choice, const MediaFacts& facts, uint32_t count,
                  std::span<const int64_t> times, std::vector<uint32_t>& chosen) {
  const uint32_t total = facts.num_frames;
  chosen.assign(total == 0 ? 0 : count, 0);
  if (chosen.empty()) return;
  if (IsListed(choice.rule)) {
    ListedFrames(choice, total, RateOf(facts), chosen);
    chosen.resize(count, chosen.back());
    return;
  }
  switch (choice.rule) {
    case FrameRule::kQwen2VlProcessor:
    case FrameRule::kErnie45VlProcessor:
    case FrameRule::kMolmo2Processor:
      return Arange(0, total, total / WantedCount(choice, total, RateOf(facts)), chosen);
    case FrameRule::kInternVlProcessor: {
      const double wanted = WantedCount(choice, total, RateOf(facts));
      return Arange(FirstOf(choice, total, wanted), total, total / wanted, chosen);
    }
    case FrameRule::kDefaultProcessor:
      for (uint32_t i = 0; i < count; ++i)
        chosen[i] = static_cast<uint32_t>(uint64_t{i} * total / uint64_t{count});
      return;
    case FrameRule::kGlm4vProcessor:  // above
    case FrameRule::kGlm46vProcessor:
    case FrameRule::kSmolVlmProcessor:
    case FrameRule::kAll:
      return std::iota(chosen.begin(), chosen.end(), 0u);
    case FrameRule::kMiniCpmProcessor:
      return MiniCpmSeconds(choice, total, RateOf(facts), chosen);
    case FrameRule::kUniform:
      return Middles(total, times, chosen);
    case FrameRule::kQwenVlUtils:
    case FrameRule::kFetchVideo:
    case FrameRule::kQwen3VlProcessor:
      return Linspace(total, chosen);
  }
}

}  // namespace evenkeel::preprocess
