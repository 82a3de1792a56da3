// One conformance suite for the formats: the same samples, held in each of them, are the same to whoever reads the
// index. What belongs to one format alone is tested next to it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/status.h"
#include "dataset/format/line_scanner.h"
#include "dataset/format/media_file.h"
#include "dataset/format/shard_list.h"
#include "dataset/format/table.h"
#include "dataset/format/tar_reader.h"
#include "dataset/index/index.h"
#include "dataset/index/index_builder.h"
#include "tests/dataset/support.h"
#include "tests/source_dir.h"

namespace evenkeel::dataset {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

struct MediaFile {
  std::string name;
  std::string bytes;
};

// A sample with its media by their names in a folder.
struct Held {
  std::string json;  // with the names of `media`
  std::vector<MediaFile> media;
};

const std::vector<Held>& Samples() {
  static const auto* const kSamples = new std::vector<Held>{
      {R"({"image": "coco/1.jpg", "conversations": [{"from": "human", "value": "<image>\nWhat?"},
                                                    {"from": "gpt", "value": "A cat."}]})",
       {{"coco/1.jpg", "16x16"}}},
      {R"({"messages": [{"role": "user", "content": [{"type": "image", "image": "coco/2.jpg"},
           {"type": "text", "text": "and"}, {"type": "audio", "audio": "a.wav"}]},
           {"role": "assistant", "content": "yes"}]})",
       {{"coco/2.jpg", "24x8"}, {"a.wav", "40x1"}}},
      {R"({"system": "Be brief.", "images": ["b/2.png", "b/10.png"], "messages": [
           {"role": "user", "content": "<image> or <image>?"}, {"role": "assistant", "content": "The first."}]})",
       {{"b/2.png", "8x8"}, {"b/10.png", "8x16"}}},
      {R"({"messages": [{"role": "user", "content": "No picture."}, {"role": "assistant", "content": "None."}]})",
       {}},
  };
  return *kSamples;
}

// Writes the samples in one format below `folder` and says how to read them.
using Writer = DatasetSpec (*)(const TempFolder& folder);

std::string OneLine(const std::string& json) {
  std::string out;
  for (char c : json) out += c == '\n' ? ' ' : c;
  return out;
}

void WriteMedia(const TempFolder& folder) {
  for (const Held& sample : Samples())
    for (const MediaFile& file : sample.media) folder.Write("media/" + file.name, file.bytes);
}

DatasetSpec AsWebDataset(const TempFolder& folder) {
  std::string tar;
  for (size_t i = 0; i < Samples().size(); ++i) {
    std::string json = Samples()[i].json;
    for (const MediaFile& file : Samples()[i].media) {
      const std::string suffix =
          absl::StrCat(fs::path(file.name).stem().string(), ".", SuffixOfName(file.name));
      tar += TarFile(absl::StrCat(i, ".", suffix), file.bytes);
      json.replace(json.find(file.name), file.name.size(), suffix);
    }
    tar += TarFile(absl::StrCat(i, ".json"), json);
  }
  return {.name = "data", .shards = {folder.Write("data.tar", tar + TarEnd())}};
}

// Each member compressed by itself, under the names that the texts have for what is inside.
DatasetSpec AsPackedMembers(const TempFolder& folder, const std::string& end,
                            std::string (*compress)(const std::string&)) {
  const DatasetSpec plain = AsWebDataset(folder);
  auto source = MakeFileSource();
  const std::string& path = plain.shards[0];
  TarReader reader(*source, path, *source->Size(path));
  std::string tar;
  for (auto member = reader.Next(); member.ok() && member->has_value(); member = reader.Next()) {
    const std::string bytes = ReadFile(path).substr((*member)->offset, (*member)->size);
    tar += TarFile((*member)->name + end, compress(bytes));
  }
  return {.name = "data", .shards = {folder.Write("packed.tar", tar + TarEnd())}};
}
DatasetSpec AsMembersGz(const TempFolder& folder) { return AsPackedMembers(folder, ".gz", &Gzip); }
DatasetSpec AsMembersZst(const TempFolder& folder) { return AsPackedMembers(folder, ".zst", &Zstd); }
// And the whole once more.
DatasetSpec AsMembersGzInTarGz(const TempFolder& folder) {
  DatasetSpec dataset = AsMembersGz(folder);
  dataset.shards = {folder.Write("packed.tar.gz", Gzip(ReadFile(dataset.shards[0])))};
  return dataset;
}

