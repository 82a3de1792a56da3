// The transitions of one part: every event of a copy is one function, and no calls are made.
#include "client/part_fetch.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace evenkeel::client {
namespace {

constexpr double kSlowestBytesPerSecond = 4 << 20;
constexpr size_t kTroublesNamed = 3;

std::string DescribeAttempt(const Attempt& attempt, absl::Time now) {
  std::string text = absl::StrCat(attempt.endpoint, " (");
  switch (attempt.state) {
    case Attempt::State::kAsked:
      absl::StrAppend(&text, "no answer yet");
      break;
    case Attempt::State::kAccepted:
      absl::StrAppend(&text, "accepted, queue ", attempt.queue);
      if (!attempt.stage.empty()) {
        absl::StrAppend(&text, ", ", attempt.stage, " ", attempt.done, "/", attempt.total);
      }
      break;
    case Attempt::State::kSent:
      absl::StrAppend(&text, "sent, bytes have not arrived");
      break;
  }
  absl::Duration quiet = absl::Trunc(now - attempt.advanced, absl::Milliseconds(100));
  return absl::StrCat(text, ", nothing new for ", absl::FormatDuration(quiet), ")");
}

}  // namespace

absl::Duration MachineTrouble::Add(const std::string& what, absl::Time now) {
  if (times == 0) since = now;
  message = what;
  return AfterTrouble(times++);
}

std::string MachineTrouble::Describe(absl::Time now) const {
  return absl::StrCat(message, " (", times, times == 1 ? " time" : " times", " in ",
                      absl::FormatDuration(absl::Trunc(now - since, absl::Milliseconds(100))), ")");
}

std::string DescribeTroubles(const MachineTroubles& troubles, absl::Time now) {
  std::string text;
  size_t named = 0;
  for (const auto& [endpoint, trouble] : troubles) {
    if (++named > kTroublesNamed) {
      absl::StrAppend(&text, "; and on ", troubles.size() - kTroublesNamed, " more workers");
      break;
    }
    absl::StrAppend(&text, "; failed on ", endpoint, ": ", trouble.Describe(now));
  }
  return text;
}

bool PartFetch::Accept(size_t index, absl::Time now) {
  Attempt& attempt = attempts[index];
  if (attempt.accepted()) return false;
  attempt.state = Attempt::State::kAccepted;
  attempt.advanced = now;
  ++copies_accepted;
  return true;
}

bool PartFetch::Advance(size_t index, const PartEvent& event, absl::Time now) {
  Attempt& attempt = attempts[index];
  const bool same_stage = event.text == attempt.stage;
  // A new stage counts as an advance of the clock but not as movement: a stuck worker may still report
  // stages.
  const bool grew = event.text != kSendingStage && event.done > attempt.done;
  if (!same_stage || grew) attempt.advanced = now;
  if (same_stage && grew) attempt.moved = true;
  attempt.stage = event.text;
  attempt.done = event.done;
  attempt.total = event.total;
  return same_stage && grew;
}

void PartFetch::MarkSent(size_t index, absl::Time now) {
  attempts[index].state = Attempt::State::kSent;
  attempts[index].advanced = now;
}

bool PartFetch::MarkStalled(size_t index) {
  Attempt& attempt = attempts[index];
  if (attempt.stalled) return false;
  attempt.stalled = true;
  ++stalled[attempt.endpoint];
  return true;
}

void PartFetch::WithdrawAcceptance(size_t index) {
  if (attempts[index].accepted() && copies_accepted > 0) --copies_accepted;
}

Attempt PartFetch::Remove(size_t index) {
  Attempt attempt = std::move(attempts[index]);
  attempts.erase(attempts.begin() + static_cast<ptrdiff_t>(index));
  for (Attempt& other : attempts) other.doubted = false;
  return attempt;
}

bool PartFetch::KeepMemory(Attempt& attempt) {
  // The transport's callback owns the other reference; while it does, the network may still write.
  if (attempt.buffer.use_count() > 1) return false;
  if (!complete && !spare.has_value()) spare = std::move(*attempt.buffer);
  return true;
}

void PartFetch::AddFailure(FailedAttempt failure, absl::Duration pause, absl::Time now) {
  failed.push_back(std::move(failure));
  not_before = now + pause;
}

