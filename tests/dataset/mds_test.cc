// Shards and lists of MDS: every encoding, rows by address, and shards that contradict themselves.
#include "dataset/format/mds.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "absl/strings/str_cat.h"
#include "core/failure.h"
#include "dataset/format/mds_index.h"
#include "dataset/source/little_endian.h"
#include "dataset/source/mds_address.h"
#include "dataset/source/source_over.h"
#include "tests/dataset/support.h"

namespace evenkeel::dataset {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string Little(uint64_t value, int num_bytes) {
  std::string out;
  PutLittle(value, num_bytes, out);
  return out;
}

const std::vector<MdsField>& Columns() {
  static const auto* const kColumns = new std::vector<MdsField>{{"image", "jpeg"}, {"text", "str"}};
  return *kColumns;
}

// What a scanner finds: "text name=medium", and reasons of exclusions.
struct Scanned {
  std::vector<std::string> samples;
  std::string damage;
  absl::Status status;
};

Scanned Scan(const std::string& shard, const DatasetSpec& dataset = {}, const Limits& limits = {}) {
  MemorySource source;
  source.objects["a.mds"] = shard;
  auto scanner = MakeMdsScanner(dataset, source, "a.mds", shard.size(), limits);
  auto by_address = MakeMdsSource(std::make_unique<SourceOver>(source));
  Scanned out;
  for (;;) {
    auto sample = scanner->Next();
    out.status = sample.status();
    if (!sample.ok() || !sample->has_value()) break;
    if ((*sample)->reason == kShardDamaged) {
      out.damage = (*sample)->detail;
      EXPECT_EQ(out.damage.find("a.mds"), std::string::npos);
      continue;
    }
    std::string seen = (*sample)->reason;
    for (const SampleMember& member : (*sample)->members) {
      std::string bytes(member.size, ' '), again(member.size, ' ');
      EXPECT_TRUE(scanner->ReadMember(member, std::as_writable_bytes(std::span(bytes))).ok());
      EXPECT_TRUE(by_address->ReadAt("a.mds", member.offset, std::as_writable_bytes(std::span(again))).ok());
      EXPECT_EQ(bytes, again);
      absl::StrAppend(&seen, seen.empty() ? "" : " ", member.suffix == "json" ? "" : member.suffix + "=",
                      bytes);
    }
    out.samples.push_back(seen);
  }
  EXPECT_EQ(scanner->damaged(), !out.damage.empty());
  return out;
}

std::string TwoRows() { return MdsShard(Columns(), {{"first", "one \"1\""}, {"", "two"}}); }

TEST(MdsShard, HasRowsWithTextsAndMediaByTheirNames) {
  const Scanned found = Scan(TwoRows());
  EXPECT_THAT(found.samples, ElementsAre(R"({"image": "image.0.jpg", "text": "one \"1\""} image.0.jpg=first)",
                                         R"({"image": null, "text": "two"})"));
  EXPECT_EQ(found.damage, "");
}

