// The transitions of one step: descriptions and parts come in, verdicts and the delivered step come out.
#include "client/step_fetch.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/failure.h"

namespace evenkeel::client {
namespace {

constexpr size_t kAwaitedPartsNamed = 4;

// Owns the buffers that the views of the base class point into.
struct ReceivedStep : StepData {
  std::vector<ReceiveBuffer> buffers;
};

// The kind that the worker attached decides; the status code alone is ambiguous, since gRPC uses the same
// codes.
DescriptionFetch::Failure Classify(const absl::Status& status, bool is_known) {
  using Failure = DescriptionFetch::Failure;
  if (status.code() == absl::StatusCode::kDeadlineExceeded) return Failure::kLate;
  const std::optional<FailureKind> kind = KnownKind(status);
  if (kind == FailureKind::kNotYet) return Failure::kNotYet;
  if (kind == FailureKind::kMachine) return Failure::kMachine;
  if (is_known && status.code() == absl::StatusCode::kNotFound) return Failure::kSessionEnded;
  if (is_known && IsLost(status.code())) return Failure::kWorkerLost;
  const bool busy =
      status.code() == absl::StatusCode::kResourceExhausted || status.code() == absl::StatusCode::kAborted;
  return busy ? Failure::kBusy : Failure::kPlan;
}

}  // namespace

bool IsLost(absl::StatusCode code) {
  return code == absl::StatusCode::kUnavailable || code == absl::StatusCode::kDeadlineExceeded ||
         code == absl::StatusCode::kCancelled || code == absl::StatusCode::kOk;
}

Dislikes DescriptionFetch::Avoided(absl::Time now) const {
  Dislikes avoided;
  for (const auto& [endpoint, until] : avoid_) {
    if (now < until) avoided[endpoint] = 1;
  }
  return avoided;
}

void DescriptionFetch::Ask(CallId call, const std::string& endpoint, absl::Time now) {
  call_ = call;
  endpoint_ = endpoint;
  asked_ = now;
}

DescriptionFetch::Failure DescriptionFetch::Fail(const absl::Status& status, bool is_known,
                                                 absl::Duration max_patience, Jitter& jitter,
                                                 absl::Time now) {
  call_ = 0;
  not_before_ = now + jitter(kAfterDescribeFailed);
  avoid_[endpoint_] = now + jitter(kAvoidAfterDescribeFailed);
  const std::string message = absl::StrCat(endpoint_, ": ", status.message());
  const Failure failure = Classify(status, is_known);
  switch (failure) {
    case Failure::kLate:
      if (now - asked_ >= patience_) patience_ = NextPatience(patience_, max_patience);
      break;
    case Failure::kNotYet:
      // The same worker is asked again, so that no other one plans the step as well.
      avoid_.erase(endpoint_);
      not_before_ = now + jitter(kAfterDescribeNotYet);
      progress_ = absl::StrCat("; ", message, ", or raise the step timeout");
      break;
    case Failure::kMachine:
      not_before_ = now + jitter(troubles_[endpoint_].Add(std::string(status.message()), now));
      break;
    case Failure::kBusy:
      not_before_ = now + jitter(kAfterDescribeBusy);
      break;
    case Failure::kPlan:
      failed_.push_back({endpoint_, message, ""});
      last_failure_ = status.code();
      break;
    case Failure::kSessionEnded:
    case Failure::kWorkerLost:
      break;
  }
  return failure;
}

absl::Status DescriptionFetch::Verdict(uint64_t step, size_t num_workers) const {
  std::set<std::string> distinct;
  for (const FailedAttempt& attempt : failed_) distinct.insert(attempt.endpoint);
  if (!DataIsAtFault(failed_.size(), distinct.size(), num_workers)) return absl::OkStatus();
  return absl::Status(last_failure_,
                      absl::StrCat("step ", step, " could not be planned: ", failed_.back().message));
}

std::string DescriptionFetch::Describe(absl::Time now) const {
  std::string text = "; no worker has described it";
  if (!failed_.empty()) absl::StrAppend(&text, " (", failed_.back().message, ")");
  return absl::StrCat(text, progress_, DescribeTroubles(troubles_, now));
}

bool StepFetch::HasTroubles() const {
  return asking.has_troubles() || std::any_of(parts.begin(), parts.end(), [](const PartFetch& part) {
           return !part.complete && !part.troubles.empty();
         });
}

void StepFetch::Describe(StepDescription answer, const ReceiveMemory& memory) {
  asking.Finish();
  uint64_t total = 0;
  for (const PlannedPart& planned : answer.parts) {
    // A size above the budget ends the loop at once, so that the sum cannot overflow: it never exceeds twice
    // the budget.
    total = memory.CanHold(planned.bytes) ? total + ReceiveMemory::RoundUp(planned.bytes) : UINT64_MAX;
    if (!memory.CanHold(total)) {
      error = absl::InvalidArgumentError(absl::StrCat(
          "step ", step, " does not fit into the receive memory: with ", DescribePart(planned.name), " (",
          planned.bytes, " bytes) it exceeds prefetch_bytes = ", memory.budget_bytes(),
          "; raise prefetch_bytes or lower the batch"));
      return;
    }
    PartFetch part;
    part.name = planned.name;
    part.bytes = planned.bytes;
    part.role = planned.role;
    part.position = static_cast<uint32_t>(parts.size());
    parts.push_back(std::move(part));
  }
  description = std::move(answer);
}

bool StepFetch::GrantMemory(ReceiveMemory& memory, bool is_head) {
  for (PartFetch& part : parts) {
    if (part.complete || part.spare.has_value() || !part.attempts.empty()) continue;
    part.spare = memory.TryTake(part.bytes, is_head);
    if (!part.spare.has_value()) return false;
  }
  granted = true;
  return true;
}

void StepFetch::Complete(PartFetch& part, size_t index, PartView bytes) {
  part.Complete(index, std::move(bytes));
  ++num_complete;
}

void StepFetch::Judge(const PartFetch& part, size_t num_workers) {
  absl::Status verdict = part.Verdict(num_workers);
  if (!verdict.ok()) error = verdict;
}

std::string StepFetch::DescribeMissing(absl::Time now) const {
  if (!description.has_value()) return asking.Describe(now);
  std::vector<std::string> awaited;
  for (const PartFetch& part : parts) {
    if (!part.complete) awaited.push_back(part.Describe(now));
  }
  const size_t more = awaited.size() > kAwaitedPartsNamed ? awaited.size() - kAwaitedPartsNamed : 0;
  awaited.resize(awaited.size() - more);
  std::string text = absl::StrCat("; awaited: ", absl::StrJoin(awaited, "; "));
  if (more > 0) absl::StrAppend(&text, "; and ", more, " more parts");
  return text;
}

std::shared_ptr<const StepData> StepFetch::Deliver() {
  auto out = std::make_shared<ReceivedStep>();
  out->step = step;
  out->num_microbatches = description->num_microbatches;
  out->loss_tokens = description->loss_tokens;
  out->num_samples = description->num_samples;
  out->routes = std::move(description->routes);
  out->loads = std::move(description->loads);
  out->groups = std::move(description->groups);
  for (PartFetch& part : parts) {
    out->parts.push_back({part.name, std::move(part.view), part.buffer.bytes(), part.role});
    part.buffer.MarkDelivered();
    out->buffers.push_back(std::move(part.buffer));
  }
  return out;
}

std::optional<AttemptRef> FindAttempt(StepWindow& steps, const std::function<bool(const Attempt&)>& matches) {
  for (auto& [number, step] : steps) {
    for (PartFetch& part : step.parts) {
      for (size_t i = 0; i < part.attempts.size(); ++i) {
        if (matches(part.attempts[i])) return AttemptRef{&step, &part, i};
      }
    }
  }
  return std::nullopt;
}

}  // namespace evenkeel::client
