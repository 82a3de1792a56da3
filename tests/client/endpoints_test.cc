#include "client/endpoints.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>

#include "absl/time/clock.h"

namespace evenkeel::client {
namespace {

using testing::ElementsAre;

TEST(Endpoints, AListIsSortedAndDistinct) {
  auto spec = ParseEndpoints("b:2, a:1 ,b:2,[::1]:3");
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_FALSE(spec->is_dns());
  EXPECT_THAT(spec->list, ElementsAre("[::1]:3", "a:1", "b:2"));
}

TEST(Endpoints, ANameIsTakenApart) {
  auto spec = ParseEndpoints("dns:///workers.training:7000");
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->name, "workers.training");
  EXPECT_EQ(spec->port, "7000");
}

TEST(Endpoints, NonsenseIsRefused) {
  for (const char* text : {"", ",", "host", "host:", ":7000", "host:0", "host:65536", "host:7x",
                           "dns:///host", "dns:///:7000", "a:1,b"}) {
    EXPECT_EQ(ParseEndpoints(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
}

TEST(Endpoints, LocalhostIsFoundWithItsPort) {
  auto found = LookUp("localhost", "7000");
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_THAT(*found, testing::Contains(testing::AnyOf("127.0.0.1:7000", "[::1]:7000")));
}

TEST(Endpoints, ANameIsLookedUpAgainRegularlyAndOnDemand) {
  std::atomic<int> lookups = 0;
  std::atomic<int> told = 0;
  auto lookup = [&](const std::string&, const std::string&) -> absl::StatusOr<std::vector<std::string>> {
    if (++lookups == 2) return absl::UnavailableError("not now");
    return std::vector<std::string>{"10.0.0.1:1"};
  };
  {
    EndpointWatch watch(
        *ParseEndpoints("dns:///name:1"), [&](auto) { ++told; }, absl::Milliseconds(5), lookup);
    while (told < 4) absl::SleepFor(absl::Milliseconds(1));
  }
  EXPECT_EQ(told, lookups);
  int before = lookups;
  {
    EndpointWatch watch(
        *ParseEndpoints("dns:///name:1"), [&](auto) { ++told; }, absl::Hours(1), lookup);
    while (lookups == before) absl::SleepFor(absl::Milliseconds(1));
    watch.LookAgain();
    while (lookups < before + 2) absl::SleepFor(absl::Milliseconds(1));
  }
}

TEST(Endpoints, ALookUpThatIsAskedForDuringAnotherIsMade) {
  std::atomic<int> lookups = 0;
  std::atomic<EndpointWatch*> asked = nullptr;
  auto lookup = [&](const std::string&, const std::string&) -> absl::StatusOr<std::vector<std::string>> {
    if (++lookups == 1) {
      while (asked == nullptr) absl::SleepFor(absl::Milliseconds(1));
      asked.load()->LookAgain();
    }
    return std::vector<std::string>{"10.0.0.1:1"};
  };
  EndpointWatch watch(
      *ParseEndpoints("dns:///name:1"), [](auto) {}, absl::Hours(1), lookup);
  asked = &watch;
  while (lookups < 2) absl::SleepFor(absl::Milliseconds(1));
}

TEST(Endpoints, AWatchThatEndsDuringALookUpDropsItsAnswer) {
  struct Resolver {
    std::atomic<bool> asked = false;
    std::atomic<bool> answers = false;
  };
  auto resolver = std::make_shared<Resolver>();
  std::weak_ptr<Resolver> held_by_lookup = resolver;
  auto told = std::make_shared<std::atomic<int>>(0);
  {
    EndpointWatch watch(
        *ParseEndpoints("dns:///name:1"), [told](auto) { ++*told; }, absl::Hours(1),
        [resolver](const std::string&, const std::string&) -> absl::StatusOr<std::vector<std::string>> {
          resolver->asked = true;
          while (!resolver->answers) absl::SleepFor(absl::Milliseconds(1));
          return std::vector<std::string>{"10.0.0.1:1"};
        });
    while (!resolver->asked) absl::SleepFor(absl::Milliseconds(1));
  }
  resolver->answers = true;  // only now: the watch is gone
  resolver.reset();
  // The look-up's thread has ended when nothing holds its resolver any more.
  while (!held_by_lookup.expired()) absl::SleepFor(absl::Milliseconds(1));
  EXPECT_EQ(*told, 0);
}

TEST(Endpoints, AListIsToldAtOnce) {
  std::vector<std::string> seen;
  EndpointWatch watch(*ParseEndpoints("b:2,a:1"), [&](auto found) { seen = *found; });
  EXPECT_THAT(seen, ElementsAre("a:1", "b:2"));
}

}  // namespace
}  // namespace evenkeel::client
