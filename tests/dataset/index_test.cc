#include "dataset/index/index.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <thread>

#include "absl/strings/str_cat.h"
#include "dataset/index/index_builder.h"
#include "dataset/index/remaining_rows.h"
#include "dataset/index/shard_content.h"
#include "dataset/index_prune.h"
#include "dataset/order/permutation.h"
#include "dataset/order/sampler.h"
#include "tests/dataset/support.h"

namespace evenkeel::dataset {
namespace {

std::string Photo(int i) { return absl::StrCat(8 + i, "x", 8, "\n", std::string(3000, 'p')); }

std::string PhotoShard(int first, int count) {
  std::string tar;
  for (int i = first; i < first + count; ++i) {
    tar += TarFile(absl::StrCat("p", i, ".jpg"), Photo(i)) +
           TarFile(absl::StrCat("p", i, ".txt"), absl::StrCat("photo ", i));
  }
  return tar + TarEnd();
}

class IndexTest : public ::testing::Test {
 protected:
  IndexTest() {
    job_.path = "job.yaml";
    job_.index = folder_.path() + "/index";
    job_.datasets = {{.name = "photos"}, {.name = "chats"}};
    AddShard(0, "photos-0.tar", PhotoShard(0, 5));
    AddShard(0, "photos-1.tar", PhotoShard(5, 3));
    AddShard(1, "chats.tar",
             Tar({{"c/1.0.jpg", "16x16"},
                  {"c/1.wav", "40x1"},
                  {"c/1.json", R"({"messages":[{"role":"user","content":[{"type":"audio"},{"type":"image"}]},
                                  {"role":"assistant","content":"yes"}]})"},
                  {"c/2.txt", "only text"}}));
  }

  void AddShard(size_t dataset, const std::string& name, const std::string& bytes) {
    job_.datasets[dataset].shards.push_back(folder_.Write("shards/" + name, bytes));
  }
  IndexSummary Build(const Measurer& measurer, IndexOptions options = {}) {
    auto summary = BuildIndex(job_, measurer, source_, options, &exclusions_);
    EXPECT_TRUE(summary.ok()) << summary.status();
    return summary.ok() ? *summary : IndexSummary();
  }
  std::unique_ptr<Index> Open(const Measurer& measurer) {
    auto index = Index::Open(job_, measurer.digest(), source_);
    EXPECT_TRUE(index.ok()) << index.status();
    return index.ok() ? *std::move(index) : nullptr;
  }
  absl::Status OpenError(const Measurer& measurer) {
    return Index::Open(job_, measurer.digest(), source_).status();
  }

  TempFolder folder_;
  CountingSource source_;
  Job job_;
  FakeMeasurer measurer_;
  std::vector<Exclusion> exclusions_;
};

TEST_F(IndexTest, GivesLengthsPlacesAndConversations) {
  ConversationReader reader;
  IndexSummary summary = Build(measurer_);
  EXPECT_EQ(summary.num_samples, 10u);
  EXPECT_EQ(summary.num_items, 10u);
  EXPECT_EQ(summary.shards_read, 3u);
  EXPECT_TRUE(summary.excluded.empty());
  auto index = Open(measurer_);
  ASSERT_NE(index, nullptr);
  EXPECT_EQ(index->digest(), summary.digest);
  EXPECT_EQ(index->num_samples(0), 8u);
  EXPECT_EQ(index->num_samples(1), 2u);
  EXPECT_EQ(index->num_samples(2), 0u);
  for (int i = 0; i < 8; ++i) {
    auto lengths = index->lengths(0, i);
    ASSERT_TRUE(lengths.ok()) << lengths.status();
    uint32_t rows = (8 + i) * 8;
    EXPECT_EQ(lengths->items, (std::vector<SampleItem>{{Medium::kImage, {rows + 1, rows, rows / 4}}}));
    EXPECT_EQ(lengths->llm_length, rows / 4 + 7);
    EXPECT_EQ(lengths->loss_tokens, 7u);
    auto places = index->places(0, i);
    ASSERT_TRUE(places.ok()) << places.status();
    EXPECT_EQ(SampleName(job_, *places), absl::StrCat("photos/photos-", i < 5 ? 0 : 1, ".tar/p", i));
    ASSERT_EQ(places->items.size(), 1u);
    EXPECT_EQ(places->items[0].suffix, "jpg");
    EXPECT_EQ(places->items[0].facts.width, 8u + i);
    std::string body(places->items[0].size, ' ');
    ASSERT_TRUE(
        source_.ReadAt(places->shard_path, places->items[0].offset, std::as_writable_bytes(std::span(body)))
            .ok());
    EXPECT_EQ(body, Photo(i));
    EXPECT_EQ(Line(**reader.Read(*places, job_.limits, source_)),
              absl::StrCat("plain: assistant[<image 0>photo ", i, "]"));
  }
  auto chat = index->places(1, 0);
  ASSERT_TRUE(chat.ok());
  EXPECT_EQ(chat->text_form, TextForm::kJson);
  ASSERT_EQ(chat->items.size(), 2u);
  EXPECT_EQ(chat->items[0].suffix, "wav");
  EXPECT_EQ(chat->items[0].facts.num_samples, 40ull << 32);
  EXPECT_EQ(Line(**reader.Read(*chat, job_.limits, source_)), "user[<audio 0><image 1>] assistant[yes]");
  EXPECT_EQ(index->lengths(1, 2).status().code(), absl::StatusCode::kOutOfRange);
}

