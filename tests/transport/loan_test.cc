// Memory that was lent to gRPC: its owner hears of the end when nobody reads it any more, and never before.
#include "transport/loan.h"

#include <gtest/gtest.h>

#include <optional>

#include "tests/transport/peers.h"

namespace evenkeel::transport {
namespace {

class LoanTest : public testing::Test {
 protected:
  std::vector<std::byte> bytes_ = Payload(1000, 1);
  TaskThread tasks_{"test", [](Clock::time_point) { return Clock::time_point::max(); }};
  std::shared_ptr<Lender> lender_ = std::make_shared<Lender>(&tasks_);
};

TEST_F(LoanTest, EndsWhenTheLastSliceIsGone) {
  Outcome outcome;
  auto loan = std::make_shared<Loan>(lender_, outcome.callback());
  std::optional<grpc::Slice> one = Loan::Lend(loan, bytes_), two = Loan::Lend(loan, bytes_);
  EXPECT_EQ(static_cast<const void*>(one->begin()), bytes_.data()) << "no copy";
  loan->End(absl::CancelledError("first"));
  loan->End(absl::OkStatus());
  loan.reset();
  one.reset();
  EXPECT_FALSE(lender_->WaitUntilFree(Clock::now() + std::chrono::milliseconds(20)));
  tasks_.Flush();
  EXPECT_EQ(outcome.calls(), 0);
  two.reset();
  EXPECT_TRUE(lender_->WaitUntilFree(Clock::now()));
  tasks_.Flush();
  EXPECT_EQ(outcome.calls(), 1);
  EXPECT_TRUE(absl::IsCancelled(outcome.Wait()));
}

TEST_F(LoanTest, KeepsForEverWhatItsOwnerLentWhereItIsAbandoned) {
  auto owned = std::make_shared<std::vector<std::byte>>(bytes_);
  const std::weak_ptr<std::vector<std::byte>> watched = owned;
  int calls = 0;
  auto loan = std::make_shared<Loan>(lender_, [owned, &calls](const absl::Status&) { ++calls; });
  std::optional<grpc::Slice> slice = Loan::Lend(loan, *owned);
  owned.reset();
  EXPECT_EQ(lender_->Abandon(), 0) << "it was not ended";
  loan->End(absl::UnavailableError("gone"));
  loan.reset();
  EXPECT_EQ(lender_->Abandon(), 1);
  EXPECT_TRUE(lender_->free());
  tasks_.Flush();
  EXPECT_EQ(calls, 1);
  slice.reset();
  tasks_.Flush();
  EXPECT_EQ(calls, 1);
  EXPECT_FALSE(watched.expired());
}

}  // namespace
}  // namespace evenkeel::transport