DatasetSpec AsJsonLines(const TempFolder& folder) {
  WriteMedia(folder);
  std::string lines;
  for (const Held& sample : Samples()) lines += OneLine(sample.json) + "\n";
  return {.name = "data",
          .shards = {folder.Write("data.jsonl", lines)},
          .format = DataFormat::kJson,
          .media = folder.path() + "/media"};
}

DatasetSpec AsJsonList(const TempFolder& folder) {
  WriteMedia(folder);
  std::vector<std::string> elements;
  for (const Held& sample : Samples()) elements.push_back(sample.json);
  return {.name = "data",
          .shards = {folder.Write("data.json",
                                  absl::StrCat("\xef\xbb\xbf\n[", absl::StrJoin(elements, " ,\n "), "]\n"))},
          .format = DataFormat::kJson,
          .media = folder.path() + "/media"};
}

// Made by tests/golden/make_table_goldens.py with the same samples; parts of content in place of text with marks.
DatasetSpec AsParquet(const TempFolder&) {
  return {.name = "data",
          .shards = {SourceDir() + "/tests/golden/data/tables/formats.parquet"},
          .format = DataFormat::kParquet};
}

DatasetSpec AsParquetWithZstd(const TempFolder& folder) {
  DatasetSpec dataset = AsParquet(folder);
  dataset.shards = {SourceDir() + "/tests/golden/data/tables/formats-zstd.parquet"};
  return dataset;
}

// A shard by its list. Values that a sample does not have are empty or null; media are stored, or named as files.
DatasetSpec AsMds(const TempFolder& folder) {
  WriteMedia(folder);
  const std::vector<MdsField> columns = {{"audio", "json"},    {"conversations", "json"},
                                         {"image", "jpeg"},    {"images", "list[png]"},
                                         {"messages", "json"}, {"system", "str"}};
  const std::string none = MdsListOfMedia({});
  const std::vector<std::vector<std::string>> rows = {
      {"null", R"([{"from": "human", "value": "<image>\nWhat?"}, {"from": "gpt", "value": "A cat."}])",
       "16x16", none, "null", ""},
      {R"(["a.wav"])", "null", "24x8", none,
       R"([{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "and"}, {"type": "audio"}]},
           {"role": "assistant", "content": "yes"}])",
       ""},
      {"null", "null", "", MdsListOfMedia({"8x8", "8x16"}),
       R"([{"role": "user", "content": "<image> or <image>?"}, {"role": "assistant", "content": "The first."}])",
       "Be brief."},
      {"null", "null", "", none,
       R"([{"role": "user", "content": "No picture."}, {"role": "assistant", "content": "None."}])", ""},
  };
  const std::string shard = MdsShard(columns, rows);
  folder.Write("mds/shard.00000.mds", shard);
  return {.name = "data",
          .shards = {folder.Write("mds/index.json", MdsList(columns, {{"shard.00000.mds", shard.size()}}))},
          .format = DataFormat::kMds,
          .media = folder.path() + "/media"};
}

// The shard of another format, compressed.
DatasetSpec Compressed(const TempFolder& folder, DatasetSpec dataset, const std::string& end,
                       std::string (*compress)(const std::string&)) {
  std::string& shard = dataset.shards[0];
  shard = folder.Write(fs::path(shard).filename().string() + end, compress(ReadFile(shard)));
  return dataset;
}
DatasetSpec AsTarGz(const TempFolder& folder) {
  return Compressed(folder, AsWebDataset(folder), ".gz", &Gzip);
}
DatasetSpec AsTarZst(const TempFolder& folder) {
  return Compressed(folder, AsWebDataset(folder), ".zst", &Zstd);
}
DatasetSpec AsJsonLinesGz(const TempFolder& folder) {
  return Compressed(folder, AsJsonLines(folder), ".gz", &Gzip);
}