TEST_F(IndexTest, ExcludesWithReasonsAndNames) {
  std::string bad = TarFile("noText.jpg", "8x8") + TarFile("damaged.jpg", "BAD") +
                    TarFile("damaged.txt", "t") + TarFile("codec.wav", "CODEC") + TarFile("codec.txt", "t") +
                    TarFile("huge.png", "HUGE") + TarFile("huge.txt", "t") + TarFile("wide.jpg", "WIDE") +
                    TarFile("wide.txt", "t") + TarFile("utf8.txt", "\xff") + TarFile("twice.jpg", "8x8") +
                    TarFile("twice.JPG", "8x8") + TarFile("json.json", "{") +
                    TarFile("long.txt", std::string(300, 'x')) + TarFile("names.jpg", "8x8") +
                    TarFile("names.json", R"({"messages":[{"role":"user","content":[{"type":"video"}]}]})") +
                    TarFile("../up.txt", "t") + TarFile("empty.txt", "") + TarFile("good.txt", "t") +
                    TarFile("meta.jpg", "8x8") + TarFile("meta.json", R"({"caption":1})") +
                    TarFile("meta.txt", "t") + TarFile("last.txt", "t");
  job_.limits.max_llm_length = 200;
  AddShard(0, "bad.tar", bad + TarHeader("cut.txt", 1 << 20));
  AddShard(0, "empty.tar", "");
  IndexSummary summary = Build(measurer_);
  std::map<std::string, uint64_t> expected = {{"no text", 2},
                                              {"damaged image", 1},
                                              {"unsupported audio", 1},
                                              {"image beyond a limit", 1},
                                              {"image refused by the processor", 1},
                                              {"not UTF-8", 1},
                                              {"duplicate suffix", 1},
                                              {"bad JSON", 1},
                                              {"too long", 1},
                                              {"media do not match the text", 1},
                                              {"unsafe name", 1},
                                              {"shard damaged", 2}};
  EXPECT_EQ(summary.excluded, expected);
  EXPECT_EQ(summary.damaged_shards, 2u);
  EXPECT_EQ(summary.num_samples, 12u);
  std::map<std::string, std::string> by_key;
  for (const Exclusion& e : exclusions_) by_key[e.shard + "/" + e.key] = e.reason;
  EXPECT_EQ(by_key["bad.tar/damaged"], "damaged image");
  EXPECT_EQ(by_key["bad.tar/long"], "too long");
  EXPECT_EQ(by_key["empty.tar/"], "shard damaged");
  auto index = Open(measurer_);
  EXPECT_EQ(index->places(0, 8)->key, "good");
  EXPECT_EQ(index->places(0, 9)->key, "meta");
  EXPECT_EQ(index->num_samples(0), 10u);
}

TEST_F(IndexTest, ReadsNothingAgainThatIsUnchanged) {
  IndexSummary first = Build(measurer_);
  source_.bytes_read = 0;
  measurer_.probes = 0;
  IndexSummary second = Build(measurer_);
  EXPECT_EQ(second.shards_unchanged, 3u);
  EXPECT_EQ(second.digest, first.digest);
  EXPECT_EQ(source_.bytes_read, 0u);
  EXPECT_EQ(measurer_.probes, 0u);
  AddShard(0, "photos-2.tar", PhotoShard(20, 2));
  IndexSummary third = Build(measurer_);
  EXPECT_EQ(third.shards_read, 1u);
  EXPECT_EQ(third.shards_unchanged, 3u);
  EXPECT_NE(third.digest, first.digest);
  EXPECT_EQ(measurer_.probes, 2u);
}

TEST_F(IndexTest, ReadsANewShardOnce) {
  const auto bytes_of = [this] {
    uint64_t sum = 0;
    for (const DatasetSpec& dataset : job_.datasets) {
      for (const std::string& shard : dataset.shards) sum += std::filesystem::file_size(shard);
    }
    return sum;
  };
  Build(measurer_);
  EXPECT_EQ(source_.bytes_read, bytes_of());
  // Members of many pieces, in an archive that begins and ends within one.
  const uint64_t before = bytes_of();
  source_.bytes_read = 0;
  const std::string large = "16x16\n" + std::string(2 * kContentPieceBytes + 77777, 'l');
  AddShard(0, "large.tar",
           TarFile("a.jpg", Photo(1)) + TarFile("a.txt", "a") + TarFile("b.0.jpg", large) +
               TarFile("b.1.jpg", large) + TarFile("b.txt", "b") + TarFile("c.jpg", large) +
               TarFile("c.txt", "c") + TarEnd());
  EXPECT_EQ(Build(measurer_).num_samples, 13u);
  const uint64_t read = source_.bytes_read;
  EXPECT_GE(read, bytes_of() - before);
  EXPECT_LE(read, bytes_of() - before + kContentPieceBytes) << "the piece with the next header, at most";
}

