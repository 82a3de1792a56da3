// What the cache of cut texts keeps, and what it drops.
#include "stream/text_cache.h"

#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <vector>

namespace evenkeel::stream {
namespace {

TextCache::Ids Text(size_t tokens, uint32_t id) {
  return std::make_shared<const std::vector<uint32_t>>(tokens, id);
}

SampleRef Ref(uint32_t dataset, uint64_t index, uint64_t epoch = 0) {
  return {.dataset = dataset, .epoch = epoch, .index = index};
}

TEST(TextCache, KeepsTextsOfEveryEpoch) {
  TextCache cache(1000);
  EXPECT_EQ(cache.Find(Ref(0, 1)), nullptr);
  cache.Keep(Ref(0, 1), Text(10, 7));
  ASSERT_NE(cache.Find(Ref(0, 1, /*epoch=*/3)), nullptr);
  EXPECT_EQ(*cache.Find(Ref(0, 1)), std::vector<uint32_t>(10, 7));
  EXPECT_EQ(cache.Find(Ref(1, 1)), nullptr);
  EXPECT_EQ(cache.Find(Ref(0, 10)), nullptr);
}

TEST(TextCache, DropsWhatWasUsedLongestAgo) {
  TextCache cache(1000);  // 250 tokens
  for (uint64_t i = 0; i < 3; ++i) cache.Keep(Ref(0, i), Text(80, 1));
  EXPECT_NE(cache.Find(Ref(0, 0)), nullptr);
  cache.Keep(Ref(0, 3), Text(80, 1));
  EXPECT_EQ(cache.Find(Ref(0, 1)), nullptr);
  for (const uint64_t kept : {0, 2, 3}) EXPECT_NE(cache.Find(Ref(0, kept)), nullptr) << kept;
}

TEST(TextCache, KeepsNoTextOfMoreThanHalfOfIt) {
  TextCache cache(1000);
  cache.Keep(Ref(0, 0), Text(20, 1));
  cache.Keep(Ref(0, 1), Text(126, 1));
  EXPECT_EQ(cache.Find(Ref(0, 1)), nullptr);
  EXPECT_NE(cache.Find(Ref(0, 0)), nullptr);
}

TEST(TextCache, HasOneTextOfANameAndAtMost256) {
  TextCache cache(1 << 20);
  cache.Keep(Ref(0, 0), Text(1, 1));
  cache.Keep(Ref(0, 0), Text(1, 2));
  EXPECT_EQ(cache.Find(Ref(0, 0))->front(), 1u);
  for (uint64_t i = 1; i <= 256; ++i) cache.Keep(Ref(0, i), Text(1, 1));
  EXPECT_EQ(cache.Find(Ref(0, 0)), nullptr);
  EXPECT_NE(cache.Find(Ref(0, 1)), nullptr);
}

TEST(TextCache, ServesManyThreads) {
  TextCache cache(4000);
  std::vector<std::thread> threads;
  for (uint32_t t = 0; t < 4; ++t) {
    threads.emplace_back([&cache, t] {
      for (uint64_t i = 0; i < 500; ++i) {
        const uint64_t index = (i * 7 + t) % 40;
        if (const TextCache::Ids ids = cache.Find(Ref(0, index))) {
          EXPECT_EQ(*ids, std::vector<uint32_t>(50, static_cast<uint32_t>(index)));
        } else {
          cache.Keep(Ref(0, index), Text(50, static_cast<uint32_t>(index)));
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace evenkeel::stream
