#include "dataset/format/tar_reader.h"

#include <gtest/gtest.h>

#include <random>

#include "dataset/format/shard_scanner.h"
#include "tests/dataset/support.h"

namespace evenkeel::dataset {
namespace {

struct Read {
  std::vector<TarMember> members;
  absl::Status status;
  uint64_t offset = 0;
};

Read ReadTar(const std::string& bytes) {
  MemorySource source;
  source.objects["s.tar"] = bytes;
  TarReader reader(source, "s.tar", bytes.size());
  Read out;
  for (;;) {
    auto member = reader.Next();
    out.offset = reader.offset();
    if (!member.ok()) {
      out.status = member.status();
      return out;
    }
    if (!member->has_value()) return out;
    out.members.push_back(**member);
  }
}

std::vector<ScannedSample> Scan(const std::string& bytes) {
  MemorySource source;
  source.objects["s.tar"] = bytes;
  Limits limits;
  ShardScanner scanner(source, "s.tar", bytes.size(), limits);
  std::vector<ScannedSample> out;
  for (;;) {
    auto sample = scanner.Next();
    EXPECT_TRUE(sample.ok()) << sample.status();
    if (!sample.ok() || !sample->has_value()) return out;
    out.push_back(**sample);
  }
}

TEST(TarReader, FindsMembersWithoutReadingBodies) {
  MemorySource source;
  source.objects["s.tar"] = Tar({{"a.jpg", std::string(1 << 20, 'x')}, {"a.txt", "hi"}});
  TarReader reader(source, "s.tar", source.objects["s.tar"].size());
  auto first = reader.Next();
  ASSERT_TRUE(first.ok() && first->has_value());
  EXPECT_EQ((*first)->name, "a.jpg");
  EXPECT_EQ((*first)->offset, 512u);
  EXPECT_EQ((*first)->size, 1u << 20);
  auto second = reader.Next();
  ASSERT_TRUE(second.ok() && second->has_value());
  EXPECT_EQ(source.objects["s.tar"].substr((*second)->offset, (*second)->size), "hi");
  EXPECT_FALSE(reader.Next()->has_value());
  EXPECT_LT(source.bytes_read, 4096u);
}

TEST(TarReader, TakesTheNameFromPaxGnuPrefixAndOldHeaders) {
  std::string long_name = std::string(150, 'd') + "/k.txt";
  std::string gnu = TarFile("././@LongLink", long_name + std::string(1, '\0'), 'L') + TarFile("short", "1");
  std::string pax =
      PaxHeader(PaxRecord("path", long_name) + PaxRecord("mtime", "1.5")) + TarFile("short", "2");
  std::string prefix = TarHeader("k.txt", 1);
  prefix.replace(345, 3, "dir");
  prefix.replace(148, 8, "        ");
  uint32_t sum = 0;
  for (char c : prefix) sum += static_cast<uint8_t>(c);
  char checksum[9];
  std::snprintf(checksum, sizeof checksum, "%06o", sum);
  prefix.replace(148, 7, std::string(checksum, 6) + std::string(1, '\0'));
  std::string old = TarHeader("old.txt", 1, '\0', "") + TarPadded("4");
  Read read = ReadTar(gnu + pax + prefix + TarPadded("3") + old + TarEnd());
  ASSERT_TRUE(read.status.ok()) << read.status;
  ASSERT_EQ(read.members.size(), 4u);
  EXPECT_EQ(read.members[0].name, long_name);
  EXPECT_EQ(read.members[1].name, long_name);
  EXPECT_EQ(read.members[2].name, "dir/k.txt");
  EXPECT_EQ(read.members[3].name, "old.txt");
  for (const TarMember& member : read.members) EXPECT_EQ(member.refused, "");
}

TEST(TarReader, TakesTheSizeFromPaxAndBase256) {
  std::string pax = PaxHeader(PaxRecord("size", "3")) + TarHeader("a.txt", 0) + TarPadded("abc");
  Read read = ReadTar(pax + TarFile("b.txt", "x") + TarEnd());
  ASSERT_TRUE(read.status.ok()) << read.status;
  EXPECT_EQ(read.members[0].size, 3u);
  EXPECT_EQ(read.members[1].name, "b.txt");
  Read huge = ReadTar(TarHeader("a.txt", 1ull << 40) + TarEnd());
  EXPECT_EQ(huge.status.code(), absl::StatusCode::kDataLoss);
  EXPECT_NE(huge.status.message().find("1099511627776"), absl::string_view::npos) << huge.status;
}

TEST(TarReader, NamesShardAndByteOfEveryDamage) {
  std::string good = TarFile("a.txt", "hello");
  std::string flipped = good + TarFile("b.txt", "x");
  flipped[good.size() + 3] ^= 1;
  struct Case {
    const char* what;
    std::string bytes;
    size_t members;
    uint64_t offset;
  };
  const Case cases[] = {
      {"empty", "", 0, 0},
      {"an end mark and nothing else", TarEnd(), 0, 0},
      {"no end mark", good, 1, good.size()},
      {"cut inside a header", good + TarHeader("b.txt", 1).substr(0, 100), 1, good.size()},
      {"cut inside a body", good + TarHeader("b.txt", 1000) + std::string(500, 'x'), 1, good.size()},
      {"bad checksum", flipped + TarEnd(), 1, good.size()},
      {"a size beyond the end", good + TarHeader("b.txt", 5000) + TarEnd(), 1, good.size()},
      {"data after the end", good + TarEnd() + good, 1, good.size()},
      {"a PAX bomb", good + TarHeader("p", 2 << 20, 'x') + std::string(3 << 20, 'x'), 1, good.size()},
      {"a PAX header alone", good + PaxHeader(PaxRecord("path", "x.txt")) + TarEnd(), 1, good.size() + 1024},
      {"a PAX record that lies", good + PaxHeader("99 path=x\n") + TarFile("b.txt", "x") + TarEnd(), 1,
       good.size()},
      {"a PAX size that is none",
       good + PaxHeader(PaxRecord("size", "-1")) + TarFile("b.txt", "x") + TarEnd(), 1, good.size()},
  };
  for (const Case& c : cases) {
    Read read = ReadTar(c.bytes);
    EXPECT_EQ(read.status.code(), absl::StatusCode::kDataLoss) << c.what << ": " << read.status;
    EXPECT_EQ(read.members.size(), c.members) << c.what;
    EXPECT_NE(read.status.message().find("s.tar: shard damaged at byte "), absl::string_view::npos)
        << read.status;
    EXPECT_GE(read.offset, c.offset) << c.what << ": " << read.status;
  }
}

TEST(TarReader, RefusesEverythingThatIsNoRegularFile) {
  std::string tar = TarHeader("dir/", 0, '5') + TarHeader("a.jpg", 0, '2') + TarHeader("b.jpg", 0, '1') +
                    TarHeader("c.jpg", 0, '3') + TarFile("d.jpg", "x", 'S') +
                    PaxHeader(PaxRecord("GNU.sparse.major", "1")) + TarFile("e.jpg", "x") +
                    PaxHeader(PaxRecord("path", std::string(300, 'n') + ".jpg")) + TarFile("f", "x") +
                    TarFile("g.jpg", "x") + TarEnd();
  Read read = ReadTar(tar);
  ASSERT_TRUE(read.status.ok()) << read.status;
  std::vector<std::string> refused;
  for (const TarMember& member : read.members) refused.push_back(member.refused);
  EXPECT_EQ(refused, (std::vector<std::string>{"link", "link", "device", "sparse file", "sparse file",
                                               "name too long", ""}));
}

TEST(WebDatasetKey, FollowsTheExpressionExactly) {
  struct Case {
    const char *name, *key, *suffix;
  };
  // From Python: re.match(r"^((?:.*/|)[^.]+)[.]([^/]*)$", name)
  for (const Case& c :
       {Case{"a.jpg", "a", "jpg"}, Case{"a/b.seg.PNG", "a/b", "seg.png"}, Case{"d.x/b.jpg", "d.x/b", "jpg"},
        Case{"./a.jpg", "./a", "jpg"}, Case{"a.", "a", ""}, Case{"x/.hidden", "x/", "hidden"},
        Case{"a b.0.jpg", "a b", "0.jpg"}, Case{"/.x", "/", "x"}}) {
    std::string key, suffix;
    ASSERT_TRUE(SplitWebDatasetName(c.name, &key, &suffix)) << c.name;
    EXPECT_EQ(key, c.key) << c.name;
    EXPECT_EQ(suffix, c.suffix) << c.name;
  }
  std::string key, suffix;
  for (const char* name : {"", "noext", ".hidden", "d.x/noext", "a.b/"}) {
    EXPECT_FALSE(SplitWebDatasetName(name, &key, &suffix)) << name;
  }
}

TEST(ShardScanner, GroupsConsecutiveMembersOfOneKey) {
  auto samples = Scan(Tar(
      {{"__index__", "x"}, {"a.jpg", "1"}, {"a.TXT", "2"}, {"README", "x"}, {"b.txt", "3"}, {"a.txt", "4"}}));
  ASSERT_EQ(samples.size(), 3u);
  EXPECT_EQ(samples[0].key, "a");
  ASSERT_EQ(samples[0].members.size(), 2u);
  EXPECT_EQ(samples[0].members[1].suffix, "txt");
  EXPECT_EQ(samples[1].key, "b");
  EXPECT_EQ(samples[2].key, "a");
  for (const ScannedSample& sample : samples) EXPECT_EQ(sample.reason, "");
}

TEST(ShardScanner, ExcludesSamplesThatBreakARuleAndKeepsTheOthers) {
  auto samples = Scan(TarFile("a.jpg", "1") + TarFile("a.JPG", "2") + TarFile("../../etc/passwd.txt", "x") +
                      TarFile("/abs.txt", "x") + TarFile("l.txt", "text") + TarHeader("l.jpg", 0, '2') +
                      TarFile("n\n.txt", "x") + TarFile("\xff.txt", "x") + TarFile("z.txt", "x") + TarEnd());
  std::vector<std::pair<std::string, std::string>> got;
  for (const ScannedSample& sample : samples) got.emplace_back(sample.key, sample.reason);
  EXPECT_EQ(got, (std::vector<std::pair<std::string, std::string>>{{"a", "duplicate suffix"},
                                                                   {"../../etc/passwd", "unsafe name"},
                                                                   {"/abs", "unsafe name"},
                                                                   {"l", "not a regular file"},
                                                                   {"n\n", "unsafe name"},
                                                                   {"\xff", "unsafe name"},
                                                                   {"z", ""}}));
}

TEST(ShardScanner, KeepsWhatLiesBeforeADamageAndDropsTheSampleInProgress) {
  std::string tar = TarFile("a.txt", "1") + TarFile("b.jpg", "2") + TarHeader("b.txt", 1 << 30) + TarEnd();
  auto samples = Scan(tar);
  ASSERT_EQ(samples.size(), 2u);
  EXPECT_EQ(samples[0].key, "a");
  EXPECT_EQ(samples[0].reason, "");
  EXPECT_EQ(samples[1].key, "b");
  EXPECT_EQ(samples[1].reason, "shard damaged");
  EXPECT_EQ(samples[1].detail.find("at byte 2048: "), 0u) << samples[1].detail;
}

TEST(TarReader, EndsOnEveryTruncationAndMutation) {
  std::string tar = PaxHeader(PaxRecord("path", "k/a.jpg")) + TarFile("x", "123") +
                    TarFile("k/a.txt", "hello") + TarFile("././@LongLink", std::string(120, 'n'), 'L') +
                    TarFile("y", "z") + TarEnd();
  for (size_t n = 0; n < tar.size(); n += 7) {
    Read read = ReadTar(tar.substr(0, n));
    EXPECT_LE(read.members.size(), 3u);
    // The second end block is not needed: one says that the archive is whole.
    EXPECT_EQ(read.status.ok(), n >= tar.size() - 1024 + 512) << n;
  }
  std::mt19937_64 random(1);
  for (int i = 0; i < 3000; ++i) {
    std::string mutated = tar;
    for (int flips = 1 + static_cast<int>(random() % 4); flips > 0; --flips) {
      mutated[random() % mutated.size()] = static_cast<char>(random());
    }
    Read read = ReadTar(mutated);
    for (const TarMember& member : read.members) {
      EXPECT_LE(member.offset, mutated.size());
      EXPECT_LE(member.size, mutated.size() - member.offset);
    }
    Scan(mutated);
  }
}

}  // namespace
}  // namespace evenkeel::dataset
