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

// Computed without any vector instructions: whatever the processor has, the sums are these.
TEST(Digest, IsTheSameWhateverTheProcessorHas) {
  const std::pair<size_t, const char*> kSums[] = {
      {1, "c89f16e01381dd11c00f9d4f580c0c3a"},       {3, "042980e29fe07a72e92112d1e602af4a"},
      {8, "ff5c240882695f409aac4cd28c312a76"},       {16, "09bfcf6d0d0c7508729073442c453ee7"},
      {17, "c0e06f2f6b379f4ad0b31235d80538af"},      {64, "7d7cc02bbb48520eed9a84b3780fc908"},
      {128, "b0c97cf51fbd420ec14ef9bdf2926d91"},     {129, "77672b5beabfd29e1c66bb88fb267529"},
      {240, "05fb829868e88d8b0dfe588c76a0d834"},     {241, "19f9ed05e79938962cb1ed4a30c8bded"},
      {256, "1104622b393022127fd97c6450f19383"},     {512, "cc59276fde939412d21b608b44320be0"},
      {1023, "606e53ea537672a5296b8bdbd696752e"},    {1024, "92da9c0cebcc106c5ec111a1e5a293ae"},
      {1025, "76c00571248d69785ea0264528a903fc"},    {4096, "205cdca1be728c37a76570548864595e"},
      {65536, "9123c55b6141159cd062f29c26da8cf9"},   {100003, "cd0744f2c7f2e8f903d688b82ead917d"},
      {1048583, "c5263ba8351118bc1b2c2461cb5b56fa"},
  };
  std::string bytes(kSums[std::size(kSums) - 1].first, '\0');
  uint64_t value = 1;
  for (char& byte : bytes) {
    value = value * 6364136223846793005ull + 1442695040888963407ull;
    byte = static_cast<char>(value >> 56);
  }
  for (const auto& [size, sum] : kSums) {
    EXPECT_EQ(DigestOf(std::string_view(bytes).substr(0, size)).Hex(), sum) << size;
    Digester digester;
    digester.Update(std::string_view(bytes).substr(0, size / 3));
    digester.Update(std::string_view(bytes).substr(size / 3, size - size / 3));
    EXPECT_EQ(digester.Finish().Hex(), sum) << size << ", in two pieces";
  }
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