TEST(MdsShard, ReadsEveryEncoding) {
  const double pi = 3.140625;
  const float third = 0.333333343f;
  std::string f64(8, ' '), f32(4, ' ');
  std::memcpy(f64.data(), &pi, 8);
  std::memcpy(f32.data(), &third, 4);
  const std::vector<std::tuple<MdsField, std::string, std::string>> values = {
      {{"a", "bytes"}, "raw", "\"a.0\""},
      {{"b", "int", 8}, Little(static_cast<uint64_t>(-5), 8), "-5"},
      {{"c", "int8", 1}, Little(0x80, 1), "-128"},
      {{"d", "uint8", 1}, Little(0x80, 1), "128"},
      {{"e", "int16", 2}, Little(0xFFFF, 2), "-1"},
      {{"f", "uint64", 8}, Little(~0ull, 8), "18446744073709551615"},
      {{"g", "float16", 2}, Little(0x3555, 2), "0.333251953125"},
      {{"h", "float16", 2}, Little(0x0001, 2), "5.960464477539063e-08"},
      {{"i", "float16", 2}, Little(0xFC00, 2), "-Infinity"},
      {{"j", "float32", 4}, f32, "0.3333333432674408"},
      {{"k", "float64", 8}, f64, "3.140625"},
      {{"l", "float32", 4}, Little(0x7FC00000, 4), "NaN"},
      {{"m", "str_int"}, "123456789012345678901234567890", "123456789012345678901234567890"},
      {{"n", "str_float"}, "inf", "\"inf\""},
      {{"o", "str_decimal"}, "0.10", "0.10"},
      {{"p", "json"}, R"({"k": [1, "é"]})", R"({"k": [1, "é"]})"},
      {{"q", "jpegarray"}, Little(2, 4) + Little(1, 4) + Little(3, 4) + "xyyy", R"(["q.0.jpg", "q.1.jpg"])"},
      {{"r", "list[png]"}, MdsListOfMedia({"zz"}), R"(["r.0.png"])"},
      {{"s", "ndarray:int32"}, "????", "null"},
      {{"t", "pkl"}, "\x80\x04.", "null"},
      {{"u", "ndarray:uint8:3", 3}, "abc", "null"},
      {{"v", "str"}, "é\n", R"("é\n")"},
  };
  std::vector<MdsField> columns;
  std::vector<std::string> row;
  std::string expected;
  for (const auto& [column, bytes, json] : values) {
    columns.push_back(column);
    row.push_back(bytes);
    absl::StrAppend(&expected, expected.empty() ? "{" : ", ", "\"", column.name, "\": ", json);
  }
  const Scanned found = Scan(MdsShard(columns, {row, row}));
  EXPECT_EQ(found.damage, "");
  ASSERT_EQ(found.samples.size(), 2u);
  EXPECT_EQ(found.samples[1], expected + "} a.0=raw q.0.jpg=x q.1.jpg=yyy r.0.png=zz");
}

TEST(MdsShard, RefusesAnEncodingThatRowsAreMadeOf) {
  const auto refusal = [](const MdsField& column, const FieldNames& fields) {
    return std::string(
        Scan(MdsShard({column, {"text", "str"}}, {{"?", "words"}}), {.fields = fields}).status.message());
  };
  EXPECT_THAT(refusal({"image", "pil"}, {}), HasSubstr("a.mds: column 'image' has the encoding 'pil'"));
  EXPECT_THAT(refusal({"messages", "pkl"}, {}), HasSubstr("a pickle, which can run any code"));
  EXPECT_THAT(refusal({"frames", "ndarray"}, {.video = "frames"}), HasSubstr("'frames'"));
  EXPECT_EQ(refusal({"image", "pil"}, {.image = "photo"}), "");
  EXPECT_EQ(refusal({"messages", "pkl"}, {.text = "text"}), "");
  EXPECT_EQ(refusal({"frames", "ndarray"}, {}), "");
}

TEST(MdsShard, ExcludesARowWithoutItsNeighbours) {
  const std::vector<MdsField> columns = {{"image", "list[jpeg]"}, {"messages", "json"}};
  const std::string none = MdsListOfMedia({});
  const auto rows = [&](const std::string& list, const std::string& json) {
    return MdsShard(columns, {{none, "1"}, {list, json}, {none, "2"}});
  };
  const auto middle = [](const Scanned& found) {
    EXPECT_EQ(found.damage, "");
    EXPECT_EQ(found.samples.size(), 3u);
    return found.samples.size() == 3 ? found.samples[1] : "";
  };
  EXPECT_EQ(middle(Scan(rows(none, "[1, 2"))), "bad JSON");
  EXPECT_EQ(middle(Scan(rows(none, "1, \"image\": 2"))), "bad JSON");
  Limits limits;
  limits.max_text_bytes = 100;
  EXPECT_EQ(middle(Scan(rows(none, "\"" + std::string(200, 'x') + "\""), {}, limits)), "text too long");
  limits = {};
  limits.max_items = 1;
  EXPECT_THAT(middle(Scan(rows(MdsListOfMedia(std::vector<std::string>(80, "x")), "3"), {}, limits)),
              HasSubstr("too many members"));
}

