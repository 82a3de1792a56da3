#include "client/part_fetch.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace evenkeel {
namespace {

constexpr double kSlowestBytesPerSecond = 4 << 20;

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
      absl::StrAppend(&text, "sent, bytes not here yet");
      break;
  }
  absl::Duration quiet = absl::Trunc(now - attempt.advanced, absl::Milliseconds(100));
  return absl::StrCat(text, ", nothing new for ", absl::FormatDuration(quiet), ")");
}

}  // namespace

std::set<std::string> PartFetch::Excluded(absl::Time now) const {
  std::set<std::string> out;
  for (const Attempt& attempt : attempts) out.insert(attempt.endpoint);
  for (const auto& [endpoint, until] : avoid) {
    if (now < until) out.insert(endpoint);
  }
  return out;
}

std::set<std::string> PartFetch::Disliked() const {
  std::set<std::string> out;
  for (const FailedAttempt& attempt : failed) out.insert(attempt.endpoint);
  return out;
}

absl::Status PartFetch::Verdict(size_t num_workers) const {
  if (damaged >= kMaxDamagedArrivals) {
    return absl::DataLossError(absl::StrCat(DescribePart(name), " arrived damaged ", damaged,
                                            " times (its hash is not the sender's); look at the network"));
  }
  size_t distinct = Disliked().size();
  bool few_workers = num_workers < kDistinctWorkers && failed.size() >= kDistinctWorkers;
  if (distinct < kDistinctWorkers && !few_workers && failed.size() < kMaxFailedAttempts)
    return absl::OkStatus();
  std::set<std::string> causes;
  std::set<std::string> excludes;
  for (const FailedAttempt& attempt : failed) {
    causes.insert(absl::StrCat(attempt.endpoint, ": ", attempt.message));
    if (!attempt.exclude.empty()) excludes.insert(attempt.exclude);
  }
  std::string message = absl::StrCat(DescribePart(name), ": ", failed.size(), " attempts on ", distinct,
                                     " workers failed: ", absl::StrJoin(causes, "; "));
  if (!excludes.empty()) {
    absl::StrAppend(&message, ". To go on without the data at fault, add to the job's exclude list: ",
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
        &text, spare.has_value() ? ": no worker takes it now" : ": waits for receive memory or a worker");
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
  return text;
}

absl::Time StaleAt(const Attempt& attempt, uint64_t bytes, absl::Duration progress_timeout) {
  absl::Time at = attempt.advanced + progress_timeout;
  if (attempt.state == Attempt::State::kSent)
    at += absl::Seconds(static_cast<double>(bytes) / kSlowestBytesPerSecond);
  return at;
}

}  // namespace evenkeel
