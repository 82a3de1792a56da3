// Whether a worker gets on with what it accepts: the memory of those that stood still.
//
// A worker can be alive, accept every request at once, and finish none (a dead file server, stopped
// decoders). Each request to it costs `progress_timeout`, so one such experience must count for the requests
// that follow.
//
//            stood still                    time passed, or it moved again
//   trusted ─────────────> grey ──────────────────────────────> on trial ──> trusted
//      asked in its turn    asked last        ^                  one request at a time, hardly waited for,
//                           2x per stall      └── stood still ── until 2^stalls of them were finished
//                                                 or was passed over
//
// A request to a worker on trial is passed over when it takes much longer than others. Each time the worker
// is grey for twice as long and has twice the time (TrialPatience) at its next trial, so that one that is
// only slow comes to be trusted, and one that stands still costs less and less.
//
// Kept per phase, since a worker whose decoders stand still may serve texts well. A stall counts for the
// other phases, too, unless the worker moved there in the later half of the time that the request stood
// still. Stalls are forgotten after kForgivenAfter finished requests in a row.
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
  // What is asked of a worker: parts of a phase, or (nullopt) descriptions of steps.
  using Work = std::optional<Phase>;
  static constexpr Work kDescriptions = std::nullopt;

  static constexpr int kForgivenAfter = 64;  // finished requests in a row
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
  // In a row, and not forgiven yet.
  int stalls(Work work) const { return Of(work).stalls; }
  // Requests that it has now. Kept by Ask and End; EndAll: with its session.
  int in_flight(Work work) const { return Of(work).in_flight; }
  void Ask(Work work) { ++Of(work).in_flight; }
  void End(Work work) { Of(work).in_flight = std::max(0, Of(work).in_flight - 1); }
  void EndAll() {
    for (Record& record : records_) record.in_flight = 0;
  }

  // A request made at `asked` has not moved since `still_since`. Requests of before the last stall are not
  // counted again. `first_grey`: how long it is grey after its first stall; doubles with each one, up to
  // kLongestGrey.
  void Stall(Work work, absl::Time asked, absl::Time still_since, absl::Time now, absl::Duration first_grey) {
    const Record* of_work = &Of(work);
    // What came to its end just when the request stopped shows nothing about the time since.
    const absl::Time lately = now - (now - still_since) / 2;
    for (Record& record : records_) {
      if (&record != of_work && record.moved > lately) continue;
      if (asked <= record.stalled_at) continue;
      record.TurnGrey(now, first_grey);
    }
  }
  // A request made at `asked`, on trial, took too long to be waited for. It shows nothing about other work.
  void PassOver(Work work, absl::Time asked, absl::Time now, absl::Duration first_grey) {
    Record& record = Of(work);
    if (asked > record.stalled_at) record.TurnGrey(now, first_grey);
  }
  // A request got further: a grey worker is on trial from now on.
  void Move(Work work, absl::Time now) {
    Record& record = Of(work);
    record.moved = now;
    record.grey_until = std::min(record.grey_until, now);
  }
  // A request made at `asked` came to its end.
  void Finish(Work work, absl::Time asked, absl::Time now) {
    Move(work, now);
    Record& record = Of(work);
    if (record.stalls == 0 || asked <= record.stalled_at) return;
    if (++record.finished >= std::max(kForgivenAfter, NeededFinished(record))) record.stalls = 0;
  }

 private:
  struct Record {
    int stalls = 0;
    int finished = 0;  // requests that were made since the last stall
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
