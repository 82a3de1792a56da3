#include "core/job_syntax.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace evenkeel {
namespace {

using testing::ElementsAre;

TEST(WholeNumber, AcceptsDecimalsAndSuffixesWhereAsked) {
  EXPECT_EQ(*ParseWholeNumber("0", false), 0u);
  EXPECT_EQ(*ParseWholeNumber("18446744073709551615", false), ~0ull);
  EXPECT_EQ(*ParseWholeNumber("64MiB", true), 64ull << 20);
  EXPECT_EQ(*ParseWholeNumber("3KiB", true), 3072u);
  EXPECT_EQ(*ParseWholeNumber("4GiB", true), 4ull << 30);
  EXPECT_EQ(*ParseWholeNumber("2k", true), 2000u);
  EXPECT_EQ(*ParseWholeNumber("2m", true), 2000000u);
}

TEST(WholeNumber, RefusesEverythingElse) {
  for (const char* bad :
       {"", "-1", "+1", "1.0", "1e3", "0x10", "007", "1_000", " 1", "1 ", "18446744073709551616", "1k"}) {
    EXPECT_FALSE(ParseWholeNumber(bad, false).ok()) << bad;
  }
  for (const char* bad : {"MiB", "1TiB", "1 MiB", "1kk", "18446744073709551615k", "17179869184GiB", "1KIB"}) {
    EXPECT_FALSE(ParseWholeNumber(bad, true).ok()) << bad;
  }
}

TEST(Ranks, KeepTheOrderWritten) {
  EXPECT_THAT(*ParseRanks("0-3,8"), ElementsAre(0, 1, 2, 3, 8));
  EXPECT_THAT(*ParseRanks("5,4,0-1"), ElementsAre(5, 4, 0, 1));
  EXPECT_THAT(*ParseRanks("7"), ElementsAre(7));
  EXPECT_EQ(ParseRanks("0-1048575")->size(), 1048576u);
}

TEST(Ranks, RefuseRepetitionAndNonsense) {
  EXPECT_EQ(ParseRanks("0-3,2").status().message(), "rank 2 is given twice");
  EXPECT_EQ(ParseRanks("3-0").status().message(), "the ranks 3-0 run backwards");
  for (const char* bad : {"", ",", "1,", "a", "-1", "1-", "1-2-3", "0, 1", "1048576", "4294967296", "1.0"}) {
    EXPECT_FALSE(ParseRanks(bad).ok()) << bad;
  }
}

TEST(Ranges, ExpandWithPaddingAndMultiply) {
  EXPECT_THAT(*ExpandRanges("a.tar"), ElementsAre("a.tar"));
  EXPECT_THAT(*ExpandRanges("a-{008..010}.tar"), ElementsAre("a-008.tar", "a-009.tar", "a-010.tar"));
  EXPECT_THAT(*ExpandRanges("{8..10}"), ElementsAre("8", "9", "10"));
  EXPECT_THAT(*ExpandRanges("{0..1}/{0..1}"), ElementsAre("0/0", "0/1", "1/0", "1/1"));
  EXPECT_THAT(*ExpandRanges("{5..5}"), ElementsAre("5"));
  EXPECT_EQ(ExpandRanges("{000000..999999}")->size(), 1000000u);
}

TEST(Ranges, RefuseWhatIsMalformedOrTooMany) {
  for (const char* bad :
       {"{", "}", "a}b{", "{1..2", "{a..b}", "{1,2}", "{}", "{..}", "{1..}", "{-1..2}", "{{1..2}}", "{2..1}",
        "{0..1000000}", "{0..999999}{0..999999}", "{0..18446744073709551615}", "{0..18446744073709551616}"}) {
    EXPECT_FALSE(ExpandRanges(bad).ok()) << bad;
  }
  EXPECT_FALSE(ExpandRanges("{0..999999}" + std::string(100000, 'x')).ok());
}

TEST(Nearest, CountsEdits) {
  EXPECT_EQ(Nearest("datset", {"name", "seed", "datasets", "index"}), "datasets");
  EXPECT_EQ(Nearest("", {"abc", "a"}), "a");
  EXPECT_EQ(Nearest("xx", {"ab", "cd"}), "ab");  // the first of equals
  EXPECT_EQ(Nearest(std::string(1 << 20, 'a'), {"b", "a"}), "a");
}

TEST(ShortText, CutsBetweenCharactersAndEscapes) {
  EXPECT_EQ(ShortText("a\nb\x01"), "a\\nb\\x01");
  std::string text = std::string(59, 'a') + "\xc3\xbc" + std::string(100, 'b');
  EXPECT_EQ(ShortText(text), std::string(59, 'a') + "...");
}

}  // namespace
}  // namespace evenkeel