TEST(MdsShard, EndsWhereItIsCut) {
  const std::string whole = TwoRows();
  const size_t second = whole.size() - 8 - 3;  // its two sizes and its text
  for (size_t size = 0; size < whole.size(); ++size) {
    const Scanned found = Scan(whole.substr(0, size));
    EXPECT_TRUE(found.status.ok()) << found.status;
    EXPECT_NE(found.damage, "");
    EXPECT_EQ(found.samples.size(), size < second ? 0u : 1u) << size;
  }
  EXPECT_THAT(Scan(whole + "x").damage, HasSubstr("data after the last sample"));
}

TEST(MdsShard, NamesWhatContradictsItself) {
  const std::string whole = TwoRows();
  const auto with = [&](size_t at, uint32_t value) {
    std::string shard = whole;
    shard.replace(at, 4, Little(value, 4));
    return Scan(shard).damage;
  };
  const auto size = static_cast<uint32_t>(whole.size());
  const uint32_t begin = static_cast<uint32_t>(GetLittle(whole.data() + 4, 4));
  EXPECT_THAT(with(8, size + 1), HasSubstr(absl::StrCat("sample 0 is at bytes ", begin, " to ", size + 1)));
  EXPECT_THAT(with(8, begin - 1), HasSubstr("sample 0 is at bytes"));  // the offsets fall
  EXPECT_THAT(with(12, begin), HasSubstr("sample 1 is at bytes"));
  EXPECT_THAT(with(8, begin + 4), HasSubstr("its columns have"));
  EXPECT_THAT(with(begin, 4), HasSubstr("its columns have"));  // of the picture, one byte less
  EXPECT_THAT(with(begin, 0xFFFFFFFF), HasSubstr("its columns have"));
  EXPECT_THAT(with(4, 8), HasSubstr("inside the header"));
  EXPECT_THAT(with(4, size + 1), HasSubstr("beyond the end"));
  EXPECT_THAT(with(0, 0xFFFFFFFF), HasSubstr("inside the header"));
  EXPECT_THAT(Scan(MdsShard({{"images", "list[jpeg]"}}, {{Little(0, 4) + Little(9, 4)}})).damage,
              HasSubstr("column 'images': its sizes exceed the column"));
  EXPECT_THAT(Scan(MdsShard({{"images", "jpegarray"}}, {{Little(1, 4) + Little(9, 4) + "x"}})).damage,
              HasSubstr("column 'images': its sizes exceed the column"));
}

TEST(MdsShard, NamesColumnsThatContradictThemselves) {
  const auto with = [](const std::string& from, const std::string& to) {
    std::string config = MdsConfig({{"a", "str"}, {"n", "int", 8}});
    config.replace(config.find(from), from.size(), to);
    std::string shard = Little(0, 4) + Little(8 + config.size(), 4) + config;
    return Scan(shard).damage;
  };
  EXPECT_EQ(with("8", "8"), "");
  EXPECT_THAT(with("\"version\": 2", "\"version\": 1"), HasSubstr("not of version 2"));
  EXPECT_THAT(with("\"mds\"", "\"xsv\""), HasSubstr("its format is not mds"));
  EXPECT_THAT(with("8", "4"), HasSubstr("column 'n': 4 bytes; the encoding int has 8"));
  EXPECT_THAT(with("null, 8", "8, 8"), HasSubstr("column 'a': 8 bytes; the encoding str has 0"));
  EXPECT_THAT(with("null, 8", "null"), HasSubstr("fewer encodings or sizes"));
  EXPECT_THAT(with("null, 8", "null, 8, 8"), HasSubstr("more encodings or sizes"));
  EXPECT_THAT(with("\"n\"", "\"a\""), HasSubstr("two columns 'a'"));
  EXPECT_THAT(with("{", "["), HasSubstr("its columns"));
}

TEST(MdsShard, SurvivesAnyChangedByte) {
  const std::string whole = TwoRows();
  std::mt19937 random(1);
  for (int i = 0; i < 2000; ++i) {
    std::string shard = whole;
    shard[random() % shard.size()] ^= static_cast<char>(1 << random() % 8);
    const Scanned found = Scan(shard);
    EXPECT_TRUE(found.status.ok() || absl::IsInvalidArgument(found.status)) << found.status;
  }
}