DatasetSpec AsMdsZstd(const TempFolder& folder) {
  DatasetSpec dataset = AsMds(folder);
  std::string list = ReadFile(dataset.shards[0]);
  const std::string shard = Zstd(ReadFile(folder.path() + "/mds/shard.00000.mds"));
  folder.Write("mds/shard.00000.mds.zstd", shard);
  fs::remove(folder.path() + "/mds/shard.00000.mds");
  const std::string none = "\"zip_data\": null";
  list.replace(list.find(none), none.size(),
               absl::StrCat("\"zip_data\": {\"basename\": \"shard.00000.mds.zstd\", \"bytes\": ",
                            shard.size(), ", \"hashes\": {}}"));
  folder.Write("mds/index.json", list);
  return dataset;
}

// What a reader of the index sees of one sample: its conversation, lengths, and the bytes of its items.
absl::StatusOr<std::string> Seen(const Job& job, const Index& index, uint64_t row, ByteSource& source) {
  ConversationReader reader;
  EVENKEEL_ASSIGN_OR_RETURN(const SamplePlaces places, index.places(0, row));
  EVENKEEL_ASSIGN_OR_RETURN(const SampleLengths lengths, index.lengths(0, row));
  EVENKEEL_ASSIGN_OR_RETURN(const Conversation* conversation, reader.Read(places, job.limits, source));
  std::string out = absl::StrCat(Line(*conversation), " ", lengths.llm_length, " ", lengths.loss_tokens);
  for (const ItemPlace& item : places.items) {
    std::string bytes(item.size, '\0');
    EVENKEEL_RETURN_IF_ERROR(
        ReadItem(places.shard_path, item, source, std::as_writable_bytes(std::span(bytes))));
    absl::StrAppend(&out, " ", std::string(MediumName(item.facts.medium)), " ", item.facts.width, " ",
                    item.facts.pictures_in_sample, " ", bytes);
  }
  return out;
}

class Formats : public ::testing::TestWithParam<std::pair<const char*, Writer>> {};

TEST_P(Formats, GiveTheSameSamplesAsWebDataset) {
  std::vector<std::string> seen[2];
  for (int i = 0; i < 2; ++i) {
    TempFolder folder;
    Job job;
    job.path = "job.yaml";
    job.index = folder.path() + "/index";
    job.datasets = {i == 0 ? AsWebDataset(folder) : GetParam().second(folder)};
    FakeMeasurer measurer;
    auto source = MakeShardSource({});
    ASSERT_TRUE(ListShards(*source, job).ok());
    std::vector<Exclusion> exclusions;
    auto summary = BuildIndex(job, measurer, *source, {}, &exclusions);
    ASSERT_TRUE(summary.ok()) << summary.status();
    for (const Exclusion& exclusion : exclusions)
      ADD_FAILURE() << exclusion.reason << " " << exclusion.detail;
    auto index = Index::Open(job, measurer.digest(), *source);
    ASSERT_TRUE(index.ok()) << index.status();
    EXPECT_EQ((*index)->digest(), summary->digest);
    ASSERT_EQ((*index)->num_samples(0), Samples().size());
    for (uint64_t row = 0; row < Samples().size(); ++row) {
      auto sample = Seen(job, **index, row, *source);
      ASSERT_TRUE(sample.ok()) << sample.status();
      seen[i].push_back(*sample);
    }
    // A second run reads nothing again; another processor reads texts alone.
    auto again = BuildIndex(job, measurer, *source);
    ASSERT_TRUE(again.ok()) << again.status();
    EXPECT_EQ(again->shards_unchanged, 1u);
    EXPECT_EQ(again->digest, summary->digest);
    FakeMeasurer other("other", 2);
    auto remeasured = BuildIndex(job, other, *source);
    ASSERT_TRUE(remeasured.ok()) << remeasured.status();
    EXPECT_EQ(remeasured->shards_remeasured, 1u);
    EXPECT_EQ(other.probes, 0u);
  }
  EXPECT_EQ(seen[0], seen[1]);
}

