// Damaged media of every kind: refused or produced, the same on every run, CPU and side of the isolation.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "tests/preprocess/files.h"
#include "tests/source_dir.h"

namespace evenkeel::isolation {
namespace {

// The line that a campaign over the golden media prints.
std::string Campaign(const std::string& environment, const std::string& options) {
  const std::string command =
      absl::StrCat(environment, " ", EVENKEEL_CAMPAIGN, " --count ", MutationCount(210), " ", options, " ",
                   SourceDir(), "/tests/golden/data");
  FILE* run = popen(command.c_str(), "r");
  if (run == nullptr) return "";
  char line[200] = {};
  const bool printed = std::fgets(line, sizeof(line), run) != nullptr;
  EXPECT_EQ(pclose(run), 0) << command;
  return printed ? line : "";
}

TEST(Mutations, HaveOneOutcomeOnEveryRunAndCpuAndSideOfTheIsolation) {
  const std::string plain = Campaign("", "");
  EXPECT_THAT(plain, testing::HasSubstr("files, 0 attempts failed, digest "));
  EXPECT_EQ(Campaign("", "--isolated"), plain);
  EXPECT_EQ(Campaign("GLIBC_TUNABLES=glibc.cpu.hwcaps=-AVX512F,-AVX2,-FMA,-FMA4,-AVX2_Usable,-FMA_Usable,"
                     "-AVX512F_Usable JSIMD_FORCESSE2=1 EVENKEEL_CPU=baseline",
                     ""),
            plain);
  EXPECT_EQ(Campaign("EVENKEEL_CPU=avx2", ""), plain);
}

}  // namespace
}  // namespace evenkeel::isolation
