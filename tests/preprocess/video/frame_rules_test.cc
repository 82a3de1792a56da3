#include "preprocess/video/frame_rules.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <set>

#include "absl/status/status.h"
#include "tests/preprocess/files.h"

namespace evenkeel::preprocess {
namespace {

constexpr FrameRule kRules[] = {FrameRule::kQwenVlUtils, FrameRule::kQwen2VlProcessor,
                                FrameRule::kQwen3VlProcessor, FrameRule::kUniform};
constexpr FrameRule kInternVl = FrameRule::kInternVlProcessor;

MediaFacts Video(uint32_t frames, uint32_t fps_num, uint32_t fps_den = 1) {
  MediaFacts facts;
  facts.medium = Medium::kVideo;
  facts.num_frames = frames;
  facts.fps_num = fps_num;
  facts.fps_den = fps_den;
  return facts;
}

std::vector<uint32_t> Chosen(const FrameChoice& choice, const MediaFacts& facts,
                             const std::vector<int64_t>& times = {}) {
  absl::StatusOr<uint32_t> count = NumChosenFrames(choice, facts);
  EXPECT_TRUE(count.ok()) << count.status();
  std::vector<uint32_t> chosen = {9999};  // what is there is replaced
  ChooseFrames(choice, facts, count.value_or(0), times, chosen);
  return chosen;
}

TEST(FrameRules, EqualTheVideoProcessorsOfTransformers) {
  std::ifstream file(GoldenPath("video/frames.txt"));
  std::string name;
  uint32_t total, num, den, count;
  uint64_t checksum;
  FrameChoice choice;
  int lines = 0, longer = 0;
  while (file >> name >> total >> num >> den >> choice.fps >> choice.min_frames >> choice.max_frames >>
         count >> checksum) {
    ++lines;
    choice.rule = name == "qwen2_vl" ? FrameRule::kQwen2VlProcessor : FrameRule::kQwen3VlProcessor;
    std::vector<uint32_t> chosen = Chosen(choice, Video(total, num, den));
    uint64_t sum = 0;
    for (size_t i = 0; i < chosen.size(); ++i) sum += (i + 1) * uint64_t{chosen[i]};
    EXPECT_EQ(chosen.size(), count) << name << " " << total << " at " << num << "/" << den;
    EXPECT_EQ(sum, checksum) << name << " " << total << " at " << num << "/" << den;
    longer += choice.rule == FrameRule::kQwen2VlProcessor && count % 2 == 1;
  }
  EXPECT_EQ(lines, 800);
  EXPECT_GT(longer, 0) << "the case of one frame more is among them";
}

TEST(FrameRules, EqualTheVideoProcessorOfInternVl) {
  std::ifstream file(GoldenPath("video/frames-internvl.txt"));
  uint32_t total, num, den, count;
  uint64_t checksum;
  double first;
  FrameChoice choice{.rule = kInternVl, .multiple = 1};
  int lines = 0, refused = 0;
  while (file >> total >> num >> den >> choice.fps >> choice.num_frames >> first >> count >> checksum) {
    ++lines;
    SCOPED_TRACE(lines);
    choice.first = first < 0 ? std::nullopt : std::optional<double>(first);
    if (count == 0) {
      ++refused;
      EXPECT_TRUE(absl::IsInvalidArgument(NumChosenFrames(choice, Video(total, num, den)).status()));
      continue;
    }
    std::vector<uint32_t> chosen = Chosen(choice, Video(total, num, den));
    uint64_t sum = 0;
    for (size_t i = 0; i < chosen.size(); ++i) sum += (i + 1) * uint64_t{chosen[i]};
    EXPECT_EQ(chosen.size(), count);
    EXPECT_EQ(sum, checksum);
  }
  EXPECT_EQ(lines, 400);
  EXPECT_GT(refused, 40);
  EXPECT_LT(refused, 200);
}

TEST(FrameRules, InternVlTakesTheMiddlesOfEqualSpansAsItsProjectDid) {
  EXPECT_EQ(Chosen({.rule = kInternVl, .num_frames = 4}, Video(40, 10)),
            (std::vector<uint32_t>{5, 15, 25, 35}));
  EXPECT_EQ(Chosen({.rule = kInternVl, .num_frames = 4, .first = 0}, Video(40, 10)),
            (std::vector<uint32_t>{0, 10, 20, 30}));
  EXPECT_EQ(Chosen({.rule = kInternVl, .fps = 1}, Video(40, 10)), (std::vector<uint32_t>{5, 15, 25, 35}));
}

TEST(FrameRules, AllTakesEveryFrame) {
  EXPECT_EQ(Chosen({FrameRule::kAll}, Video(5, 30)), (std::vector<uint32_t>{0, 1, 2, 3, 4}));
}

TEST(FrameRules, QwenVlUtilsTakesAnEvenNumberWithinItsBounds) {
  const FrameChoice choice;
  EXPECT_EQ(*NumChosenFrames(choice, Video(300, 30)), 20u);
  EXPECT_EQ(*NumChosenFrames(choice, Video(24, 12)), 4u);
  EXPECT_EQ(*NumChosenFrames(choice, Video(3, 30)), 2u);
  EXPECT_EQ(*NumChosenFrames(choice, Video(100000, 30)), 768u);
  EXPECT_EQ(Chosen(choice, Video(24, 12)), (std::vector<uint32_t>{0, 8, 15, 23}));
}

TEST(FrameRules, HalvesRoundToEven) {
  FrameChoice choice{FrameRule::kQwen3VlProcessor, 1, 3, 3};
  EXPECT_EQ(Chosen(choice, Video(6, 1)), (std::vector<uint32_t>{0, 2, 5}));  // 2.5 -> 2
  EXPECT_EQ(Chosen(choice, Video(4, 1)), (std::vector<uint32_t>{0, 2, 3}));  // 1.5 -> 2
}

TEST(FrameRules, EveryChoiceIsAscendingWithinTheVideoAndAsLongAsItsCount) {
  Dice dice(11);
  for (int round = 0; round < 4000; ++round) {
    MediaFacts facts = Video(2 + dice.Roll(round % 2 == 0 ? 12 : 6000), 1 + dice.Roll(60000),
                             1 + dice.Roll(round % 3 == 0 ? 1001 : 40));
    for (FrameRule rule : kRules) {
      FrameChoice choice{rule, 0.25 * (1 + dice.Roll(40)), 2 + static_cast<uint32_t>(dice.Roll(8)), 768};
      absl::StatusOr<uint32_t> count = NumChosenFrames(choice, facts);
      ASSERT_TRUE(count.ok()) << count.status();
      ASSERT_GE(*count, 1u);
      ASSERT_LE(*count, std::min(facts.num_frames, 768u) + 1);
      ASSERT_TRUE(rule != FrameRule::kQwenVlUtils || *count % 2 == 0);
      const std::vector<uint32_t> chosen = Chosen(choice, facts);
      ASSERT_EQ(chosen.size(), *count);
      ASSERT_TRUE(std::is_sorted(chosen.begin(), chosen.end()));
      ASSERT_LT(chosen.back(), facts.num_frames);
      if (rule == FrameRule::kQwenVlUtils || rule == FrameRule::kQwen3VlProcessor) {
        ASSERT_EQ(chosen.front(), 0u);
        ASSERT_EQ(std::set<uint32_t>(chosen.begin(), chosen.end()).size(), *count);
      }
    }
  }
}

TEST(FrameRules, UniformTakesTheMiddlesOfEqualSpans) {
  FrameChoice choice{FrameRule::kUniform, 2};
  EXPECT_EQ(Chosen(choice, Video(48, 12)), (std::vector<uint32_t>{3, 9, 15, 21, 27, 33, 39, 45}));
  std::vector<int64_t> even(49);
  for (int i = 0; i < 49; ++i) even[i] = 100 + 40 * i;
  EXPECT_EQ(Chosen(choice, Video(48, 12), even), Chosen(choice, Video(48, 12)));
}

TEST(FrameRules, UniformFollowsTheTimesOfAVariableRate) {
  FrameChoice choice{FrameRule::kUniform, 1, 4, 4};
  // The first frame is shown for three quarters of the time.
  EXPECT_EQ(Chosen(choice, Video(4, 1), {0, 30, 33, 36, 40}), (std::vector<uint32_t>{0, 0, 0, 2}));
  EXPECT_EQ(Chosen(choice, Video(4, 1), {-8, -7, -6, -5, 0}), (std::vector<uint32_t>{1, 3, 3, 3}));
}

TEST(FrameRules, WhatCannotBeChosenFromIsRefused) {
  for (FrameRule rule : kRules) {
    EXPECT_TRUE(absl::IsInvalidArgument(NumChosenFrames({rule}, Video(0, 30)).status()));
    EXPECT_TRUE(absl::IsInvalidArgument(NumChosenFrames({rule}, Video(9, 30, 0)).status()));
    EXPECT_TRUE(absl::IsInvalidArgument(NumChosenFrames({rule}, Video(9, 0)).status()));
  }
  EXPECT_TRUE(absl::IsInvalidArgument(NumChosenFrames({FrameRule::kQwenVlUtils}, Video(1, 30)).status()));
  EXPECT_TRUE(
      absl::IsInvalidArgument(NumChosenFrames({FrameRule::kQwen2VlProcessor}, Video(1, 30)).status()));
  EXPECT_EQ(*NumChosenFrames({FrameRule::kQwen3VlProcessor}, Video(1, 30)), 1u);
}

TEST(FrameRules, AJobsWordMeansAFamilysRule) {
  auto rule = [](std::string_view word) {
    return FrameRuleOf(word, FrameRule::kQwen3VlProcessor, FrameRule::kQwenVlUtils);
  };
  EXPECT_EQ(*rule(""), FrameRule::kQwenVlUtils);
  EXPECT_EQ(*rule("transformers"), FrameRule::kQwen3VlProcessor);
  EXPECT_EQ(*rule("qwen_vl_utils"), FrameRule::kQwenVlUtils);
  EXPECT_EQ(*rule("uniform"), FrameRule::kUniform);
  EXPECT_TRUE(absl::IsInvalidArgument(rule("random").status()));
}

}  // namespace
}  // namespace evenkeel::preprocess