// Notes what is announced and read.
class NotingSource : public MemorySource {
 public:
  std::vector<ByteRange> expected, read;
  absl::Status ReadAt(const std::string& path, uint64_t offset, std::span<std::byte> out) override {
    read.push_back({.path = path, .offset = offset, .size = out.size()});
    return MemorySource::ReadAt(path, offset, out);
  }
  std::unique_ptr<Expected> Expect(std::vector<ByteRange> ranges, uint64_t) override {
    expected = std::move(ranges);
    return nullptr;
  }
};

TEST(MdsSource, AnnouncesARangeOfTheShardAndReadsThat) {
  NotingSource files;
  const std::string picture(1000, 'p');
  files.objects["a.mds"] = MdsShard(Columns(), {{picture, "words"}});
  const uint64_t begin = GetLittle(files.objects["a.mds"].data() + 4, 4);
  const std::string json = R"({"image": "image.0.jpg", "text": "words"})";
  auto source = MakeMdsSource(std::make_unique<SourceOver>(files));
  const uint64_t address = MdsAddress(begin, 8 + 1000 + 5);
  source->Expect({{.path = "a.mds", .offset = address, .size = json.size()},
                  {.path = "a.mds", .offset = begin + 8, .size = 1000}},
                 0);
  ASSERT_EQ(files.expected.size(), 2u);
  EXPECT_EQ(files.expected[0].offset, begin);
  EXPECT_EQ(files.expected[0].size, 1013u);
  EXPECT_EQ(files.expected[1].size, 1000u);
  for (int i = 0; i < 2; ++i) {
    std::string text(json.size(), ' ');
    ASSERT_TRUE(source->ReadAt("a.mds", address, std::as_writable_bytes(std::span(text))).ok());
    EXPECT_EQ(text, json);
    EXPECT_EQ(files.read.back().offset, begin);
    EXPECT_EQ(files.read.back().size, 1013u);
  }
  EXPECT_EQ(files.read.size(), 4u);  // the header by two reads, once
}

TEST(MdsSource, ReadsTheTextNextToALargeMediumAlone) {
  NotingSource files;
  const std::string video(3 << 20, 'v');
  files.objects["a.mds"] = MdsShard(Columns(), {{video, "words"}});
  const uint64_t begin = GetLittle(files.objects["a.mds"].data() + 4, 4);
  auto source = MakeMdsSource(std::make_unique<SourceOver>(files));
  const uint64_t address = MdsAddress(begin, 8 + video.size() + 5);
  source->Expect({{.path = "a.mds", .offset = address, .size = 41}}, 0);
  EXPECT_TRUE(files.expected.empty());
  std::string text(41, ' ');
  ASSERT_TRUE(source->ReadAt("a.mds", address, std::as_writable_bytes(std::span(text))).ok());
  EXPECT_EQ(text, R"({"image": "image.0.jpg", "text": "words"})");
  for (const ByteRange& range : files.read) EXPECT_LT(range.size, 1000u);
}

TEST(MdsSource, SeesThatAShardWasReplaced) {
  MemorySource files;
  files.objects["a.mds"] = TwoRows();
  auto source = MakeMdsSource(std::make_unique<SourceOver>(files));
  const uint64_t begin = GetLittle(files.objects["a.mds"].data() + 4, 4);
  std::string text(45, ' ');
  const auto read = [&] {
    return source->ReadAt("a.mds", MdsAddress(begin, 20), std::as_writable_bytes(std::span(text)));
  };
  ASSERT_TRUE(read().ok()) << read();
  files.objects["a.mds"] = MdsShard(Columns(), {{"", "another text, longer than before"}});
  EXPECT_TRUE(absl::IsOutOfRange(read()));
  EXPECT_EQ(::evenkeel::KindOf(read()), FailureKind::kMachine);
  files.objects["a.mds"] = "no shard at all, and longer than its header";
  source->Forget("a.mds");
  EXPECT_FALSE(read().ok());
}

class MdsLists : public ::testing::Test {
 protected:
  absl::StatusOr<std::vector<std::string>> Shards(const std::string& list,
                                                  const std::string& path = "d/index.json") {
    source_.objects["d/index.json"] = list;
    return MdsShards(source_, path);
  }
  std::string Refusal(const std::string& list) { return std::string(Shards(list).status().message()); }
  std::string Changed(const std::string& from, const std::string& to) {
    std::string list = MdsList(Columns(), {{"b.mds", 2}});
    return Refusal(list.replace(list.find(from), from.size(), to));
  }