INSTANTIATE_TEST_SUITE_P(
    All, Formats,
    ::testing::Values(std::pair{"WebDataset", &AsWebDataset}, std::pair{"JsonLines", &AsJsonLines},
                      std::pair{"JsonList", &AsJsonList}, std::pair{"Parquet", &AsParquet},
                      std::pair{"ParquetWithZstd", &AsParquetWithZstd}, std::pair{"Mds", &AsMds},
                      std::pair{"TarGz", &AsTarGz}, std::pair{"TarZst", &AsTarZst},
                      std::pair{"JsonLinesGz", &AsJsonLinesGz}, std::pair{"MdsZstd", &AsMdsZstd},
                      std::pair{"MembersGz", &AsMembersGz}, std::pair{"MembersZst", &AsMembersZst},
                      std::pair{"MembersGzInTarGz", &AsMembersGzInTarGz}),
    [](const auto& info) { return info.param.first; });

TEST(CompressedShard, IsPinnedByTheObjectAndDamagedAsAWhole) {
  TempFolder folder;
  Job job;
  job.path = "job.yaml";
  job.index = folder.path() + "/index";
  job.datasets = {AsTarGz(folder)};
  const std::string path = job.datasets[0].shards[0];
  const std::string whole =
      ReadFile(path) + std::string(64, '\0');  // gzip's padding: room for other bytes inside
  folder.Write("data.tar.gz", whole);
  FakeMeasurer measurer;
  auto source = MakeShardSource({});
  std::vector<Exclusion> exclusions;
  auto summary = BuildIndex(job, measurer, *source, {}, &exclusions);
  ASSERT_TRUE(summary.ok()) << summary.status();
  EXPECT_EQ(summary->num_samples, Samples().size());
  EXPECT_EQ(BuildIndex(job, measurer, *source, {.verify_content = true})->shards_unchanged, 1u);
  auto index = Index::Open(job, measurer.digest(), *source);
  ASSERT_TRUE(index.ok()) << index.status();
  // The same size, other bytes inside: seen by the reader, and by the next run.
  std::string other = Gzip(std::string(ReadFile(folder.path() + "/data.tar")).replace(512, 5, "8x8  "));
  ASSERT_LE(other.size(), whole.size());
  other.resize(whole.size(), '\0');
  folder.Write("data.tar.gz", other);
  auto again = MakeShardSource({});
  EXPECT_THAT(std::string(Seen(job, **index, 0, *again).status().message()),
              HasSubstr("differ from the indexed ones"));
  EXPECT_NE(BuildIndex(job, measurer, *again)->digest, summary->digest);
  folder.Write("data.tar.gz", whole.substr(0, whole.size() / 2));
  auto cut = MakeShardSource({});
  EXPECT_THAT(std::string(Index::Open(job, measurer.digest(), *cut).status().message()),
              HasSubstr("when it was indexed"));
  exclusions.clear();
  summary = BuildIndex(job, measurer, *cut, {}, &exclusions);
  ASSERT_TRUE(summary.ok()) << summary.status();
  EXPECT_EQ(summary->num_samples, 0u);
  EXPECT_EQ(summary->damaged_shards, 1u);
  ASSERT_EQ(exclusions.size(), 1u);
  EXPECT_EQ(exclusions[0].reason, "shard damaged");
  EXPECT_THAT(exclusions[0].detail, ::testing::StartsWith("compressed data"));
}