TEST_F(IndexTest, RemeasuresForAnotherProcessorWithoutReadingMedia) {
  IndexSummary first = Build(measurer_);
  FakeMeasurer other("other", 4);
  EXPECT_EQ(OpenError(other).code(), absl::StatusCode::kNotFound);
  EXPECT_NE(OpenError(other).message().find("evenkeel index --job job.yaml"), absl::string_view::npos)
      << OpenError(other);
  source_.bytes_read = 0;
  IndexSummary second = Build(other);
  EXPECT_EQ(second.shards_remeasured, 3u);
  EXPECT_EQ(other.probes, 0u);
  EXPECT_LT(source_.bytes_read, 1000u);  // texts only; a photo has 3,000 bytes
  EXPECT_NE(second.digest, first.digest);
  EXPECT_EQ(Open(other)->lengths(0, 0)->items[0].lengths.input_rows, 256u);
  // The first processor's lengths are still there, and a fresh index of the second is the same.
  EXPECT_EQ(Open(measurer_)->digest(), first.digest);
  job_.index = folder_.path() + "/fresh";
  EXPECT_EQ(Build(other).digest, second.digest);
}

TEST_F(IndexTest, HasADigestOfContentAlone) {
  IndexSummary first = Build(measurer_);
  // Elsewhere, later, built backwards from threads, by one more run.
  TempFolder elsewhere;
  Job job = job_;
  job.index = elsewhere.path() + "/deep/er/index";
  for (DatasetSpec& dataset : job.datasets) {
    dataset.name += "-renamed";
    for (size_t i = 0; i < dataset.shards.size(); ++i) {
      dataset.shards[i] =
          elsewhere.Write(absl::StrCat("x/", dataset.name, i, ".tar"), ReadFile(dataset.shards[i]));
    }
  }
  IndexBuilder builder(job, measurer_, source_);
  ASSERT_TRUE(builder.Prepare().ok());
  EXPECT_EQ(builder.Summarise().status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(builder.Commit().code(), absl::StatusCode::kFailedPrecondition);
  std::vector<std::thread> threads;
  std::atomic<int> failures{0};
  for (size_t i = builder.num_shards(); i > 0; --i) {
    threads.emplace_back([&, i] { failures += !builder.BuildShard(i - 1).ok(); });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failures, 0);
  EXPECT_EQ(builder.Summarise()->digest, first.digest);
  EXPECT_TRUE(builder.Commit().ok());
  EXPECT_EQ(BuildIndex(job, measurer_, source_)->digest, first.digest);
  std::swap(job.datasets[0].shards[0], job.datasets[0].shards[1]);
  auto swapped = BuildIndex(job, measurer_, source_);
  EXPECT_NE(swapped->digest, first.digest);
  EXPECT_EQ(swapped->shards_unchanged, 3u);
}

TEST_F(IndexTest, NoticesShardsThatAreNotThoseItWasMadeOf) {
  Build(measurer_);
  const std::string shard = job_.datasets[0].shards[1];
  folder_.Write("shards/photos-1.tar", PhotoShard(5, 4));
  EXPECT_EQ(OpenError(measurer_).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(OpenError(measurer_).message().find(shard), absl::string_view::npos) << OpenError(measurer_);
  EXPECT_EQ(Build(measurer_).shards_read, 1u);
  EXPECT_NE(Open(measurer_), nullptr);
  std::string removed = job_.datasets[0].shards.back();
  job_.datasets[0].shards.pop_back();
  EXPECT_EQ(OpenError(measurer_).code(), absl::StatusCode::kFailedPrecondition);
  job_.datasets[0].shards.push_back(folder_.Write("shards/other.tar", ReadFile(removed)));
  EXPECT_EQ(OpenError(measurer_).code(), absl::StatusCode::kFailedPrecondition);
  job_.datasets[0].shards.back() = "/nowhere/photos-1.tar";
  EXPECT_EQ(OpenError(measurer_).code(), absl::StatusCode::kNotFound);
  job_.datasets[0].shards.back() = removed;
  job_.datasets[0].name = "else";
  EXPECT_EQ(OpenError(measurer_).code(), absl::StatusCode::kNotFound);
}

TEST_F(IndexTest, FindsAChangeOfContentThatKeepsTheSize) {
  IndexSummary first = Build(measurer_);
  const std::string shard = job_.datasets[0].shards[0];
  std::string bytes = ReadFile(shard);
  auto time = std::filesystem::last_write_time(shard);
  bytes[bytes.find("photo 3")] = 'P';
  folder_.Write("shards/photos-0.tar", bytes);
  std::filesystem::last_write_time(shard, time);  // the stamp says nothing
  EXPECT_EQ(Build(measurer_).shards_unchanged, 3u);
  IndexSummary verified = Build(measurer_, {.verify_content = true});
  EXPECT_EQ(verified.shards_read, 1u);
  EXPECT_NE(verified.digest, first.digest);
  // And a shard that was only touched is hashed, not read.
  std::filesystem::last_write_time(shard, time + std::chrono::hours(1));
  measurer_.probes = 0;
  EXPECT_EQ(Build(measurer_).shards_unchanged, 3u);
  EXPECT_EQ(measurer_.probes, 0u);
}

TEST_F(IndexTest, RefusesBytesThatAreNotThoseThatWereIndexed) {
  Build(measurer_);
  auto index = Open(measurer_);
  ASSERT_NE(index, nullptr);
  const SamplePlaces places = *index->places(0, 3);
  const std::string shard = places.shard_path;
  std::string out(places.items[0].size, ' ');
  const auto body = std::as_writable_bytes(std::span(out));
  EXPECT_TRUE(ReadItem(shard, places.items[0], source_, body).ok());

  const std::string bytes = ReadFile(shard);
  std::string changed = bytes;
  changed[places.items[0].offset + places.items[0].size - 1] ^= 1;
  folder_.Write("shards/photos-0.tar", changed);
  absl::Status item = ReadItem(shard, places.items[0], *MakeFileSource(), body);
  EXPECT_EQ(item.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(item.message().find("photos-0.tar: the "), std::string::npos) << item;
  ConversationReader reader;
  EXPECT_TRUE(reader.Read(places, job_.limits, source_).ok()) << "the text is as it was";

  changed = bytes;
  changed[places.text_offset] ^= 1;
  folder_.Write("shards/photos-0.tar", changed);
  EXPECT_EQ(reader.Read(places, job_.limits, *MakeFileSource()).status().code(),
            absl::StatusCode::kFailedPrecondition);

  folder_.Write("shards/photos-0.tar", bytes.substr(0, places.items[0].offset));
  EXPECT_EQ(ReadItem(shard, places.items[0], *MakeFileSource(), body).code(), absl::StatusCode::kUnavailable)
      << "what is missing may come back";
}

TEST_F(IndexTest, PrunesWhatNothingNeeds) {
  job_.batch.llm_tokens = 100;
  job_.batch.window_samples = 8;
  Build(measurer_);
  const auto take_steps = [this](const Measurer& measurer) {
    std::unique_ptr<Index> index = Open(measurer);
    auto sampler = Sampler::Make(job_, *index);
    ASSERT_TRUE(sampler.ok());
    ASSERT_TRUE((*sampler)->Samples(0).ok());
  };
  take_steps(measurer_);
  auto pruned = PruneIndex(job_, measurer_.digest(), source_);
  ASSERT_TRUE(pruned.ok()) << pruned.status();
  EXPECT_EQ(pruned->files, 0u) << "all of it is in use";
  const std::vector<std::string> first = folder_.Files();

  // Another processor keeps the first one's lengths; other content does not.
  FakeMeasurer other("other", 4);
  Build(other);
  EXPECT_EQ(PruneIndex(job_, measurer_.digest(), source_)->files, 0u);
  folder_.Write("shards/photos-1.tar", PhotoShard(5, 4));
  Build(measurer_);
  take_steps(measurer_);
  const Digest digest = Open(measurer_)->digest();
  folder_.Write("index/places/0123456789abcdef0123456789abcdef.tmp-Ab3dEf", "of a run that was killed");
  folder_.Write("index/places/notes.txt", "somebody's");
  EXPECT_EQ(PruneIndex(job_, other.digest(), source_).status().code(), absl::StatusCode::kNotFound);
  pruned = PruneIndex(job_, measurer_.digest(), source_);
  ASSERT_TRUE(pruned.ok()) << pruned.status();
  EXPECT_EQ(pruned->files, 6u) << "places, facts, two lengths, a step table, a temporary file";
  EXPECT_GT(pruned->bytes, 5 * 4096u);
  EXPECT_EQ(ReadFile(folder_.path() + "/index/places/notes.txt"), "somebody's");
  EXPECT_EQ(folder_.Files().size(), first.size() + 1 + 2) << "with the notes and two lengths for the other";
  std::unique_ptr<Index> index = Open(measurer_);
  EXPECT_EQ(index->digest(), digest);
  for (uint32_t d = 0; d < 2; ++d) {
    for (uint64_t i = 0; i < index->num_samples(d); ++i) EXPECT_TRUE(index->places(d, i).ok());
  }
  source_.bytes_read = 0;
  EXPECT_EQ(Build(measurer_).shards_unchanged, 3u);
  EXPECT_EQ(source_.bytes_read, 0u);
}

TEST_F(IndexTest, LeavesTheOldIndexWhereABuildDoesNotEnd) {
  IndexSummary first = Build(measurer_);
  AddShard(0, "photos-2.tar", PhotoShard(20, 2));
  {
    IndexBuilder builder(job_, measurer_, source_);
    ASSERT_TRUE(builder.Prepare().ok());
    for (size_t i = 0; i < builder.num_shards(); ++i) ASSERT_TRUE(builder.BuildShard(i).ok());
  }  // killed before Commit
  job_.datasets[0].shards.pop_back();
  EXPECT_EQ(Open(measurer_)->digest(), first.digest);
  for (const std::string& file : folder_.Files()) EXPECT_EQ(file.find(".tmp"), std::string::npos) << file;
}

TEST_F(IndexTest, MakesAnewWhatIsMissingAndReportsWhatIsDamaged) {
  IndexSummary first = Build(measurer_);
  for (const std::string& file : folder_.Files()) {
    if (file.rfind("index/lengths/", 0) == 0) std::filesystem::remove(folder_.path() + "/" + file);
  }
  IndexSummary second = Build(measurer_);
  EXPECT_EQ(second.shards_remeasured, 3u);
  EXPECT_EQ(second.digest, first.digest);
  for (const std::string& file : folder_.Files()) {
    if (file.rfind("index/", 0) != 0 || file == "index/current") continue;
    std::string bytes = ReadFile(folder_.path() + "/" + file);
    std::string damaged = bytes;
    damaged[damaged.size() / 2] ^= 1;
    folder_.Write(file, damaged);
    auto index = Index::Open(job_, measurer_.digest(), source_);
    ASSERT_TRUE(index.ok());
    bool noticed = false;
    for (uint32_t d = 0; d < 2; ++d) {
      for (uint64_t i = 0; i < (*index)->num_samples(d); ++i) {
        absl::Status status = (*index)->places(d, i).status();
        if (!status.ok()) {
          EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
          noticed = true;
        }
        noticed = noticed || !(*index)->lengths(d, i).ok();
      }
    }
    EXPECT_TRUE(noticed) << file;
    folder_.Write(file, bytes);
  }
  std::string current = ReadFile(folder_.path() + "/index/current");
  folder_.Write("index/current", current.substr(0, current.size() / 2));
  EXPECT_EQ(OpenError(measurer_).code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(BuildIndex(job_, measurer_, source_).status().code(), absl::StatusCode::kDataLoss);
}

TEST_F(IndexTest, LeavesOutWhatTheJobExcludes) {
  IndexSummary summary = Build(measurer_);
  job_.exclude = {"photos/photos-0.tar/p0", "photos/photos-0.tar/p3", "photos/photos-1.tar/p7",
                  "chats/chats.tar/c/1"};
  auto index = Open(measurer_);
  ASSERT_NE(index, nullptr);
  EXPECT_EQ(index->num_samples(0), 5u);
  EXPECT_EQ(index->num_samples(1), 1u);
  std::vector<std::string> keys;
  for (uint64_t i = 0; i < 5; ++i) keys.push_back(index->places(0, i)->key);
  EXPECT_EQ(keys, (std::vector<std::string>{"p1", "p2", "p4", "p5", "p6"}));
  EXPECT_EQ(index->places(1, 0)->key, "c/2");
  EXPECT_EQ(index->digest(), summary.digest);
  auto error = [&](const std::string& line) {
    job_.exclude = {line};
    absl::Status status = OpenError(measurer_);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  EXPECT_NE(error("photos/photos-0.tar/p33").find("nearest is 'p3'"), std::string::npos);
  EXPECT_NE(error("photos/photos-9.tar/p3").find("nearest is 'photos-0.tar'"), std::string::npos);
  EXPECT_NE(error("photo/photos-0.tar/p3").find("nearest is 'photos'"), std::string::npos);
  EXPECT_NE(error("photos/p3").find("no key"), std::string::npos);
}

TEST_F(IndexTest, SaysThatAShardHasNoSampleThatCouldBeExcluded) {
  AddShard(1, "broken.tar", Tar({{"a.txt", "\xff"}}));
  Build(measurer_);
  job_.exclude = {"chats/broken.tar/a"};
  EXPECT_NE(Open(measurer_), nullptr) << "the index leaves it out by itself";
  job_.exclude = {"chats/broken.tar/b"};
  const absl::Status status = OpenError(measurer_);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("no such sample"), std::string::npos) << status;
}

TEST_F(IndexTest, KeepsTheDatasetsOfOtherJobs) {
  Build(measurer_);
  Job other = job_;
  other.datasets.erase(other.datasets.begin());
  other.datasets[0].name = "talks";
  ASSERT_TRUE(BuildIndex(other, measurer_, source_).ok());
  EXPECT_NE(Open(measurer_), nullptr);
  EXPECT_TRUE(Index::Open(other, measurer_.digest(), source_).ok());
}

TEST_F(IndexTest, ReadsTheShardAgainWhereLimitsOfFactsChange) {
  Build(measurer_);
  job_.limits.max_llm_length = 5000;
  EXPECT_EQ(Build(measurer_).shards_remeasured, 3u);
  job_.limits.max_image_bytes = 1000;
  IndexSummary summary = Build(measurer_);
  EXPECT_EQ(summary.shards_read, 3u);
  EXPECT_EQ(summary.excluded["image beyond a limit"], 8u);
}

TEST_F(IndexTest, LeavesOutSamplesWhoseColumnsAreTooLong) {
  AddShard(
      1, "columns.tar",
      Tar({{"a.json", R"({"id": "short", "messages":[{"role":"assistant","content":"yes"}]})"},
           {"b.json", R"({"id": "longer than the room", "messages":[{"role":"assistant","content":"yes"}]})"},
           {"c.json", R"([{"role":"assistant","content":"yes"}])"}}));
  const IndexSummary without = Build(measurer_);
  job_.columns = {"id"};
  job_.limits.max_column_bytes = 20;
  EXPECT_EQ(OpenError(measurer_).code(), absl::StatusCode::kNotFound) << "the index is that of another job";
  const IndexSummary summary = Build(measurer_);
  EXPECT_EQ(summary.excluded, (std::map<std::string, uint64_t>{{"columns too long", 1}}));
  ASSERT_EQ(exclusions_.size(), 1u);
  EXPECT_EQ(exclusions_[0].detail, "30 bytes of columns; limits.max_column_bytes is 20");
  EXPECT_EQ(summary.num_samples, without.num_samples - 1);
  job_.index = folder_.path() + "/fresh";
  EXPECT_EQ(Build(measurer_).digest, summary.digest) << "remeasured or read, the index is the same";
  // A reader has the columns of the sample that it read last.
  std::unique_ptr<Index> index = Open(measurer_);
  ConversationReader reader;
  std::vector<std::string> found;
  for (uint64_t i = 0; i < index->num_samples(1); ++i) {
    const SamplePlaces places = *index->places(1, i);
    ASSERT_TRUE(reader.Read(places, job_.limits, source_).ok());
    found.emplace_back(*reader.Columns(job_, places.key));
  }
  EXPECT_EQ(found, (std::vector<std::string>{R"({"id": null})", R"({"id": null})", R"({"id": "short"})",
                                             R"({"id": null})"}));
}

TEST_F(IndexTest, FailsTheBuildForAMissingShard) {
  job_.datasets[0].shards.push_back("/nowhere/x.tar");
  EXPECT_EQ(BuildIndex(job_, measurer_, source_).status().code(), absl::StatusCode::kNotFound);
}

// What the index has in the order in which a job without conditions draws it: (dataset, name of the sample).
std::vector<std::pair<uint32_t, std::string>> NamesOf(const Job& job, const Index& index) {
  std::vector<std::pair<uint32_t, std::string>> names;
  for (uint32_t d = 0; d < job.datasets.size(); ++d) {
    for (uint64_t i = 0; i < index.num_samples(d); ++i)
      names.emplace_back(d, SampleName(job, *index.places(d, i)));
  }
  return names;
}

std::vector<std::string> DrawnNames(const Job& job, const Index& index) {
  std::vector<std::string> names;
  for (const auto& [dataset, name] : NamesOf(job, index)) names.push_back(name);
  return names;
}

TEST_F(IndexTest, PartsMakeTheIndexOfOneRun) {
  for (int i = 0; i < 5; ++i) AddShard(i % 2, absl::StrCat("more-", i, ".tar"), PhotoShard(20 * i, 4 + i));
  const std::string whole_folder = job_.index;
  const IndexSummary whole = Build(measurer_);
  const std::string whole_catalogue = ReadFile(whole_folder + "/current");
  job_.index = folder_.path() + "/parts";
  for (const uint32_t number : {2u, 0u, 3u, 2u, 1u}) {  // in any order, one of them twice
    IndexBuilder builder(job_, measurer_, source_, {.part = {number, 4}});
    ASSERT_TRUE(builder.Prepare().ok());
    EXPECT_EQ(builder.num_shards(), 2u);
    for (size_t i = 0; i < builder.num_shards(); ++i) ASSERT_TRUE(builder.BuildShard(i).ok());
    ASSERT_TRUE(builder.Summarise().ok());
    ASSERT_TRUE(builder.Commit().ok());
    EXPECT_FALSE(std::filesystem::exists(job_.index + "/current")) << "a part is no index";
  }
  const IndexSummary merged = Build(measurer_);
  EXPECT_EQ(merged.shards_read, 0u);
  EXPECT_EQ(merged.shards_unchanged, 8u);
  EXPECT_EQ(merged.digest, whole.digest);
  EXPECT_EQ(ReadFile(job_.index + "/current"), whole_catalogue);
  EXPECT_TRUE(std::filesystem::is_empty(job_.index + "/progress"));
}

TEST_F(IndexTest, AMissingPartIsBuiltByTheMerge) {
  IndexBuilder builder(job_, measurer_, source_, {.part = {1, 2}});
  ASSERT_TRUE(builder.Prepare().ok());
  for (size_t i = 0; i < builder.num_shards(); ++i) ASSERT_TRUE(builder.BuildShard(i).ok());
  ASSERT_TRUE(builder.Commit().ok());
  EXPECT_EQ(Build(measurer_).shards_read, 2u);
}

TEST_F(IndexTest, GoesOnWhereARunEnded) {
  {
    IndexBuilder builder(job_, measurer_, source_);
    ASSERT_TRUE(builder.Prepare().ok());
    ASSERT_TRUE(builder.BuildShard(1).ok());
    ASSERT_TRUE(builder.SaveProgress().ok());
  }
  EXPECT_EQ(Build(measurer_).shards_read, 2u);
}

TEST_F(IndexTest, NotesOfProgressAreHintsAlone) {
  {
    IndexBuilder builder(job_, measurer_, source_);
    ASSERT_TRUE(builder.Prepare().ok());
    for (size_t i = 0; i < 3; ++i) ASSERT_TRUE(builder.BuildShard(i).ok());
    ASSERT_TRUE(builder.SaveProgress().ok());
  }
  folder_.Write("shards/photos-0.tar", PhotoShard(50, 5));  // it changed meanwhile
  for (const auto& file : std::filesystem::directory_iterator(job_.index + "/progress")) {
    std::filesystem::copy_file(file.path(), file.path().string() + "-copy");
    const std::string text = ReadFile(file.path());
    folder_.Write("index/progress/" + file.path().filename().string() + "-cut",
                  text.substr(0, text.size() / 2));
    break;
  }
  EXPECT_EQ(Build(measurer_).shards_read, 1u);
  EXPECT_EQ(Open(measurer_)->places(0, 0)->key, "p50");
}

TEST_F(IndexTest, DrawsWhatMeetsTheConditions) {
  Build(measurer_);
  const auto drawn = [&](size_t dataset, std::vector<Condition> where) {
    job_.datasets[0].where.clear();
    job_.datasets[1].where.clear();
    job_.datasets[dataset].where = std::move(where);
    return Open(measurer_);
  };
  // Photo i is 8 + i pixels wide and 8 high.
  auto index = drawn(0, {{.fact = SampleFact::kLongSide, .least = 10, .most = 12}});
  EXPECT_EQ(index->num_samples(0), 3u);
  EXPECT_EQ(index->left_out(0).by_where, 5u);
  EXPECT_EQ(index->places(0, 0)->key, "p2");
  EXPECT_EQ(index->places(0, 2)->key, "p4");
  EXPECT_EQ(index->num_samples(1), 2u) << "conditions are of one dataset";
  index = drawn(0, {{.fact = SampleFact::kShortSide, .least = 9}});
  EXPECT_EQ(index->num_samples(0), 0u);
  index = drawn(0, {{.fact = SampleFact::kAspectRatio, .most = 1.25}});
  EXPECT_EQ(index->num_samples(0), 3u) << "8:8, 9:8 and 10:8";
  index = drawn(1, {{.fact = SampleFact::kAudios, .least = 1, .most = 1}});
  ASSERT_EQ(index->num_samples(1), 1u);
  EXPECT_EQ(index->places(1, 0)->key, "c/1");
  index = drawn(1, {{.fact = SampleFact::kImages, .most = 0}});
  ASSERT_EQ(index->num_samples(1), 1u);
  EXPECT_EQ(index->places(1, 0)->key, "c/2");
  index = drawn(1, {{.fact = SampleFact::kVideoSeconds, .least = 1}});
  EXPECT_EQ(index->num_samples(1), 2u) << "what has no video has none that is too short";
}

TEST_F(IndexTest, ConditionsOnTokensAreThoseOfTheLengths) {
  Build(measurer_);
  const auto all = Open(measurer_);
  for (const SampleFact fact : {SampleFact::kLlmTokens, SampleFact::kTrainedTokens}) {
    std::vector<uint64_t> values;
    for (uint64_t i = 0; i < all->num_samples(0); ++i) {
      const SampleLengths lengths = *all->lengths(0, i);
      values.push_back(fact == SampleFact::kLlmTokens ? lengths.llm_length : lengths.loss_tokens);
    }
    for (const uint64_t bound : values) {
      job_.datasets[0].where = {{.fact = fact, .least = static_cast<double>(bound)}};
      const auto index = Open(measurer_);
      std::vector<SampleLengths> expected, got;
      for (uint64_t i = 0; i < values.size(); ++i)
        if (values[i] >= bound) expected.push_back(*all->lengths(0, i));
      for (uint64_t i = 0; i < index->num_samples(0); ++i) got.push_back(*index->lengths(0, i));
      EXPECT_EQ(got, expected);
    }
  }
}

TEST_F(IndexTest, SplitsDivideTheSamples) {
  AddShard(0, "many.tar", PhotoShard(100, 400));
  Build(measurer_);
  const auto all = NamesOf(job_, *Open(measurer_));
  job_.splits = {{"train", 0.7}, {"eval", 0.2}, {"test", 0.1}};
  std::vector<std::pair<uint32_t, std::string>> together;
  for (job_.split = 0; job_.split < 3; ++job_.split) {
    const auto index = Open(measurer_);
    const auto names = NamesOf(job_, *index);
    EXPECT_NEAR(static_cast<double>(names.size()) / static_cast<double>(all.size()),
                job_.splits[job_.split].share, 0.07);
    EXPECT_EQ(index->left_out(0).by_split + index->num_samples(0), 408u);
    together.insert(together.end(), names.begin(), names.end());
  }
  std::sort(together.begin(), together.end());
  auto sorted = all;
  std::sort(sorted.begin(), sorted.end());
  EXPECT_EQ(together, sorted) << "every sample is in one split";
}

TEST_F(IndexTest, SplitsStayWhenShardsAreAdded) {
  AddShard(0, "many.tar", PhotoShard(100, 400));
  job_.splits = {{"train", 0.5}, {"eval", 0.5}};
  Build(measurer_);
  const auto before = DrawnNames(job_, *Open(measurer_));
  AddShard(0, "more.tar", PhotoShard(1000, 50));
  AddShard(1, "other.tar", PhotoShard(2000, 50));
  Build(measurer_);
  const auto after = DrawnNames(job_, *Open(measurer_));
  for (const std::string& name : before) EXPECT_EQ(std::count(after.begin(), after.end(), name), 1) << name;
  EXPECT_GT(after.size(), before.size());
  job_.split_seed = 1;
  EXPECT_NE(DrawnNames(job_, *Open(measurer_)), after);
}

TEST_F(IndexTest, ExcludesFromASelection) {
  Build(measurer_);
  job_.datasets[0].where = {{.fact = SampleFact::kLongSide, .least = 10, .most = 12}};
  job_.exclude = {"photos/photos-0.tar/p3", "photos/photos-1.tar/p7"};
  const auto index = Open(measurer_);
  EXPECT_EQ(DrawnNames(job_, *index),
            (std::vector<std::string>{"photos/photos-0.tar/p2", "photos/photos-0.tar/p4",
                                      "chats/chats.tar/c/1", "chats/chats.tar/c/2"}));
}

TEST_F(IndexTest, ADatasetOfWhichNothingIsLeftSaysWhy) {
  Build(measurer_);
  job_.batch.samples = 2;
  job_.datasets[0].where = {{.fact = SampleFact::kVideos, .least = 1}};
  const auto sampler = Sampler::Make(job_, *Open(measurer_));
  EXPECT_EQ(sampler.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(sampler.status().message().find("its `where` leaves out 8"), std::string::npos)
      << sampler.status();
}

TEST(RemainingRows, NumbersWhatRemains) {
  for (uint32_t mask = 0; mask < 256; ++mask) {
    std::vector<uint64_t> excluded, remaining;
    for (uint64_t row = 0; row < 8; ++row) (mask >> row & 1 ? excluded : remaining).push_back(row);
    const RemainingRows without = RemainingRows::Without(8, excluded);
    const RemainingRows of = RemainingRows::Of(8, {~mask & 255});
    ASSERT_EQ(without.size(), remaining.size());
    ASSERT_EQ(of.size(), remaining.size());
    for (uint64_t i = 0; i < remaining.size(); ++i) {
      EXPECT_EQ(without.RowOf(i), remaining[i]);
      EXPECT_EQ(of.RowOf(i), remaining[i]);
    }
  }
}

TEST(RemainingRows, FindsRowsAmongManyBits) {
  constexpr uint64_t kRows = 50021;
  for (const uint64_t every : {1, 2, 7, 4096, 9973}) {
    std::vector<uint64_t> bits((kRows + 63) / 64, 0), rows;
    for (uint64_t row = 0; row < kRows; ++row) {
      if (MixKey({every, row}) % every != 0) continue;
      bits[row / 64] |= uint64_t{1} << (row % 64);
      rows.push_back(row);
    }
    const RemainingRows remaining = RemainingRows::Of(kRows, bits);
    ASSERT_EQ(remaining.size(), rows.size());
    for (uint64_t i = 0; i < rows.size(); ++i) ASSERT_EQ(remaining.RowOf(i), rows[i]) << every;
  }
}

}  // namespace
}  // namespace evenkeel::dataset
