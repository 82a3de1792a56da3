// Announced ranges: read once, together where they are close, within the budget, and never other bytes.
#include "dataset/source/fetch_ahead.h"

#include <algorithm>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/annotated_mutex.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "support.h"

namespace evenkeel::dataset {
namespace {

using ::testing::ElementsAre;
using ::testing::SizeIs;

const char kObject[] = "s3://b/a.tar";

// A store whose answers wait until they are let through, and that notes every read.
class SlowStore : public ByteSource {
 public:
  struct Read {
    std::string path;
    uint64_t offset = 0;
    uint64_t size = 0;
  };

  explicit SlowStore(bool open = true) : open_(open) {}

  void Open() {
    MutexLock lock(mutex_);
    open_ = true;
    changed_.NotifyAll();
  }
  // Reads whose offset is among these fail.
  void FailAt(uint64_t offset, absl::Status status) {
    MutexLock lock(mutex_);
    failures_.insert_or_assign(offset, std::move(status));
  }
  std::vector<Read> reads() {
    MutexLock lock(mutex_);
    return reads_;
  }
  void WaitForReads(size_t count) {
    MutexLock lock(mutex_);
    while (reads_.size() < count) changed_.Wait(mutex_);
  }
  // Until the last read has the byte at `offset`.
  void WaitForReadOf(uint64_t offset) {
    MutexLock lock(mutex_);
    while (reads_.empty() || offset < reads_.back().offset ||
           offset >= reads_.back().offset + reads_.back().size)
      changed_.Wait(mutex_);
  }
  uint64_t most_at_once() {
    MutexLock lock(mutex_);
    return most_at_once_;
  }

  absl::StatusOr<uint64_t> Size(const std::string&) override { return 1 << 20; }
  absl::Status ReadAt(const std::string& path, uint64_t offset, std::span<std::byte> out) override {
    MutexLock lock(mutex_);
    reads_.push_back({path, offset, out.size()});
    most_at_once_ = std::max(most_at_once_, ++now_);
    changed_.NotifyAll();
    while (!open_) changed_.Wait(mutex_);
    --now_;
    if (const auto failure = failures_.find(offset); failure != failures_.end()) return failure->second;
    for (size_t i = 0; i < out.size(); ++i) out[i] = ByteAt(path, offset + i);
    return absl::OkStatus();
  }

  static std::byte ByteAt(const std::string& path, uint64_t at) {
    return static_cast<std::byte>((at * 2654435761u >> 7) + path.size());
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  bool open_ ABSL_GUARDED_BY(mutex_);
  std::vector<Read> reads_ ABSL_GUARDED_BY(mutex_);
  std::map<uint64_t, absl::Status> failures_ ABSL_GUARDED_BY(mutex_);
  uint64_t now_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t most_at_once_ ABSL_GUARDED_BY(mutex_) = 0;
};

// A source over a store that the test keeps hold of.
struct Ahead {
  SlowStore* store = nullptr;
  std::unique_ptr<ByteSource> source;

