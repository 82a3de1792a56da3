#include "core/same_arithmetic.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <string>

namespace evenkeel {
namespace {

// What a process does that was started again by the test below.
TEST(SameArithmetic, DISABLED_OfAProcessThatWasStartedAgain) {
  EXPECT_TRUE(KeepArithmeticTheSame(nullptr).ok()) << "nothing is to be done any more";
  EXPECT_EQ(std::getenv("JSIMD_FORCENONE"), nullptr);
  EXPECT_STREQ(std::getenv("EVENKEEL_TEST_KEPT"), "as it was");
#if defined(__x86_64__) && defined(__GLIBC__)
  EXPECT_STREQ(std::getenv("GLIBC_TUNABLES"),
               "glibc.malloc.check=0:glibc.cpu.hwcaps=-ERMS,-FMA,-FMA4:glibc.malloc.perturb=0");
  // Fused multiply-add rounds the last bit of this one the other way.
  volatile double x = 0x1.89f94a4eade01p+3;
  EXPECT_EQ(std::bit_cast<uint64_t>(std::exp(x)), 0x410b222a541db8e6u);
#endif
}

TEST(SameArithmetic, StartsTheProgramAgainWithoutFusedMultiplyAdd) {
  const pid_t pid = fork();
  ASSERT_GE(pid, 0);
  if (pid == 0) {
    setenv("GLIBC_TUNABLES", "glibc.malloc.check=0:glibc.cpu.hwcaps=-ERMS:glibc.malloc.perturb=0", 1);
    setenv("JSIMD_FORCENONE", "1", 1);
    setenv("EVENKEEL_TEST_KEPT", "as it was", 1);
    unsetenv("GTEST_OUTPUT");
    std::string words[] = {"test", "--gtest_also_run_disabled_tests",
                           "--gtest_filter=SameArithmetic.DISABLED_OfAProcessThatWasStartedAgain"};
    char* argv[] = {words[0].data(), words[1].data(), words[2].data(), nullptr};
    (void)KeepArithmeticTheSame(argv);
    _exit(99);
  }
  int status = 0;
  ASSERT_EQ(waitpid(pid, &status, 0), pid);
  EXPECT_TRUE(WIFEXITED(status)) << status;
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace evenkeel