// Rows and media of one JSON dataset.
class JsonFormat : public ::testing::Test {
 protected:
  JsonFormat() {
    job_.path = "job.yaml";
    job_.index = folder_.path() + "/index";
    job_.datasets = {{.name = "data", .format = DataFormat::kJson, .media = folder_.path() + "/media"}};
    folder_.Write("media/1.jpg", "16x16");
  }
  IndexSummary Build(IndexOptions options = {}) {
    auto summary = BuildIndex(job_, measurer_, *source_, options, &exclusions_);
    EXPECT_TRUE(summary.ok()) << summary.status();
    return summary.ok() ? *summary : IndexSummary();
  }
  void Write(const std::string& name, const std::string& bytes) {
    job_.datasets[0].shards = {folder_.Write(name, bytes)};
  }
  // "key: reason" of every exclusion.
  std::vector<std::string> Reasons() const {
    std::vector<std::string> out;
    for (const Exclusion& exclusion : exclusions_) out.push_back(exclusion.key + ": " + exclusion.reason);
    return out;
  }
  std::string Detail(const std::string& key) const {
    for (const Exclusion& exclusion : exclusions_)
      if (exclusion.key == key) return exclusion.detail;
    return "";
  }
  std::string SeenRow(uint64_t row) {
    auto index = Index::Open(job_, measurer_.digest(), *source_);
    if (!index.ok()) return index.status().ToString();
    auto seen = Seen(job_, **index, row, *source_);
    return seen.ok() ? *seen : seen.status().ToString();
  }

  TempFolder folder_;
  Job job_;
  FakeMeasurer measurer_;
  std::unique_ptr<ByteSource> source_ = MakeFileSource();
  std::vector<Exclusion> exclusions_;
};

TEST_F(JsonFormat, NamesBrokenLinesByTheirNumber) {
  Write("data.jsonl",
        "{\"text\": \"one\"}\n\n  {\"text\": \"three\"}  \r\n{\"text\": \n[1]\n\xff\n{\"text\": \"\"}\n"
        "{\"text\": \"last\"}");
  EXPECT_EQ(Build().num_samples, 3u);
  EXPECT_THAT(Reasons(), UnorderedElementsAre("4: bad JSON", "5: no text", "6: not UTF-8", "7: no text"));
  EXPECT_THAT(Detail("4"), HasSubstr("byte 8"));
  EXPECT_THAT(SeenRow(1), HasSubstr("plain: assistant[three]"));
  EXPECT_THAT(SeenRow(2), HasSubstr("assistant[last]"));
}

TEST_F(JsonFormat, NamesMissingMediaAndNamesThatLeaveTheFolder) {
  folder_.Write("secret.jpg", "16x16");
  folder_.Write("media/in/2.jpg", "8x8");
  fs::create_symlink(folder_.path() + "/secret.jpg", folder_.path() + "/media/link.jpg");
  fs::create_directory_symlink(folder_.path(), folder_.path() + "/media/up");
  fs::create_symlink(folder_.path() + "/media/in/2.jpg", folder_.path() + "/media/inside.jpg");
  std::string lines;
  for (const std::string& name :
       {std::string("1.jpg"), std::string("gone.jpg"), std::string("../secret.jpg"), std::string("link.jpg"),
        std::string("up/secret.jpg"), folder_.path() + "/secret.jpg", std::string("http://host/1.jpg"),
        std::string("in"), folder_.path() + "/media/in/../in/2.jpg", std::string("inside.jpg"),
        "file://" + folder_.path() + "/media//./in/2.jpg", std::string("a\\u0000b.jpg")}) {
    absl::StrAppend(&lines, R"({"text": "t", "image": ")", name, "\"}\n");
  }
  Write("data.jsonl", lines);
  EXPECT_EQ(Build().num_samples, 3u);
  const std::string name = ": unusable name of a medium";
  EXPECT_THAT(Reasons(), UnorderedElementsAre("2: missing media", "3" + name, "4" + name, "5" + name,
                                              "6" + name, "7" + name, "8" + name, "9" + name, "12" + name));
  EXPECT_EQ(Detail("2"), "'gone.jpg': no such file");
  EXPECT_THAT(SeenRow(1), HasSubstr("image 8 1 8x8"));
}

