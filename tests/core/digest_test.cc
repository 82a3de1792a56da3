// The vectors here are those of docs/digests.md. They never change within a stream_version.
#include "core/digest.h"

#include <cmath>
#include <limits>
#include <random>
#include <utility>

#include "gtest/gtest.h"

namespace evenkeel {
namespace {

std::string DoubleText(double value) {
  CanonicalText text("t");
  text.Add("k", value);
  return text.text().substr(4, text.text().size() - 5);  // between "t\nk=" and "\n"
}

TEST(Digest, HasTheDocumentedVectors) {
  EXPECT_EQ(DigestOf("").Hex(), "99aa06d3014798d86001c324468d497f");
  EXPECT_EQ(DigestOf("evenkeel").Hex(), "ed626a75cefd5fac3c81f5f8a6204efa");
  Digester digester;
  digester.UpdateU64(0x0102030405060708);
  EXPECT_EQ(digester.Finish(), DigestOf(std::string_view("\x08\x07\x06\x05\x04\x03\x02\x01", 8)));
}

TEST(Digest, HexRoundTripsAndRefusesEverythingElse) {
  Digest digest = DigestOf("evenkeel");
  Digest back;
  ASSERT_TRUE(Digest::FromHex(digest.Hex(), &back));
  EXPECT_EQ(back, digest);
  Digest untouched = back;
  for (std::string bad : {std::string(), std::string(31, '0'), std::string(33, '0'), std::string(32, 'g'),
                          "0x" + std::string(30, '0'), std::string(31, '0') + "\n"}) {
    EXPECT_FALSE(Digest::FromHex(bad, &back)) << bad;
  }
  EXPECT_EQ(back, untouched);
  ASSERT_TRUE(Digest::FromHex("ABCDEFabcdef00000000000000000000", &back));
  EXPECT_EQ(back.Hex(), "abcdefabcdef00000000000000000000");
}

TEST(Digester, DoesNotDependOnHowBytesAreCut) {
  std::mt19937 random(1);
  std::string text(5000, '\0');
  for (char& c : text) c = static_cast<char>(random());
  for (int round = 0; round < 50; ++round) {
    Digester digester;
    for (size_t at = 0; at < text.size();) {
      size_t size = std::min<size_t>(random() % 700, text.size() - at);
      digester.Update(std::string_view(text).substr(at, size));
      at += size;
    }
    ASSERT_EQ(digester.Finish(), DigestOf(text));
  }
}

TEST(Digester, StartsAnewAfterResetAndSurvivesAMove) {
  Digester first;
  first.Update("something");
  first.Reset();
  first.Update("even");
  Digester second = std::move(first);
  second.Update("keel");
  Digester third;
  third = std::move(second);
  EXPECT_EQ(third.Finish(), DigestOf("evenkeel"));
  EXPECT_EQ(third.Finish(), DigestOf("evenkeel"));  // finishing changes nothing
}

TEST(CanonicalText, EscapesSoThatNoTwoTextsAreEqual) {
  CanonicalText tricky("title");
  tricky.Add("a", std::string_view("1\nb=2"));
  CanonicalText plain("title");
  plain.Add("a", std::string_view("1"));
  plain.Add("b", std::string_view("2"));
  EXPECT_EQ(tricky.text(), "title\na=1\\nb=2\n");
  EXPECT_EQ(plain.text(), "title\na=1\nb=2\n");
  CanonicalText backslash("title");
  backslash.Add("a", std::string_view("1\\nb=2"));
  EXPECT_EQ(backslash.text(), "title\na=1\\\\nb=2\n");
  EXPECT_EQ(plain.digest(), DigestOf(plain.text()));
}

TEST(CanonicalText, WritesDoublesExactly) {
  EXPECT_EQ(DoubleText(0.0), "0x0p+0");
  EXPECT_EQ(DoubleText(-0.0), "-0x0p+0");
  EXPECT_EQ(DoubleText(1.0), "0x1p+0");
  EXPECT_EQ(DoubleText(0.1), "0x1.999999999999ap-4");
  EXPECT_EQ(DoubleText(-1.5), "-0x1.8p+0");
  EXPECT_EQ(DoubleText(std::numeric_limits<double>::max()), "0x1.fffffffffffffp+1023");
  EXPECT_EQ(DoubleText(std::numeric_limits<double>::denorm_min()), "0x0.0000000000001p-1022");
  EXPECT_EQ(DoubleText(std::numeric_limits<double>::infinity()), "inf");
}

// The C library writes the same text in the C locale; the tests may rely on that, the digest must not.
TEST(CanonicalText, AgreesWithPrintfOnRandomDoubles) {
  std::mt19937_64 random(2);
  for (int i = 0; i < 20000; ++i) {
    uint64_t bits = random();
    double value;
    __builtin_memcpy(&value, &bits, sizeof(value));
    if (!std::isfinite(value)) continue;
    char expected[64];
    snprintf(expected, sizeof(expected), "%a", value);
    ASSERT_EQ(DoubleText(value), expected);
  }
}

}  // namespace
}  // namespace evenkeel
