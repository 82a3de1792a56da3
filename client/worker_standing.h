// How far a worker is trusted to finish what it accepts, from its stalls and finished requests.
//
// A worker can be alive, accept every request at once, and finish none (a dead file server, stopped
// decoders). Each request to it costs `progress_timeout`, so one such experience must influence the requests
// that follow.
//
//            stalled                      time passed, or progress
//   trusted ─────────> grey ─────────────────────────────────> on trial ──> trusted
//                      asked last; the     ^                   one request at a time, with little
//                      time doubles        └─── stalled, ───── patience, until 2^stalls of them
//                      with each stall          or passed over finished
//
// A request to a worker on trial is passed over when it takes much longer than on other workers. Each time,
// the worker is grey for twice as long and has twice the time (TrialPatience) in its next trial. So a worker
// that is only slow becomes trusted, and one that never finishes costs less and less.
//
// The record is kept per phase, since a worker with stuck decoders may serve texts well. A stall counts for
// the other phases, too, unless the worker made progress there in the later half of the request's standstill.
// Stalls are forgotten after kForgivenAfter consecutive finished requests.
//
// Bookkeeping only, with the caller's clock. Thread safety: none; the fetch loop owns it.
#pragma once

#include <algorithm>
#include <array>
#include <optional>

#include "absl/time/time.h"
#include "client/retry_policy.h"
#include "core/words.h"

namespace evenkeel::client {

class WorkerStanding {
 public:
  enum class Trust { kTrusted, kOnTrial, kGrey };
  // The kind of a request: parts of a phase, or (nullopt) descriptions of steps.
  using Work = std::optional<Phase>;
  static constexpr Work kDescriptions = std::nullopt;

  static constexpr int kForgivenAfter = 64;  // consecutive finished requests
  static constexpr absl::Duration kLongestGrey = absl::Minutes(2);

  Trust TrustIn(Work work, absl::Time now) const {
    const Record& record = Of(work);
    if (now < record.grey_until) return Trust::kGrey;
    return record.finished < NeededFinished(record) ? Trust::kOnTrial : Trust::kTrusted;
  }
  // Grey for any kind of work.
  bool IsGrey(absl::Time now) const {
    return std::ranges::any_of(records_, [&](const Record& record) { return now < record.grey_until; });
  }
  // Consecutive stalls that are not forgotten.
  int stalls(Work work) const { return Of(work).stalls; }
  // Requests in flight: Ask adds one, End removes one; EndAll is for the end of the session.
  int in_flight(Work work) const { return Of(work).in_flight; }
  void Ask(Work work) { ++Of(work).in_flight; }
  void End(Work work) { Of(work).in_flight = std::max(0, Of(work).in_flight - 1); }
  void EndAll() {
    for (Record& record : records_) record.in_flight = 0;
  }

  // A request made at `asked` made no progress since `still_since`. Requests from before the last stall are
  // not counted again. `first_grey`: how long the worker is grey after its first stall; it doubles with each
  // one, up to kLongestGrey.
  void Stall(Work work, absl::Time asked, absl::Time still_since, absl::Time now, absl::Duration first_grey) {
    const Record* of_work = &Of(work);
    // Progress elsewhere at the moment when this request stopped shows nothing about the time since.
    const absl::Time lately = now - (now - still_since) / 2;
    for (Record& record : records_) {
      if (&record != of_work && record.moved > lately) continue;
      if (asked <= record.stalled_at) continue;
      record.TurnGrey(now, first_grey);
    }
  }
  // A request made at `asked`, on trial, exceeded its patience. It shows nothing about other kinds of work.
  void PassOver(Work work, absl::Time asked, absl::Time now, absl::Duration first_grey) {
    Record& record = Of(work);
    if (asked > record.stalled_at) record.TurnGrey(now, first_grey);
  }
  // A request made progress: a grey worker is on trial from now on.
  void Move(Work work, absl::Time now) {
    Record& record = Of(work);
    record.moved = now;
    record.grey_until = std::min(record.grey_until, now);
  }
  // A request made at `asked` finished.
  void Finish(Work work, absl::Time asked, absl::Time now) {
    Move(work, now);
    Record& record = Of(work);
    if (record.stalls == 0 || asked <= record.stalled_at) return;
    if (++record.finished >= std::max(kForgivenAfter, NeededFinished(record))) record.stalls = 0;
  }

 private:
  struct Record {
    int stalls = 0;
    int finished = 0;  // requests that were made after the last stall
    int in_flight = 0;
    absl::Time stalled_at = absl::InfinitePast();
    absl::Time grey_until = absl::InfinitePast();
    absl::Time moved = absl::InfinitePast();

    void TurnGrey(absl::Time now, absl::Duration first_grey) {
      grey_until = now + GreyTime(first_grey, stalls, kLongestGrey);
      stalls = std::min(stalls + 1, 30);
      finished = 0;
      stalled_at = now;
    }
  };

  static int NeededFinished(const Record& record) {
    return record.stalls == 0 ? 0 : 1 << std::min(record.stalls, 6);
  }
  static size_t Index(Work work) { return work.has_value() ? size_t{work->number()} : kMaxPhases; }
  const Record& Of(Work work) const { return records_[Index(work)]; }
  Record& Of(Work work) { return records_[Index(work)]; }

  std::array<Record, kMaxPhases + 1> records_;  // by the phase's number, descriptions last
};

}  // namespace evenkeel::client