TEST_F(JsonFormat, FollowsNoLinkThatAppearsAfterTheIndex) {
  Write("data.jsonl", R"({"text": "t", "image": "1.jpg"})");
  Build();
  EXPECT_THAT(SeenRow(0), HasSubstr("16x16"));
  fs::rename(folder_.path() + "/media/1.jpg", folder_.path() + "/1.jpg");
  fs::create_symlink(folder_.path() + "/1.jpg", folder_.path() + "/media/1.jpg");
  EXPECT_THAT(SeenRow(0), HasSubstr("leads out of"));
}

TEST_F(JsonFormat, ReadsAgainWhatChangedAndPinsTheBytesOfMedia) {
  Write("data.jsonl", R"({"text": "t", "image": "1.jpg"})");
  const Digest before = Build().digest;
  EXPECT_EQ(Build().shards_unchanged, 1u);
  folder_.Write("media/1.jpg", "24x24");
  EXPECT_THAT(SeenRow(0), HasSubstr("differ from the indexed ones"));
  const IndexSummary after = Build();
  EXPECT_EQ(after.shards_read, 1u);
  EXPECT_NE(after.digest, before);
  EXPECT_THAT(SeenRow(0), HasSubstr("24x24"));
  // The same lengths from other bytes are another stream, too.
  folder_.Write("media/1.jpg", "24x24 ");
  EXPECT_NE(Build().digest, after.digest);
}

TEST_F(JsonFormat, LooksAgainForMediaThatWereMissing) {
  Write("data.jsonl", R"({"text": "t", "image": "2.jpg"})");
  EXPECT_EQ(Build().num_samples, 0u);
  folder_.Write("media/2.jpg", "8x8");
  EXPECT_EQ(Build().num_samples, 1u);
}

TEST_F(JsonFormat, FindsMediaNextToTheFileWithoutAFolder) {
  job_.datasets[0].media = "";
  Write("data.jsonl", R"({"text": "t", "image": "media/1.jpg"})");
  Build();
  EXPECT_THAT(SeenRow(0), HasSubstr("image 16 1 16x16"));
}

TEST_F(JsonFormat, ReadsFieldsUnderOtherNames) {
  folder_.Write("media/2.jpg", "8x8");
  job_.datasets[0].fields = {.prompt = "question", .answer = "label", .image = "picture"};
  Write("data.jsonl", R"({"question": "What?", "label": "A cat.", "picture": "1.jpg", "text": "x"}
                         {"question": "Is <image> like <image>?", "label": "No.", "picture": ["1.jpg", "2.jpg"]}
                         {"question": "What?", "picture": "1.jpg"})");
  const Digest digest = Build().digest;
  EXPECT_THAT(Reasons(), ElementsAre("3: no text"));
  EXPECT_THAT(SeenRow(0), HasSubstr("user[<image 0>What?] assistant[A cat.]"));
  EXPECT_THAT(SeenRow(1), HasSubstr("user[Is <image 0> like <image 1>?] assistant[No.]"));
  // Fields of the same lengths are another stream.
  job_.datasets[0].fields.answer = "question";
  EXPECT_NE(Build().digest, digest);
}

TEST_F(JsonFormat, RecognisesPicturesByTheirBytes) {
  folder_.Write("media/photo", "\xff\xd8\xff");
  folder_.Write("media/wrong.png", "\xff\xd8\xff");
  folder_.Write("media/other", "????");
  Write("data.jsonl",
        "{\"text\": \"t\", \"image\": \"photo\"}\n{\"text\": \"t\", \"image\": \"other\"}\n"
        "{\"text\": \"t\", \"image\": \"wrong.png\"}");
  Build();
  EXPECT_THAT(Reasons(),
              UnorderedElementsAre("1: damaged image", "2: unsupported image", "3: damaged image"));
  EXPECT_THAT(Detail("3"), HasSubstr("'jpg'"));
}

