#include "core/cpu.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <string>
#include <tuple>

namespace evenkeel {
namespace {

TEST(Cpu, LevelsAreFoundByTheirNames) {
  for (const CpuLevel level : {CpuLevel::kBaseline, CpuLevel::kAvx2, CpuLevel::kFastest}) {
    const auto found = CpuLevelFromName(CpuLevelName(level));
    ASSERT_TRUE(found.ok()) << found.status();
    EXPECT_EQ(*found, level);
  }
}

TEST(Cpu, AnUnknownLevelIsAnErrorThatNamesTheNearest) {
  for (const auto& [word, nearest] :
       {std::tuple{"basline", "baseline"}, {"AVX2", "avx2"}, {"avx512", "avx2"}, {"fast", "fastest"}}) {
    const auto found = CpuLevelFromName(word);
    ASSERT_EQ(found.status().code(), absl::StatusCode::kInvalidArgument) << word;
    const std::string message(found.status().message());
    EXPECT_NE(message.find("EVENKEEL_CPU"), message.npos) << message;
    EXPECT_NE(message.find(std::string("nearest is '") + nearest + "'"), message.npos) << message;
  }
}

// The environment is read once a process, so each asks in one that is started for it.
TEST(CpuDeathTest, TheEnvironmentDecidesAndAWordThatIsNoneIsRefused) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  constexpr int kRefused = 1;
  const auto level = [](CpuLevel level) { return 10 + static_cast<int>(level); };
  for (const auto& [word, code] : {std::tuple{"", level(CpuLevel::kFastest)},
                                   {"baseline", level(CpuLevel::kBaseline)},
                                   {"avx2", level(CpuLevel::kAvx2)},
                                   {"fastest", level(CpuLevel::kFastest)},
                                   {"avx3", kRefused}}) {
    EXPECT_EXIT(
        {
          setenv("EVENKEEL_CPU", word, 1);
          _exit(CheckCpuLevel().ok() ? level(AllowedCpuLevel()) : kRefused);
        },
        testing::ExitedWithCode(code), "")
        << "'" << word << "'";
  }
}

}  // namespace
}  // namespace evenkeel