  explicit Ahead(const FetchAheadOptions& options = {}, bool open = true,
                 std::unique_ptr<DiskCache> cache = nullptr) {
    auto owned = std::make_unique<SlowStore>(open);
    store = owned.get();
    source = MakeFetchAheadSource(std::move(owned), options, std::move(cache));
  }
  // An error, or whether the bytes are the right ones.
  absl::Status Read(const std::string& path, uint64_t offset, uint64_t size) const {
    std::vector<std::byte> bytes(size);
    EVENKEEL_RETURN_IF_ERROR(source->ReadAt(path, offset, bytes));
    for (uint64_t i = 0; i < size; ++i) {
      if (bytes[i] != SlowStore::ByteAt(path, offset + i))
        return absl::DataLossError(absl::StrCat("byte ", i));
    }
    return absl::OkStatus();
  }
};

TEST(FetchAhead, ReadsWhatWasAnnouncedOnce) {
  Ahead ahead;
  const auto expected = ahead.source->Expect({{kObject, 512, 100}, {kObject, 500'000, 50}}, 0);
  EXPECT_TRUE(ahead.Read(kObject, 500'000, 50).ok());
  EXPECT_TRUE(ahead.Read(kObject, 512, 100).ok());
  EXPECT_THAT(ahead.store->reads(), SizeIs(2));
  EXPECT_EQ(ahead.source->counts().bytes_ahead, 0);
}

TEST(FetchAhead, ReadsWhatWasNotAnnounced) {
  Ahead ahead;
  EXPECT_TRUE(ahead.Read(kObject, 512, 100).ok());
  EXPECT_TRUE(ahead.Read("local.tar", 512, 100).ok());
  EXPECT_EQ(ahead.source->counts().direct, 1);  // files are not counted
}

TEST(FetchAhead, LeavesFilesOfThisMachineAlone) {
  Ahead ahead;
  EXPECT_EQ(ahead.source->Expect({{"local.tar", 512, 100}}, 0), nullptr);
  EXPECT_THAT(ahead.store->reads(), SizeIs(0));
}

TEST(FetchAhead, SpansNeighboursByOneRequest) {
  Ahead ahead({.max_requests = 1, .max_gap = 1000, .max_request_bytes = 5000}, /*open=*/false);
  const auto before = ahead.source->Expect({{"s3://b/before.tar", 0, 10}}, 0);
  ahead.store->WaitForReads(1);  // it holds the only thread
  // One request each: the first four ranges; what is too far from them; what would make it too large; another object.
  const auto expected = ahead.source->Expect({{kObject, 1000, 100},
                                              {kObject, 0, 100},
                                              {kObject, 2000, 500},
                                              {kObject, 1100, 10},
                                              {kObject, 3600, 100},
                                              {kObject, 4600, 4000},
                                              {"s3://b/b.tar", 100, 10}},
                                             0);
  ahead.store->Open();
  ahead.store->WaitForReads(4);
  for (const auto& [offset, size] :
       {std::pair(1000, 100), {0, 100}, {2000, 500}, {1100, 10}, {3600, 100}, {4600, 4000}})
    EXPECT_TRUE(ahead.Read(kObject, offset, size).ok()) << offset;
  EXPECT_TRUE(ahead.Read("s3://b/b.tar", 100, 10).ok());
  std::vector<std::string> reads;
  for (const SlowStore::Read& read : ahead.store->reads())
    reads.push_back(absl::StrCat(read.path, " ", read.offset, "+", read.size));
  EXPECT_THAT(reads, ElementsAre("s3://b/before.tar 0+10", "s3://b/a.tar 0+2500", "s3://b/a.tar 3600+5000",
                                 "s3://b/b.tar 100+10"));
}

TEST(FetchAhead, TakesTheLowestTurnFirst) {
  Ahead ahead({.max_requests = 1, .max_gap = 0}, /*open=*/false);
  const auto first = ahead.source->Expect({{kObject, 0, 10}}, 7);
  ahead.store->WaitForReads(1);  // it holds the only thread
  const auto late = ahead.source->Expect({{kObject, 100, 10}, {kObject, 200, 10}}, 9);
  const auto soon = ahead.source->Expect({{kObject, 300, 10}}, 8);
  ahead.store->Open();
  ahead.store->WaitForReads(4);
  std::vector<uint64_t> offsets;
  for (const SlowStore::Read& read : ahead.store->reads()) offsets.push_back(read.offset);
  EXPECT_THAT(offsets, ElementsAre(0, 300, 100, 200));
}

TEST(FetchAhead, KeepsWithinItsBudget) {
  Ahead ahead({.budget_bytes = 1000, .max_gap = 0});
  std::vector<ByteRange> ranges;
  for (uint64_t i = 0; i < 40; ++i) ranges.push_back({kObject, i * 1000, 300});
  const auto expected = ahead.source->Expect(ranges, 0);
  ahead.store->WaitForReads(3);
  EXPECT_LE(ahead.source->counts().bytes_ahead, 1000);
  // The last one is read at once, though the budget is used up.
  EXPECT_TRUE(ahead.Read(kObject, 39'000, 300).ok());
  EXPECT_EQ(ahead.source->counts().direct, 1);
  for (const ByteRange& range : ranges) EXPECT_TRUE(ahead.Read(kObject, range.offset, range.size).ok());
  EXPECT_THAT(ahead.store->reads(), SizeIs(41));  // the last one twice
  EXPECT_EQ(ahead.source->counts().bytes_ahead, 0);
}

TEST(FetchAhead, GivesUpWhatNobodyWaitsFor) {
  Ahead ahead({.max_requests = 1, .max_gap = 0}, /*open=*/false);
  auto first = ahead.source->Expect({{kObject, 0, 10}}, 0);
  ahead.store->WaitForReads(1);
  auto other = ahead.source->Expect({{kObject, 1000, 10}, {kObject, 2000, 10}}, 1);
  const auto shared = ahead.source->Expect({{kObject, 2000, 10}}, 2);
  first.reset();
  other.reset();
  ahead.store->Open();
  EXPECT_TRUE(ahead.Read(kObject, 2000, 10).ok());
  const std::vector<SlowStore::Read> reads = ahead.store->reads();
  EXPECT_EQ(std::ranges::count(reads, uint64_t{1000}, &SlowStore::Read::offset), 0);
  // What was given up while it was on its way ends first.
  while (ahead.source->counts().bytes_ahead > 0) std::this_thread::yield();
}

TEST(FetchAhead, GivesEveryReaderOfARangeItsBytes) {
  Ahead ahead;
  const auto one = ahead.source->Expect({{kObject, 512, 100}}, 0);
  const auto two = ahead.source->Expect({{kObject, 512, 100}}, 1);
  ahead.store->WaitForReads(1);  // a reader who comes first would read for itself
  EXPECT_TRUE(ahead.Read(kObject, 512, 100).ok());
  EXPECT_TRUE(ahead.Read(kObject, 512, 100).ok());
  EXPECT_THAT(ahead.store->reads(), SizeIs(1));
  EXPECT_EQ(ahead.source->counts().bytes_ahead, 0);
}

TEST(FetchAhead, ReadsAloneWhatFailedTogether) {
  Ahead ahead({.max_requests = 1});
  ahead.store->FailAt(0, absl::OutOfRangeError("ends at byte 700"));
  const auto expected = ahead.source->Expect({{kObject, 0, 100}, {kObject, 600, 200}}, 0);
  EXPECT_TRUE(ahead.Read(kObject, 600, 200).ok());
  EXPECT_EQ(ahead.Read(kObject, 0, 100).code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(ahead.source->counts().bytes_ahead, 0);
}

TEST(FetchAhead, AStoreThatCannotBeReachedIsAskedOnce) {
  Ahead ahead;
  ahead.store->FailAt(0, absl::UnavailableError("no route"));
  const auto expected = ahead.source->Expect({{kObject, 0, 100}}, 0);
  EXPECT_EQ(ahead.Read(kObject, 0, 100).code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(ahead.store->reads(), SizeIs(1));
}

TEST(FetchAhead, NeedsNoRequestForWhatTheCacheHas) {
  TempFolder folder;
  for (const size_t requests : {1, 0}) {  // of the first epoch, and of the second
    Ahead ahead({}, /*open=*/true, *DiskCache::Open(folder.path(), 1 << 30));
    const auto expected = ahead.source->Expect({{kObject, 0, 100}, {kObject, 600, 200}}, 0);
    ahead.store->WaitForReads(requests);  // a reader who comes first would read for itself
    EXPECT_TRUE(ahead.Read(kObject, 600, 200).ok());
    EXPECT_TRUE(ahead.Read(kObject, 0, 100).ok());
    EXPECT_THAT(ahead.store->reads(), SizeIs(requests));
  }
}

TEST(FetchAhead, DoesNotTrustTheCacheAboutAForgottenObject) {
  TempFolder folder;
  Ahead ahead({.budget_bytes = 0}, /*open=*/true, *DiskCache::Open(folder.path(), 1 << 30));
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(ahead.Read(kObject, 0, 100).ok());
  EXPECT_THAT(ahead.store->reads(), SizeIs(1));
  ahead.source->Forget(kObject);
  EXPECT_TRUE(ahead.Read(kObject, 0, 100).ok());
  EXPECT_THAT(ahead.store->reads(), SizeIs(2));
}

ByteRange InRun(uint64_t offset, uint64_t size, uint64_t begin, uint64_t end, uint64_t runs = 2) {
  return {.path = kObject, .offset = offset, .size = size, .run_begin = begin, .run_end = end, .runs = runs};
}

TEST(FetchAhead, FetchesPiecesOfRunsForLaterReaders) {
  Ahead ahead({.budget_bytes = 100'000, .max_piece_bytes = 4000});
  // A run of 10,000 bytes is three pieces of at most 3,334.
  const auto first = ahead.source->Expect({InRun(5000, 100, 1000, 11'000)}, 0);
  ahead.store->WaitForReads(1);
  EXPECT_TRUE(ahead.Read(kObject, 5000, 100).ok());
  const auto later = ahead.source->Expect({InRun(4400, 50, 1000, 11'000), InRun(7000, 600, 1000, 11'000)}, 3);
  EXPECT_TRUE(ahead.Read(kObject, 4400, 50).ok());
  EXPECT_TRUE(ahead.Read(kObject, 7000, 600).ok());
  ASSERT_THAT(ahead.store->reads(), SizeIs(1));
  EXPECT_EQ(ahead.store->reads()[0].offset, 4334);
  EXPECT_EQ(ahead.store->reads()[0].size, 3334);
  const auto last = ahead.source->Expect({InRun(1000, 100, 1000, 11'000)}, 4);
  ahead.store->WaitForReads(2);
  EXPECT_TRUE(ahead.Read(kObject, 1000, 100).ok());
}

TEST(FetchAhead, AReadAcrossPiecesGetsItsBytes) {
  Ahead ahead({.budget_bytes = 100'000, .max_piece_bytes = 5000});
  const auto inside = ahead.source->Expect({InRun(100, 100, 0, 10'000)}, 0);
  ahead.store->WaitForReads(1);
  EXPECT_TRUE(ahead.Read(kObject, 100, 100).ok());
  const auto across = ahead.source->Expect({InRun(4900, 300, 0, 10'000)}, 1);
  EXPECT_TRUE(ahead.Read(kObject, 4900, 300).ok());
  EXPECT_THAT(ahead.store->reads(), SizeIs(2));
}

TEST(FetchAhead, LeavesRunsThatDoNotFit) {
  Ahead ahead({.budget_bytes = 30'000, .max_gap = 0, .max_piece_bytes = 4000});
  const auto expected = ahead.source->Expect({InRun(5000, 100, 0, 10'000), InRun(9000, 100, 0, 10'000)}, 0);
  ahead.store->WaitForReads(2);
  EXPECT_TRUE(ahead.Read(kObject, 5000, 100).ok());
  EXPECT_TRUE(ahead.Read(kObject, 9000, 100).ok());
  for (const SlowStore::Read& read : ahead.store->reads()) EXPECT_EQ(read.size, 100);
}

TEST(FetchAhead, KeepsPiecesWithinItsBudget) {
  Ahead ahead({.budget_bytes = 16'000, .max_piece_bytes = 4000});
  for (uint64_t run = 0; run < 20; ++run) {
    const uint64_t begin = run * 4000;
    const auto expected = ahead.source->Expect({InRun(begin + 10, 3000, begin, begin + 4000)}, run);
    ahead.store->WaitForReads(run + 1);
    EXPECT_TRUE(ahead.Read(kObject, begin + 10, 3000).ok());
    EXPECT_LE(ahead.source->counts().bytes_ahead, 16'000);
  }
  EXPECT_EQ(ahead.source->counts().direct, 0);
}

TEST(FetchAhead, FetchesRangesAloneWhereOthersReadTheRest) {
  Ahead ahead({.budget_bytes = 40'000, .max_gap = 0, .max_piece_bytes = 4000});
  uint64_t bytes = 0;
  for (uint64_t run = 0; run < 200; ++run) {
    const uint64_t begin = run * 4000;
    const auto expected = ahead.source->Expect({InRun(begin + 10, 100, begin, begin + 4000)}, run);
    ahead.store->WaitForReads(run + 1);
    EXPECT_TRUE(ahead.Read(kObject, begin + 10, 100).ok());
  }
  for (const SlowStore::Read& read : ahead.store->reads()) bytes += read.size;
  EXPECT_LT(bytes, 200 * 4000 / 5) << "one range in forty is read, so that whole pieces do not pay";
}

// Runs of 4,000 bytes, of which the first `count` ranges of 100 bytes are read, one at a time.
void ReadRunsOf(const Ahead& ahead, uint64_t first_run, uint64_t num_runs, uint64_t count) {
  for (uint64_t run = first_run; run < first_run + num_runs; ++run) {
    const uint64_t begin = run * 4000;
    for (uint64_t i = 0; i < count; ++i) {
      const uint64_t offset = begin + i * 100;
      const auto expected = ahead.source->Expect({InRun(offset, 100, begin, begin + 4000)}, run);
      ahead.store->WaitForReadOf(offset);
      EXPECT_TRUE(ahead.Read(kObject, offset, 100).ok());
    }
  }
}

TEST(FetchAhead, FetchesPiecesAgainAfterATwentiethOfTheirBytesWasReadAlone) {
  Ahead ahead({.budget_bytes = 40'000, .max_gap = 0, .max_piece_bytes = 4000});
  ReadRunsOf(ahead, 0, 200, 1);  // it learns that a fortieth is read
  const size_t before = ahead.store->reads().size();
  constexpr uint64_t kRuns = 3000;
  ReadRunsOf(ahead, 200, kRuns, 1);
  uint64_t bytes = 0, pieces = 0;
  const std::vector<SlowStore::Read> reads = ahead.store->reads();
  for (size_t i = before; i < reads.size(); ++i) {
    bytes += reads[i].size;
    pieces += reads[i].size == 4000 ? 1 : 0;
  }
  EXPECT_GE(pieces, 2) << "the share may have changed";
  EXPECT_LE(bytes, kRuns * 100 * 106 / 100);
}

TEST(FetchAhead, FetchesPiecesOnceMoreIsRead) {
  Ahead ahead({.budget_bytes = 40'000, .max_gap = 0, .max_piece_bytes = 4000});
  ReadRunsOf(ahead, 0, 200, 1);
  ReadRunsOf(ahead, 200, 200, 40);  // 800,000 bytes: ten probes if need be
  const size_t before = ahead.store->reads().size();
  ReadRunsOf(ahead, 400, 20, 40);
  EXPECT_EQ(ahead.store->reads().size() - before, 20) << "a request for each run";
}

TEST(FetchAhead, ForgetsPiecesOfAnObjectThatChanged) {
  Ahead ahead({.budget_bytes = 100'000, .max_piece_bytes = 4000});
  const auto first = ahead.source->Expect({InRun(0, 100, 0, 4000)}, 0);
  ahead.store->WaitForReads(1);
  EXPECT_TRUE(ahead.Read(kObject, 0, 100).ok());
  ahead.source->Forget(kObject);
  EXPECT_EQ(ahead.source->counts().bytes_ahead, 0);
  const auto again = ahead.source->Expect({InRun(200, 100, 0, 4000)}, 1);
  ahead.store->WaitForReads(2);
  EXPECT_TRUE(ahead.Read(kObject, 200, 100).ok());
}

// Many threads announce, read and give up at random. Every read has the right bytes, and nothing is left behind.
TEST(FetchAhead, HoldsUnderManyThreads) {
  Ahead ahead({.budget_bytes = 20'000,
               .max_requests = 4,
               .max_gap = 300,
               .max_request_bytes = 3000,
               .max_piece_bytes = 2000});
  std::vector<std::thread> threads;
  for (uint64_t thread = 0; thread < 8; ++thread) {
    threads.emplace_back([&ahead, thread] {
      std::mt19937_64 random(thread);
      for (uint64_t turn = 0; turn < 200; ++turn) {
        std::vector<ByteRange> ranges;
        for (int i = 0; i < 8; ++i)
          ranges.push_back(
              {random() % 2 == 0 ? kObject : "s3://b/b.tar", random() % 40 * 250, 1 + random() % 3 * 100});
        for (ByteRange& range : ranges) {
          if (random() % 2 == 0) continue;
          range.run_begin = range.offset / 2000 * 2000;
          range.run_end = range.run_begin + 2600;
          range.runs = random() % 3;
        }
        if (random() % 16 == 0) ahead.source->Forget(kObject);
        const auto expected = ahead.source->Expect(ranges, turn);
        const size_t read = random() % (ranges.size() + 1);
        for (size_t i = 0; i < read; ++i)
          EXPECT_TRUE(ahead.Read(ranges[i].path, ranges[i].offset, ranges[i].size).ok());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(ahead.store->most_at_once(), 12);  // 4 ahead of need, and the readers themselves
  for (const std::string path : {kObject, "s3://b/b.tar"})
    ahead.source->Forget(path);  // and with it what is kept
  // What was given up while it was on its way ends first.
  while (ahead.source->counts().bytes_ahead > 0) std::this_thread::yield();
}

}  // namespace
}  // namespace evenkeel::dataset
