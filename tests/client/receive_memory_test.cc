#include "client/receive_memory.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <list>
#include <random>

namespace evenkeel::client {
namespace {

constexpr uint64_t kBudget = 64 * 4096;

std::shared_ptr<ReceiveMemory> Make() { return *ReceiveMemory::Create(kBudget); }

TEST(ReceiveMemory, BuffersAreAlignedWritableAndApart) {
  auto memory = Make();
  auto a = memory->TryTake(5000, false);
  auto b = memory->TryTake(1, false);
  ASSERT_TRUE(a.has_value() && b.has_value());
  for (const ReceiveBuffer* buffer : {&*a, &*b}) {
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer->bytes().data()) % 4096, 0);
    std::memset(buffer->bytes().data(), 0xab, buffer->bytes().size());
  }
  EXPECT_GE(std::abs(a->bytes().data() - b->bytes().data()), 4096);
  EXPECT_EQ(a->bytes().size(), 5000);
}

TEST(ReceiveMemory, PrefetchNeverExceedsTheBudgetAndMemoryComesBack) {
  auto memory = Make();
  std::minstd_rand random(3);
  std::list<ReceiveBuffer> held;
  for (int i = 0; i < 5000; ++i) {
    if (!held.empty() && random() % 2 == 0) {
      auto victim = held.begin();
      std::advance(victim, random() % held.size());
      held.erase(victim);
    } else if (auto buffer = memory->TryTake(random() % (8 * 4096), false); buffer.has_value()) {
      held.push_back(*std::move(buffer));
    }
    ASSERT_LE(memory->bytes_in_use(), kBudget);
  }
  held.clear();
  EXPECT_EQ(memory->bytes_in_use(), 0);
  EXPECT_TRUE(memory->TryTake(kBudget, false).has_value()) << "neighbours were merged";
}

TEST(ReceiveMemory, GivesReplacedPagesBack) {
  auto memory = Make();
  auto buffer = memory->TryTake(2 * 4096, false);
  ASSERT_TRUE(buffer.has_value());
  std::byte* const begin = buffer->bytes().data();
  const int file = memfd_create("replaced", MFD_CLOEXEC);
  ASSERT_EQ(ftruncate(file, 2 * 4096), 0);
  ASSERT_EQ(mmap(begin, 2 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, file, 0), begin);
  close(file);
  const auto is_mapped = [] {
    std::ifstream maps("/proc/self/maps");
    const std::string text((std::istreambuf_iterator<char>(maps)), {});
    return text.find("memfd:replaced") != std::string::npos;
  };
  EXPECT_TRUE(is_mapped());
  buffer->MarkReplaced();
  buffer.reset();
  EXPECT_FALSE(is_mapped());
  auto again = memory->TryTake(kBudget, false);
  ASSERT_TRUE(again.has_value());
  std::memset(again->bytes().data(), 1, again->bytes().size());
}

TEST(ReceiveMemory, TheHeadStepIsNotStarvedByWhatTheTrainerKeeps) {
  auto memory = Make();
  auto kept = memory->TryTake(kBudget, true);
  ASSERT_TRUE(kept.has_value());
  EXPECT_FALSE(memory->TryTake(4096, true).has_value()) << "it is being filled: no room yet";
  kept->MarkDelivered();
  EXPECT_FALSE(memory->TryTake(4096, false).has_value());
  auto head = memory->TryTake(kBudget, true);
  ASSERT_TRUE(head.has_value());
  std::memset(head->bytes().data(), 1, head->bytes().size());
  EXPECT_EQ(memory->bytes_in_use(), 2 * kBudget);
  EXPECT_EQ(memory->bytes_delivered(), kBudget);
  head->Release();
  kept->Release();
  EXPECT_EQ(memory->bytes_in_use(), 0);
  EXPECT_EQ(memory->bytes_delivered(), 0);
}

TEST(ReceiveMemory, TellsWhenMemoryCameBackUntilItIsToldNotTo) {
  auto memory = Make();
  int freed = 0;
  memory->OnFreed([&] { ++freed; });
  memory->TryTake(1, false).reset();
  EXPECT_EQ(freed, 1);
  auto buffer = memory->TryTake(1, false);
  memory->OnFreed(nullptr);
  buffer.reset();
  EXPECT_EQ(freed, 1);
}

TEST(ReceiveMemory, BuffersKeepTheMemoryAlive) {
  auto memory = Make();
  auto buffer = memory->TryTake(4096, false);
  memory.reset();
  std::memset(buffer->bytes().data(), 7, 4096);
}

TEST(ReceiveMemory, SaysWhatItCanNeverHold) {
  auto memory = Make();
  EXPECT_TRUE(memory->CanHold(kBudget));
  EXPECT_FALSE(memory->CanHold(kBudget + 1));
  EXPECT_FALSE(memory->CanHold(UINT64_MAX));
}

}  // namespace
}  // namespace evenkeel::client
