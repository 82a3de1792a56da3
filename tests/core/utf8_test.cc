#include "core/utf8.h"

#include <gtest/gtest.h>

#include <string>

namespace evenkeel {
namespace {

TEST(Utf8, KeepsWhatIsWellFormed) {
  for (const char* good : {"", "plain", "\xC2\xA9", "\xE2\x82\xAC", "\xF0\x9F\x98\x80", "\xEF\xBF\xBF"}) {
    EXPECT_TRUE(IsUtf8(good)) << good;
  }
  EXPECT_EQ(ValidUtf8Prefix("gr\xC3\xBC\xC3\x9F \xE2\x82\xAC \xF0\x9F\x9A\xA2"), 15u);
}

TEST(Utf8, StopsAtTheFirstByteThatIsNot) {
  for (const char* bad : {"\x80", "\xC0\x80", "\xC0\xAF", "\xC1\xBF", "\xC3", "\xE0\x80\x80", "\xE0\x80\xAF",
                          "\xED\xA0\x80", "\xF0\x80\x80\x80", "\xF4\x90\x80\x80", "\xF5\x80\x80\x80",
                          "\xF8\x88\x80\x80\x80", "\xC2", "\xE2\x82", "\xFF"}) {
    EXPECT_FALSE(IsUtf8(bad)) << bad;
    EXPECT_EQ(ValidUtf8Prefix(std::string("ab") + bad), 2u) << bad;
  }
}

TEST(Utf8, IsPrintedWithoutControlCharacters) {
  EXPECT_EQ(Printable("a\n\xFF\xC2\xA9"), "a\\x0a\\xff\xC2\xA9");
}

}  // namespace
}  // namespace evenkeel
