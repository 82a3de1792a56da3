#include "reorder/workspace.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "reorder/by_rank.h"

namespace evenkeel::reorder {
namespace {

TEST(Workspace, GivesArraysThatDoNotOverlap) {
  Workspace memory(1000);
  std::vector<std::span<uint32_t>> arrays;
  for (uint32_t a = 0; a < 100; ++a) {
    arrays.push_back(memory.Take<uint32_t>(a * a));
    std::fill(arrays[a].begin(), arrays[a].end(), a);
  }
  for (uint32_t a = 0; a < 100; ++a) {
    ASSERT_EQ(arrays[a].size(), a * a);
    ASSERT_EQ(std::count(arrays[a].begin(), arrays[a].end(), a), a * a);
    ASSERT_EQ(reinterpret_cast<uintptr_t>(arrays[a].data()) % 64, 0u);
  }
}

TEST(Workspace, KeepsWhatWasTakenBeforeAScope) {
  Workspace memory(256);
  const std::span<uint64_t> kept = memory.Take<uint64_t>(40);
  std::fill(kept.begin(), kept.end(), 7);
  for (int round = 0; round < 3; ++round) {
    const Workspace::Scope outer(memory);
    const std::span<uint64_t> first = memory.Take<uint64_t>(1000);
    std::fill(first.begin(), first.end(), 8);
    {
      const Workspace::Scope inner(memory);
      const std::span<uint64_t> second = memory.Take<uint64_t>(3000);
      std::fill(second.begin(), second.end(), 9);
    }
    const std::span<uint64_t> third = memory.Zeros<uint64_t>(2000);
    EXPECT_EQ(std::count(first.begin(), first.end(), 8), 1000);
    EXPECT_EQ(std::count(third.begin(), third.end(), 0), 2000);
  }
  EXPECT_EQ(std::count(kept.begin(), kept.end(), 7), 40);
}

TEST(Workspace, TakesLargePagesForLargePieces) {
  Workspace memory(size_t{5} << 20);
  const std::span<uint8_t> array = memory.Zeros<uint8_t>(size_t{3} << 20);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(array.data()) % (size_t{2} << 20), 0u);
  ExpectWrites(array.data() + 1, array.size() - 2);
  EXPECT_EQ(std::count(array.begin(), array.end(), 0), 3 << 20);
}

TEST(ExpectWrites, ChangesNoContentOfLittleMemory) {
  std::vector<uint8_t> array(300000, 5);
  ExpectWrites(array.data() + 1, 3);
  ExpectWrites(array.data() + 1, array.size() - 2);
  EXPECT_EQ(std::count(array.begin(), array.end(), 5), 300000);
}

TEST(ReserveToWrite, ReservesAtLeastWhatIsAskedForAndKeepsWhatIsThere) {
  for (size_t count : {size_t{0}, size_t{1}, size_t{1000}, size_t{3} << 18, (size_t{1} << 20) - 1}) {
    std::vector<uint32_t> vector = {7, 8};
    ReserveToWrite(vector, count);
    EXPECT_GE(vector.capacity(), count);
    const uint32_t* const data = vector.data();
    vector.resize(std::max<size_t>(2, count), 9);
    EXPECT_EQ(vector.data(), data) << count;
    EXPECT_EQ(vector[0], 7u);
    EXPECT_EQ(vector[1], 8u);
  }
}

TEST(WriteAll, AppendsWhatIsMadeOnceForEachAndInOrder) {
  for (const bool reserved : {false, true}) {
    std::vector<uint32_t> vector = {7};
    if (reserved) ReserveToWrite(vector, 1001);
    uint32_t calls = 0;
    WriteAll(vector, 1000, [&](size_t i) { return static_cast<uint32_t>(i * 1000 + ++calls); });
    ASSERT_EQ(vector.size(), 1001u);
    EXPECT_EQ(vector[0], 7u);
    for (uint32_t i = 0; i < 1000; ++i) ASSERT_EQ(vector[i + 1], i * 1000 + i + 1);
    WriteAll(vector, 0, [&](size_t) { return ++calls; });
    EXPECT_EQ(vector.size(), 1001u);
    EXPECT_EQ(calls, 1000u);
  }
}

TEST(ByRank, ListsTheUnitsOfEveryRankBothWays) {
  for (uint32_t num_ranks : {1u, 3u, 1000u}) {
    std::vector<uint32_t> rank(500), numbers(rank.size()), others(rank.size());
    for (uint32_t i = 0; i < rank.size(); ++i) rank[i] = i * i * 7 % num_ranks;
    const ByRank counted(rank, num_ranks, numbers);
    ChainedByRank chained(rank, num_ranks, others);
    for (uint32_t r = 0; r < num_ranks; ++r) {
      std::vector<uint32_t> expected;
      for (uint32_t i = 0; i < rank.size(); ++i) {
        if (rank[i] == r) expected.push_back(i);
      }
      const std::span<const uint32_t> one = counted.of(r), other = chained.of(r);
      EXPECT_EQ(std::vector<uint32_t>(one.begin(), one.end()), expected);
      EXPECT_EQ(std::vector<uint32_t>(other.begin(), other.end()), expected);
    }
  }
}

}  // namespace
}  // namespace evenkeel::reorder