TEST_F(JsonFormat, KeepsWhatLiesBeforeTheEndOfAListThatIsCut) {
  const std::string list = R"([{"text": "a, ]}\" b"}, {"text": "c"}])";
  Write("data.json", list.substr(0, list.size() - 1));
  EXPECT_EQ(Build().num_samples, 1u);
  EXPECT_THAT(Reasons(), ElementsAre("1: shard damaged"));
  Write("data.json", list + " x");
  EXPECT_EQ(Build().num_samples, 2u);
  EXPECT_THAT(Reasons(), ElementsAre(": shard damaged"));
  Write("data.json", " [ ] ");
  EXPECT_EQ(Build().num_samples, 0u);
  EXPECT_TRUE(exclusions_.empty());
  Write("data.json", R"([{"text": "a"}, {"text": ]}, {"text": "b"}])");
  EXPECT_EQ(Build().num_samples, 2u);
  EXPECT_THAT(Reasons(), ElementsAre("1: bad JSON"));
}

TEST_F(JsonFormat, ReadsLinesAcrossItsBuffer) {
  std::string lines, list;
  const std::string long_text(300000, 'x');
  for (int i = 0; i < 5; ++i) {
    const std::string row = absl::StrCat(R"({"text": ")", long_text.substr(0, 60000 * (i + 1)), i, "\"}");
    absl::StrAppend(&lines, row, "\n");
    absl::StrAppend(&list, i == 0 ? "[" : ",", row);
  }
  for (const auto& [name, bytes] : {std::pair{"data.jsonl", lines}, std::pair{"data.json", list + "]"}}) {
    Write(name, bytes);
    job_.limits.max_llm_length = 1 << 20;
    ASSERT_EQ(Build().num_samples, 5u);
    EXPECT_THAT(SeenRow(3), HasSubstr("x3]"));
  }
}

TEST(TextFormat, TakesEveryLineThatIsNotEmptyForASample) {
  TempFolder folder;
  Job job;
  job.index = folder.path() + "/index";
  job.datasets = {{.name = "data",
                   .shards = {folder.Write("a.txt", "\xef\xbb\xbfone\r\n\n two \n{\"text\": 3}")},
                   .format = DataFormat::kText}};
  FakeMeasurer measurer;
  auto source = MakeFileSource();
  auto summary = BuildIndex(job, measurer, *source);
  ASSERT_TRUE(summary.ok()) << summary.status();
  auto index = Index::Open(job, measurer.digest(), *source);
  ASSERT_TRUE(index.ok()) << index.status();
  ASSERT_EQ((*index)->num_samples(0), 3u);
  EXPECT_EQ(*Seen(job, **index, 0, *source), "plain: assistant[one] 3 3");
  EXPECT_EQ(*Seen(job, **index, 1, *source), "plain: assistant[ two ] 5 5");
  EXPECT_EQ(*Seen(job, **index, 2, *source), "plain: assistant[{\"text\": 3}] 11 11");
  EXPECT_EQ((*index)->places(0, 2)->key, "4");
}

TEST(MediaName, IsRelativeToItsFolder) {
  EXPECT_EQ(*RelativeMediaName("./a//b.jpg", "/data"), "a/b.jpg");
  EXPECT_EQ(*RelativeMediaName("/data/a.jpg", "/data/"), "a.jpg");
  EXPECT_EQ(*RelativeMediaName("/data/a.jpg", "/"), "data/a.jpg");
  EXPECT_EQ(*RelativeMediaName("a:b/c..jpg", "/data"), "a:b/c..jpg");
  for (const char* name : {"", "/", "/database/a.jpg", "a/../b.jpg", "..",
                           "data:image/png;base64,AA==", "s3://b/a.jpg", "a/", "https://host/a.jpg", "a\nb"})
    EXPECT_TRUE(absl::IsInvalidArgument(RelativeMediaName(name, "/data").status())) << name;
}

}  // namespace
}  // namespace evenkeel::dataset
