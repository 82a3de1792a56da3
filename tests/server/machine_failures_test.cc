// Limits of this process, really reached: the failures that follow are the machine's.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <stdexcept>
#include <vector>

#include "core/attempt.h"
#include "core/failure.h"
#include "isolation/shared_memory.h"
#include "server/bad_data.h"
#include "stream/part_task.h"

namespace evenkeel::server {
namespace {

using testing::HasSubstr;

// What `work` returns under a lower limit.
template <typename Work>
auto Under(int resource, rlim_t soft, Work work) -> decltype(work()) {
  rlimit before{};
  EXPECT_EQ(getrlimit(static_cast<__rlimit_resource>(resource), &before), 0);
  const rlimit lower{.rlim_cur = soft, .rlim_max = before.rlim_max};
  EXPECT_EQ(setrlimit(static_cast<__rlimit_resource>(resource), &lower), 0);
  auto result = work();
  EXPECT_EQ(setrlimit(static_cast<__rlimit_resource>(resource), &before), 0);
  return result;
}

TEST(MachineFailures, SharedMemoryWithoutDescriptorsOrAddressesIsOne) {
  for (isolation::SharedMemory::Use use :
       {isolation::SharedMemory::Use::kInput, isolation::SharedMemory::Use::kOutput}) {
    // UBSan takes descriptors to look at a type for the first time.
    ASSERT_TRUE(isolation::SharedMemory::Make()->Allocate(use, 3 << 20).ok());
    const auto memory = isolation::SharedMemory::Make();
    const auto allocate = [&] { return memory->Allocate(use, 3 << 20).status(); };
    const absl::Status no_files = Under(RLIMIT_NOFILE, 3, allocate);
    EXPECT_EQ(KnownKind(no_files), FailureKind::kMachine) << no_files;
    EXPECT_THAT(std::string(no_files.message()), HasSubstr("Too many open files"));
    const absl::Status no_addresses = Under(RLIMIT_AS, 1 << 20, allocate);
    EXPECT_EQ(KnownKind(no_addresses), FailureKind::kMachine) << no_addresses;
    EXPECT_THAT(std::string(no_addresses.message()), HasSubstr("Cannot allocate memory"));
    EXPECT_TRUE(allocate().ok()) << "it is well again";
  }
}

TEST(MachineFailures, MemoryThatRunsOutIsOneAndASizeThatIsWrongIsNot) {
#ifndef EVENKEEL_SANITIZED  // which ends the process in place of an exception
  const auto fill = [] {
    const std::vector<char> bytes(size_t{1} << 30);
    return bytes[0] == 0 ? absl::OkStatus() : absl::InternalError("");
  };
  const absl::Status none = Under(RLIMIT_AS, 1 << 20, [&] { return Attempt(fill); });
  EXPECT_EQ(KnownKind(none), FailureKind::kMachine) << none;
  volatile int64_t wrong = -1;
  const absl::Status size = Attempt([&] {
    const std::unique_ptr<int64_t[]> words(new int64_t[wrong]);
    return absl::OkStatus();
  });
  EXPECT_EQ(KindOf(size), FailureKind::kAttempt) << size;
#endif
  const absl::Status thrown =
      Attempt([]() -> absl::Status { throw std::runtime_error("Cannot allocate memory"); });
  EXPECT_EQ(KindOf(thrown), FailureKind::kAttempt) << "a message decides nothing";
}

TEST(MachineFailures, AreNoVerdictAndCarryNoExcludeLine) {
  for (const absl::Status& status : {absl::InvalidArgumentError("x"), absl::DataLossError("x"),
                                     absl::ResourceExhaustedError("x"), absl::UnimplementedError("x")}) {
    EXPECT_TRUE(IsVerdict(status));
    const absl::Status machine = WithKind(status, FailureKind::kMachine);
    EXPECT_FALSE(IsVerdict(machine));
    EXPECT_EQ(stream::ExcludeLine(stream::WithExcludeLine(machine, "a/b/c")), "");
    EXPECT_EQ(stream::ExcludeLine(stream::WithExcludeLine(WithKind(status, FailureKind::kData), "a/b/c")),
              "a/b/c");
  }
}

}  // namespace
}  // namespace evenkeel::server
