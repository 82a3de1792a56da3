// What of addresses is decided before a request is made; tests/e2e/test_object_stores.py makes requests.
#include "dataset/source/store_source.h"

#include <sys/wait.h>
#include <unistd.h>

#include <map>
#include <string>
#include <vector>

#include "core/address.h"
#include "core/failure.h"
#include "dataset/format/shard_list.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "support.h"

namespace evenkeel::dataset {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Lists what it was given.
class ListedSource : public MemorySource {
 public:
  std::map<std::string, std::vector<std::string>> lists;

  std::vector<std::string> listed;

  absl::StatusOr<std::vector<std::string>> List(const std::string& pattern) override {
    listed.push_back(pattern);
    return lists[pattern];
  }
};

Job JobOf(std::vector<std::string> shards) {
  Job job;
  job.path = "job.yaml";
  job.datasets.push_back({.name = "photos", .shards = std::move(shards)});
  return job;
}

TEST(Address, HasASchemeBeforeTwoSlashes) {
  EXPECT_TRUE(IsAddress("s3://bucket/a.tar"));
  EXPECT_EQ(SchemeOf("https://host/a.tar"), "https");
  for (const char* path : {"a.tar", "/a//b.tar", "://a", "./s3:/a", "a b://c", ""})
    EXPECT_FALSE(IsAddress(path)) << path;
}

TEST(ListShards, PutsWhatIsFoundInThePlaceOfAPattern) {
  ListedSource source;
  source.lists["s3://b/x-*.tar"] = {"s3://b/x-0.tar", "s3://b/x-1.tar"};
  Job job = JobOf({"a*.tar", "s3://b/x-*.tar", "s3://b/y.tar"});
  ASSERT_TRUE(ListShards(source, job).ok());
  EXPECT_THAT(job.datasets[0].shards,
              ElementsAre("a*.tar", "s3://b/x-0.tar", "s3://b/x-1.tar", "s3://b/y.tar"));
}

TEST(ListShards, SeesManyShardsOfAFolderByOneListing) {
  ListedSource source;
  std::vector<std::string> shards;
  for (int i = 0; i < 100; ++i) {
    shards.push_back("s3://b/many/" + std::to_string(i));
    shards.push_back("/files/" + std::to_string(i));
    if (i < 99) shards.push_back("s3://b/fewer/" + std::to_string(i));
  }
  Job job = JobOf(shards);
  ASSERT_TRUE(ListShards(source, job).ok());
  EXPECT_EQ(job.datasets[0].shards, shards);
  EXPECT_THAT(source.listed, ElementsAre("s3://b/many/*"));
}

TEST(ListShards, RefusesNothingAndTheSameObjectTwice) {
  ListedSource source;
  source.lists["s3://b/*.tar"] = {"s3://b/0.tar"};
  Job twice = JobOf({"s3://b/0.tar", "s3://b/*.tar"});
  EXPECT_THAT(ListShards(source, twice).message(), HasSubstr("s3://b/0.tar is listed twice"));
  Job none = JobOf({"s3://b/none-?.tar"});
  EXPECT_TRUE(absl::IsNotFound(ListShards(source, none)));
}

TEST(StoreSource, ReadsPathsFromItsFiles) {
  auto files = std::make_unique<MemorySource>();
  files->objects["/a.tar"] = "0123456789";
  const std::unique_ptr<ByteSource> source = MakeStoreSource({}, std::move(files));
  ASSERT_TRUE(source->Size("/a.tar").ok());
  EXPECT_EQ(*source->Size("/a.tar"), 10u);
}

TEST(StoreSource, SendsNoCredentialsWithoutTls) {
  const std::unique_ptr<ByteSource> source = MakeStoreSource(
      {{.url = "s3://", .endpoint = "http://store.invalid:9000"},
       {.url = "s3://public/", .endpoint = "http://store.invalid:9000", .anonymous = true, .retries = 0}},
      MakeFileSource());
  const absl::Status refused = source->Size("s3://private/a.tar").status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(refused.message(),
              HasSubstr("s3://private: the endpoint http://store.invalid:9000 has no TLS"));
  EXPECT_EQ(KindOf(refused), FailureKind::kMachine);
  // The longest begin counts. There is no such host.
  EXPECT_TRUE(absl::IsUnavailable(source->Size("s3://public/a.tar").status()));
}

TEST(StoreSource, ListsOneFolderOfAStoreOnly) {
  const std::unique_ptr<ByteSource> source = MakeStoreSource(
      {{.url = "s3://", .endpoint = "http://localhost:1", .anonymous = true}}, MakeFileSource());
  EXPECT_THAT(source->List("s3://b/*/a.tar").status().message(), HasSubstr("in the last component only"));
  EXPECT_THAT(source->List("http://localhost:1/*.tar").status().message(), HasSubstr("cannot be listed"));
}

TEST(StoreSource, IsNotUsedByAForkedProcess) {
  const std::unique_ptr<ByteSource> source =
      MakeStoreSource({{.url = "s3://", .endpoint = "http://localhost:1", .anonymous = true, .retries = 0}},
                      MakeFileSource());
  ASSERT_TRUE(absl::IsUnavailable(source->Size("s3://b/a.tar").status()));  // the threads run
  const pid_t child = ::fork();
  if (child == 0) {
    const absl::Status status = source->Size("s3://b/a.tar").status();
    ::_exit(absl::IsInvalidArgument(status) ? 0 : 1);
  }
  int result = 1;
  ASSERT_EQ(::waitpid(child, &result, 0), child);
  EXPECT_TRUE(WIFEXITED(result) && WEXITSTATUS(result) == 0);
}

}  // namespace
}  // namespace evenkeel::dataset
