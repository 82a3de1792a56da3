// The kind `order` through the door that the command line and Python use.
#include <gtest/gtest.h>

#include "reorder/json/solve.h"

namespace evenkeel {
namespace {

constexpr char kProblem[] = R"({"order": {"stages": 2, "algorithm": "$", "timeline": true, "microbatches": [
    {"forward": [4, 4], "backward": [8, 8]}, {"forward": [1, 1], "backward": [2, 2]},
    {"forward": [2, 2], "backward": [4, 4]}]}})";

std::string Problem(const std::string& algorithm) {
  std::string problem = kProblem;
  return problem.replace(problem.find('$'), 1, algorithm);
}

TEST(OrderJson, SolvesAProblem) {
  const auto solution = SolveJson(Problem("local_search"));
  ASSERT_TRUE(solution.ok()) << solution.status();
  // The smallest first, then the largest: the best of six.
  EXPECT_NE(solution->find(R"("iteration_time":29,)"), std::string::npos) << *solution;
  EXPECT_NE(solution->find(R"("given_time":)"), std::string::npos);
  EXPECT_NE(solution->find(R"("microbatch":)"), std::string::npos) << "no timeline";
}

TEST(OrderJson, NamesTheFieldThatIsWrong) {
  const auto message = [](const std::string& json) {
    return std::string(SolveJson(json).status().message());
  };
  EXPECT_NE(message(Problem("best")).find("problem: order: unknown algorithm 'best'"), std::string::npos);
  EXPECT_NE(message(R"({"order": {"stages": 2, "schedule": "zigzag"}})").find("order.schedule: 'zigzag'"),
            std::string::npos);
  EXPECT_NE(message(R"({"order": {"stages": 2, "microbatches": [{"forward": [1], "backward": [1, 1]}]}})")
                .find("order.microbatches[0]: 1 forward and 2 backward times for 2 chunks"),
            std::string::npos);
  EXPECT_NE(message(R"({"order": {}})").find("at least one stage"), std::string::npos);
}

}  // namespace
}  // namespace evenkeel
