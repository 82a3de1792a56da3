// Media held in groups: one request each, many at a time, the same answers as the source below.
#include "dataset/index/media_source.h"

#include <atomic>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/annotated_mutex.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "support.h"

namespace evenkeel::dataset {
namespace {

// A store of objects whose bytes are their addresses. It counts, and lets nobody pass before several ask at once.
class CountingStore : public ByteSource {
 public:
  explicit CountingStore(size_t at_once = 1) : at_once_(at_once) {}

  std::atomic<int> wholes{0}, sizes{0}, stamps{0}, reads{0};

  absl::StatusOr<WholeObject> ReadWhole(const std::string& path, uint64_t max_bytes) override {
    ++wholes;
    Meet();
    if (path.ends_with("missing")) return absl::NotFoundError(path);
    WholeObject object{.size = path.size(), .stamp = absl::StrCat("etag ", path)};
    if (object.size > max_bytes) return object;
    const auto bytes = std::as_bytes(std::span(path));
    object.bytes.assign(bytes.begin(), bytes.end());
    return object;
  }
  absl::StatusOr<uint64_t> Size(const std::string& path) override { return ++sizes, path.size(); }
  absl::StatusOr<std::string> Stamp(const std::string& path) override {
    ++stamps;
    Meet();
    return absl::StrCat("etag ", path);
  }
  absl::Status ReadAt(const std::string& path, uint64_t offset, std::span<std::byte> out) override {
    ++reads;
    const auto bytes = std::as_bytes(std::span(path)).subspan(offset, out.size());
    std::copy(bytes.begin(), bytes.end(), out.begin());
    return absl::OkStatus();
  }

 private:
  void Meet() {
    MutexLock lock(mutex_);
    ++here_;
    met_.NotifyAll();
    while (here_ < at_once_) met_.Wait(mutex_);
  }

  const size_t at_once_;
  Mutex mutex_;
  CondVar met_;
  size_t here_ ABSL_GUARDED_BY(mutex_) = 0;
};

std::vector<std::string> Paths(size_t count) {
  std::vector<std::string> paths;
  for (size_t i = 0; i < count; ++i) paths.push_back(absl::StrCat("s3://b/", i, ".jpg"));
  return paths;
}

std::string Read(ByteSource& source, const std::string& path) {
  std::string text(path.size(), '?');
  EXPECT_TRUE(source.ReadAt(path, 0, std::as_writable_bytes(std::span(text))).ok());
  return text;
}

TEST(MediaSource, HoldsManyByOneRequestEach) {
  CountingStore store(/*at_once=*/16);
  MediaSource media(store, 1000);
  const std::vector<std::string> paths = Paths(40);
  const auto held = media.Hold(paths);
  for (const std::string& path : paths) {
    EXPECT_EQ(*media.Size(path), path.size());
    EXPECT_EQ(*media.Stamp(path), "etag " + path);
    EXPECT_EQ(Read(media, path), path);
  }
  EXPECT_EQ(store.wholes, 40);
  EXPECT_EQ(store.sizes + store.stamps + store.reads, 0);
}

TEST(MediaSource, ForgetsWhatIsNoLongerHeld) {
  CountingStore store;
  MediaSource media(store, 1000);
  auto one = media.Hold(Paths(2));
  const auto two = media.Hold(Paths(1));
  one.reset();
  EXPECT_EQ(Read(media, "s3://b/0.jpg"), "s3://b/0.jpg");
  EXPECT_EQ(store.reads, 0);
  EXPECT_EQ(Read(media, "s3://b/1.jpg"), "s3://b/1.jpg");
  EXPECT_EQ(store.reads, 1);
}

TEST(MediaSource, HoldsTheErrorOfAReading) {
  CountingStore store;
  MediaSource media(store, 1000);
  const auto held = media.Hold({"s3://b/missing"});
  EXPECT_TRUE(absl::IsNotFound(media.Size("s3://b/missing").status()));
  EXPECT_EQ(store.sizes, 0);
}

TEST(MediaSource, ReadsLargeMediaWhenTheyAreNeeded) {
  CountingStore store;
  MediaSource media(store, 5);
  const auto held = media.Hold(Paths(1));
  EXPECT_EQ(*media.Size("s3://b/0.jpg"), 12);
  EXPECT_EQ(store.sizes, 0);
  EXPECT_EQ(Read(media, "s3://b/0.jpg"), "s3://b/0.jpg");
  EXPECT_EQ(store.reads, 1);
}

TEST(MediaSource, LeavesFilesOfThisMachineAlone) {
  CountingStore store;
  MediaSource media(store, 1000);
  const auto held = media.Hold({"a.jpg"});
  EXPECT_EQ(Read(media, "a.jpg"), "a.jpg");
  EXPECT_EQ(store.wholes, 0);
  EXPECT_EQ(store.reads, 1);
}

TEST(MediaSource, StampsManyAtATimeInTheirOrder) {
  CountingStore store(/*at_once=*/16);
  MediaSource media(store, 1000);
  const std::vector<std::string> paths = Paths(100);
  const std::vector<absl::StatusOr<std::string>> stamps = media.StampsOf(paths);
  ASSERT_EQ(stamps.size(), 100);
  for (size_t i = 0; i < stamps.size(); ++i) EXPECT_EQ(*stamps[i], "etag " + paths[i]);
}

}  // namespace
}  // namespace evenkeel::dataset