void PartFetch::AddDamage(const std::string& endpoint, absl::Duration pause, absl::Time now) {
  ++damaged;
  avoid[endpoint] = now + pause;
}

void PartFetch::Complete(size_t index, PartView bytes) {
  complete = true;
  view = std::move(bytes);
  buffer = std::move(*Remove(index).buffer);
  spare.reset();
}

bool PartFetch::IsStale(const Attempt& attempt, const Worker* worker, absl::Duration progress_timeout,
                        absl::Time now) const {
  const absl::Time bytes_moved = worker == nullptr ? absl::InfinitePast() : worker->bytes_moved;
  return now >= StaleAt(attempt, bytes, bytes_moved, progress_timeout);
}

std::set<std::string> PartFetch::Excluded(absl::Time now) const {
  std::set<std::string> out;
  for (const Attempt& attempt : attempts) out.insert(attempt.endpoint);
  for (const auto& [endpoint, until] : avoid) {
    if (now < until) out.insert(endpoint);
  }
  return out;
}

std::set<std::string> PartFetch::FailedOn() const {
  std::set<std::string> out;
  for (const FailedAttempt& attempt : failed) out.insert(attempt.endpoint);
  return out;
}

Dislikes PartFetch::Disliked() const {
  Dislikes out = stalled;
  for (const FailedAttempt& attempt : failed) ++out[attempt.endpoint];
  return out;
}

absl::Status PartFetch::Verdict(size_t num_workers) const {
  if (damaged >= kMaxDamagedArrivals) {
    return absl::DataLossError(
        absl::StrCat(DescribePart(name), " arrived damaged ", damaged,
                     " times (its hash differs from the sender's); check the network"));
  }
  size_t distinct = FailedOn().size();
  if (!DataIsAtFault(failed.size(), distinct, num_workers)) return absl::OkStatus();
  // Sets, so that the text is the same whatever the order of the failures.
  std::set<std::string> causes;
  std::set<std::string> excludes;
  for (const FailedAttempt& attempt : failed) {
    causes.insert(absl::StrCat(attempt.endpoint, ": ", attempt.message));
    if (!attempt.exclude.empty()) excludes.insert(attempt.exclude);
  }
  std::string message = absl::StrCat(DescribePart(name), ": ", failed.size(), " attempts on ", distinct,
                                     " workers failed: ", absl::StrJoin(causes, "; "));
  if (!excludes.empty()) {
    absl::StrAppend(&message, ". To continue without this data, add to the job's exclude list: ",
                    absl::StrJoin(excludes, ", ", [](std::string* out, const std::string& line) {
                      absl::StrAppend(out, "\"", line, "\"");
                    }));
  }
  return absl::DataLossError(message);
}

std::string PartFetch::Describe(absl::Time now) const {
  std::string text = DescribePart(name);
  if (attempts.empty()) {
    absl::StrAppend(
        &text, spare.has_value() ? ": no worker can take it now" : ": waits for receive memory or a worker");
  } else {
    absl::StrAppend(&text, ": asked ");
    for (const Attempt& attempt : attempts) {
      absl::StrAppend(&text, &attempt == &attempts.front() ? "" : " and ", DescribeAttempt(attempt, now));
    }
  }
  if (refusals > 0) absl::StrAppend(&text, ", refused ", refusals, " times");
  if (damaged > 0) absl::StrAppend(&text, ", arrived damaged ", damaged, " times");
  if (!failed.empty()) {
    absl::StrAppend(&text, ", failed on ", failed.back().endpoint, ": ", failed.back().message);
  }
  return text + DescribeTroubles(troubles, now);
}

absl::Time StaleAt(const Attempt& attempt, uint64_t bytes, absl::Time bytes_moved,
                   absl::Duration progress_timeout) {
  if (!attempt.on_its_way()) return attempt.advanced + progress_timeout;
  absl::Duration first_bytes = absl::Seconds(static_cast<double>(bytes) / kSlowestBytesPerSecond);
  return std::max(attempt.advanced + first_bytes, bytes_moved) + progress_timeout;
}

}  // namespace evenkeel::client
