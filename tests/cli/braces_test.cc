// What the Python package braceexpand 0.1.7 gives for the same patterns, and patterns that are refused.
#include "cli/braces.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "tests/mutations.h"

namespace evenkeel::cli {
namespace {

using Names = std::vector<std::string>;

TEST(Braces, AreExpandedAsBraceexpandDoes) {
  const std::vector<std::pair<std::string, Names>> kExpected = {
      {R"(a-{000..003}.tar)", {"a-000.tar", "a-001.tar", "a-002.tar", "a-003.tar"}},
      {R"({a,b}{1,2})", {"a1", "a2", "b1", "b2"}},
      {R"(x{2.{5..7},3.{2,3}})", {"x2.5", "x2.6", "x2.7", "x3.2", "x3.3"}},
      {R"({08..10})", {"08", "09", "10"}},
      {R"({7..010})", {"007", "008", "009", "010"}},
      {R"({4..1})", {"4", "3", "2", "1"}},
      {R"({2..-1})", {"2", "1", "0", "-1"}},
      {R"({-02..2})", {"-02", "-01", "000", "001", "002"}},
      {R"({a..g..2})", {"a", "c", "e", "g"}},
      {R"({y..B..25})", {"y", "Z"}},
      {R"({Z..b})", {"Z", "a", "b"}},
      {R"({1..10..3})", {"1", "4", "7", "10"}},
      {R"({10..1..-4})", {"10", "6", "2"}},
      {R"({1..3..0})", {"1", "2", "3"}},
      {R"(h{,.bak})", {"h", "h.bak"}},
      {R"({x})", {"{x}"}},
      {R"({{a,b}})", {"{a}", "{b}"}},
      {R"({})", {"{}"}},
      {R"(a{b{c}d}e)", {"a{b{c}d}e"}},
      {R"({a..})", {"{a..}"}},
      {R"({..})", {"{..}"}},
      {R"({1..a})", {"{1..a}"}},
      {R"(\{1,2\})", {"{1,2}"}},
      {R"({a\,b,c})", {"a,b", "c"}},
      {R"({1..2,3})", {"1..2", "3"}},
      {R"({0..0})", {"0"}},
      {R"({-0..1})", {"0", "1"}},
      {R"(a,b)", {"a,b"}},
      {R"({a,{b,c}d}-{0..1})", {"a-0", "a-1", "bd-0", "bd-1", "cd-0", "cd-1"}},
      {R"()", {""}},
  };
  for (const auto& [pattern, names] : kExpected) {
    const auto expanded = ExpandBraces(pattern, 1000);
    ASSERT_TRUE(expanded.ok()) << pattern << ": " << expanded.status();
    EXPECT_EQ(*expanded, names) << pattern;
  }
}

TEST(Braces, ThatAreNotBalancedAreRefused) {
  for (const char* pattern : {"{", "}", "a{1..2", "{1{2,3}", "}{", "{a,b}}"}) {
    const auto status = ExpandBraces(pattern, 1000).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << pattern;
    EXPECT_NE(status.message().find("not balanced"), std::string::npos) << status;
  }
}

TEST(Braces, OfManyNamesAreRefusedBeforeTheyTakeMemory) {
  for (const std::string& pattern : {std::string("{0..999999999}"), std::string("{0..9}{0..9}{0..9}{0..9}"),
                                     std::string("{a..z}{A..Z}{1..9}")}) {
    EXPECT_TRUE(absl::IsResourceExhausted(ExpandBraces(pattern, 1000).status())) << pattern;
  }
  EXPECT_EQ(ExpandBraces("{0..9}{0..9}{0..9}", 1000)->size(), 1000u);
  // Few names, but long ones.
  const std::string wide = std::string(3000, 'x') + "{1..400000}";
  EXPECT_TRUE(absl::IsResourceExhausted(ExpandBraces(wide, 1000000).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(ExpandBraces("{1..12345678901234567890}", 1000).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(ExpandBraces(std::string(kMaxPatternBytes + 1, 'a'), 1000).status()));
  const std::string deep = std::string(100, '{') + "a,b" + std::string(100, '}');
  EXPECT_TRUE(absl::IsInvalidArgument(ExpandBraces(deep, 1000).status()));
}

TEST(Braces, OfAnyTextGiveNamesOrAnError) {
  const std::string letters = "{},.\\01az-";
  Dice dice(7);
  int expanded = 0;
  for (int n = 0; n < 20000; ++n) {
    std::string pattern;
    for (uint64_t i = dice.Roll(24); i > 0; --i) pattern += letters[dice.Roll(letters.size())];
    const auto names = ExpandBraces(pattern, 100);
    if (!names.ok()) continue;
    ++expanded;
    EXPECT_GE(names->size(), 1u) << pattern;
    EXPECT_LE(names->size(), 100u) << pattern;
  }
  EXPECT_GT(expanded, 2000);
}

}  // namespace
}  // namespace evenkeel::cli