  MemorySource source_;
};

TEST_F(MdsLists, GiveTheShardsInTheirOrder) {
  source_.objects["d/b.mds"] = "xx";
  source_.objects["d/sub/a.mds"] = "yyy";
  const std::string list = MdsList(Columns(), {{"b.mds", 2}, {"sub/a.mds", 3}});
  for (const char* path : {"d/index.json", "d", "d/"}) {
    const auto shards = Shards(list, path);
    ASSERT_TRUE(shards.ok()) << shards.status();
    EXPECT_THAT(*shards, ElementsAre("d/b.mds", "d/sub/a.mds"));
  }
  EXPECT_TRUE(IsMdsIndex(source_, "d/index.json"));
  EXPECT_TRUE(IsMdsList("d/index.json") && IsMdsList("d") && !IsMdsList("d/shard.00000.mds"));
}

TEST_F(MdsLists, NameWhatDoesNotMatchTheShards) {
  EXPECT_TRUE(absl::IsNotFound(Shards(MdsList(Columns(), {{"b.mds", 2}})).status()));
  source_.objects["d/b.mds"] = "xxx";
  EXPECT_THAT(Refusal(MdsList(Columns(), {{"b.mds", 2}})),
              HasSubstr("shards[0]: d/b.mds has 3 bytes, in the list it has 2"));
}

TEST_F(MdsLists, GiveCompressedShardsWhereTheyAreRead) {
  source_.objects["d/b.mds.zstd"] = "xxx";
  const auto compressed = [](const std::string& name) {
    std::string list = MdsList(Columns(), {{"b.mds", 2}});
    const std::string none = "\"zip_data\": null";
    return list.replace(
        list.find(none), none.size(),
        absl::StrCat("\"zip_data\": {\"basename\": \"", name, "\", \"bytes\": 3, \"hashes\": {}}"));
  };
  const auto shards = Shards(compressed("b.mds.zstd"));
  ASSERT_TRUE(shards.ok()) << shards.status();
  EXPECT_THAT(*shards, ElementsAre("d/b.mds.zstd"));
  EXPECT_THAT(Refusal(compressed("b.mds.br")),
              HasSubstr("'b.mds.br' is compressed in a form that is not read"));
}

TEST_F(MdsLists, RefuseOtherVersionsAndNamesOutsideTheFolder) {
  source_.objects["d/b.mds"] = "xx";
  EXPECT_EQ(Changed("b.mds", "b.mds"), "");
  EXPECT_THAT(Changed("b.mds", "../b.mds"), HasSubstr("path traversal"));
  EXPECT_THAT(Changed("b.mds", "/etc/passwd"), HasSubstr("not below"));
  EXPECT_THAT(Changed("b.mds", "s3://b/a"), HasSubstr("an address"));
  EXPECT_THAT(Changed("], \"version\": 2}", "], \"version\": 3}"), HasSubstr("version 3"));
  EXPECT_THAT(Changed("\"mds\"", "\"json\""), HasSubstr("shards[0]: its format is not mds"));
  EXPECT_THAT(Changed("\"bytes\": 2", "\"bytes\": -2"), HasSubstr("raw_data without basename and bytes"));
  EXPECT_THAT(Changed("\"shards\": [", "\"shards\": [0, "), HasSubstr("more than one list"));
  EXPECT_THAT(Changed("}], \"v", "},], \"v"), HasSubstr("index.json"));
  for (const char* list : {"", "[]", "{}", "{\"shards\": [{}", "{\"version\": 2, \"shards\": {}}", "\"\\",
                           "}}]]", "[{\"text\": \"row\"}]"}) {
    EXPECT_THAT(Refusal(list), HasSubstr("not the list of an MDS dataset")) << list;
    EXPECT_FALSE(IsMdsIndex(source_, "d/index.json")) << list;
  }
  EXPECT_THAT(Refusal("{\"version\": 2, \"shards\": []}"), HasSubstr("no shards"));
}

}  // namespace
}  // namespace evenkeel::dataset
