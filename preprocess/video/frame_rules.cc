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

// The count before rounding by arange; 0 or less if the rule finds no frame.
double WantedCount(const FrameChoice& choice, double total, double video_fps) {
  const double wanted = total / video_fps * choice.fps;
  const double multiple = choice.multiple;
  const double most = FloorTo(std::min<double>(choice.max_frames, total), multiple);
  switch (choice.rule) {
    case FrameRule::kQwenVlUtils:
      return FloorTo(Clamp(wanted, CeilTo(choice.min_frames, multiple), most, total), multiple);
    case FrameRule::kQwen2VlProcessor:
      return choice.num_frames != 0 ? choice.num_frames
                                    : FloorTo(Clamp(wanted, choice.min_frames, most, total), multiple);
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
    case FrameRule::kAll:
      return total;
  }
  return 0;
}

// Frames per second; 0 if unknown.
double RateOf(const MediaFacts& facts) {
  return facts.fps_den == 0 ? 0 : static_cast<double>(facts.fps_num) / facts.fps_den;
}

// np.linspace(0, total - 1, count).round(): f64, halves to even.
void Linspace(uint32_t total, std::span<uint32_t> chosen) {
  const auto count = static_cast<uint32_t>(chosen.size());
  double step = count > 1 ? static_cast<double>(total - 1) / (count - 1) : 0;
  for (uint32_t i = 0; i < count; ++i) chosen[i] = static_cast<uint32_t>(std::nearbyint(i * step));
  if (count > 1) chosen.back() = total - 1;
}

// The number of elements of torch.arange(first, total, step).
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

// The frames shown at the middles of `count` equal spans. With times: of the time span, in 128-bit integers
// because a product of two 64-bit times may overflow.
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

absl::StatusOr<FrameRule> FrameRuleOf(std::string_view word, FrameRule transformers, FrameRule usual) {
  if (word.empty()) return usual;
  const std::pair<const char*, FrameRule> rules[] = {{"qwen_vl_utils", FrameRule::kQwenVlUtils},
                                                     {"transformers", transformers},
                                                     {"uniform", FrameRule::kUniform}};
  std::vector<std::string> known;
  for (const auto& [name, rule] : rules) {
    if (word == name) return rule;
    known.emplace_back(name);
  }
  return UnknownWord("frame_rule", word, known);
}

std::string_view FrameRuleName(FrameRule rule) {
  switch (rule) {
    case FrameRule::kQwenVlUtils:
      return "qwen_vl_utils";
    case FrameRule::kQwen2VlProcessor:
      return "transformers_qwen2_vl";
    case FrameRule::kQwen3VlProcessor:
      return "transformers_qwen3_vl";
    case FrameRule::kInternVlProcessor:
      return "transformers_internvl";
    case FrameRule::kDefaultProcessor:
      return "transformers_default";
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
  if (!(wanted >= 1)) {
    return absl::InvalidArgumentError(absl::StrCat("no frame of ", facts.num_frames,
                                                   " is chosen by the rule ",
                                                   std::string(FrameRuleName(choice.rule))));
  }
  if (wanted > total) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a video of ", facts.num_frames, " frames has fewer than the ", wanted, " that num_frames asks for"));
  }
  // The quotient may be rounded so that torch.arange has one more element than wanted.
  if (choice.rule == FrameRule::kQwen2VlProcessor) wanted = ArangeCount(0, total, total / wanted);
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
  switch (choice.rule) {
    case FrameRule::kQwen2VlProcessor:
      return Arange(0, total, total / WantedCount(choice, total, RateOf(facts)), chosen);
    case FrameRule::kInternVlProcessor: {
      const double wanted = WantedCount(choice, total, RateOf(facts));
      return Arange(FirstOf(choice, total, wanted), total, total / wanted, chosen);
    }
    case FrameRule::kDefaultProcessor:
      for (uint32_t i = 0; i < count; ++i)
        chosen[i] = static_cast<uint32_t>(uint64_t{i} * total / uint64_t{count});
      return;
    case FrameRule::kAll:
      return std::iota(chosen.begin(), chosen.end(), 0u);
    case FrameRule::kUniform:
      return Middles(total, times, chosen);
    case FrameRule::kQwenVlUtils:
    case FrameRule::kQwen3VlProcessor:
      return Linspace(total, chosen);
  }
}

}  // namespace evenkeel::preprocess
