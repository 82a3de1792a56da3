// Keeps the announced ranges in the order of their turns, and threads that fetch them.
#include "dataset/source/fetch_ahead.h"

#include <algorithm>
#include <cstring>
#include <list>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <system_error>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "core/address.h"
#include "core/annotated_mutex.h"
#include "core/attempt.h"
#include "core/status.h"
#include "dataset/source/source_over.h"

namespace evenkeel::dataset {
namespace {

// Pieces of runs are fetched while at least kMinShare of their bytes are read, by an exponential mean with the factor kForget.
// Below that, a piece is still fetched after kProbeAfter times its bytes, and at least as many bytes as all runs of a window
// have, were read range by range, to see whether the share has changed. So at most a twentieth more is fetched than is read,
// whatever the sizes of ranges and pieces.
constexpr double kMinShare = 0.3;
constexpr double kForget = 0.1;
constexpr uint64_t kProbeAfter = 20;

class FetchAheadSource : public SourceOver {
 public:
  FetchAheadSource(std::unique_ptr<ByteSource> source, const FetchAheadOptions& options,
                   std::unique_ptr<DiskCache> cache)
      : SourceOver(*source), source_(std::move(source)), options_(options), cache_(std::move(cache)) {}

  ~FetchAheadSource() override {
    {
      MutexLock lock(mutex_);
      stopping_ = true;
      work_.NotifyAll();
    }
    for (std::thread& thread : threads_) thread.join();
  }

  std::unique_ptr<Expected> Expect(std::vector<ByteRange> ranges, uint64_t turn) override;
  absl::Status ReadAt(const std::string& path, uint64_t offset, std::span<std::byte> out) override;
  void Forget(const std::string& path) override;
  ReadCounts counts() const override;

 private:
  // Where a range is: ranges of one object are neighbours.
  using Place = std::tuple<std::string, uint64_t, uint64_t>;  // address, offset, size

  // Ranges that are fetched together. Its bytes are written by one thread, before `done`.
  struct Request {
    std::string address;
    uint64_t begin = 0;
    uint64_t end = 0;
    std::vector<std::byte> bytes;
    absl::Status status;
    bool done = false;
    std::vector<Place> places;  // known when it was made
    size_t unread = 0;          // of these, and of those that were announced later
    bool is_piece = false;      // of a run: kept when all is read
    bool is_idle = false;       // and so it is now
    uint64_t read_bytes = 0;    // of all its ranges
  };
  using Pieces = std::map<std::pair<std::string, uint64_t>, std::shared_ptr<Request>>;  // (address, begin)

  struct RunBounds {
    uint64_t begin = 0;
    uint64_t end = 0;
    uint64_t at_a_time = 0;  // 0: no run
  };

  struct Range {
    std::pair<uint64_t, uint64_t> turn;  // as announced, and then by arrival
    std::vector<uint64_t> readers;       // announcements that have not read it
    std::shared_ptr<Request> request;    // null: it waits for its turn
    RunBounds run;
  };
  using Ranges = std::map<Place, Range>;

  class Announcement : public Expected {
   public:
    Announcement(FetchAheadSource& source, uint64_t id, std::vector<Place> places)
        : source_(source), id_(id), places_(std::move(places)) {}
    ~Announcement() override { source_.GiveUp(id_, places_); }

   private:
    FetchAheadSource& source_;
    const uint64_t id_;
    const std::vector<Place> places_;
  };

  static uint64_t BeginOf(const Place& place) { return std::get<1>(place); }
  static uint64_t EndOf(const Place& place) { return std::get<1>(place) + std::get<2>(place); }

  bool IsAhead(const ByteRange& range) const {
    return IsAddress(range.path) && range.size > 0 && range.size <= options_.budget_bytes / 2;
  }

  void StartThreads() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    try {
      while (threads_.size() < options_.max_requests) threads_.emplace_back([this] { Run(); });
    } catch (const std::system_error&) {  // with fewer threads more is read when it is needed
    }
  }

  void GiveUp(uint64_t id, const std::vector<Place>& places) ABSL_LOCKS_EXCLUDED(mutex_);
  // One reader less; the last one takes the range's share of its request along.
  void Leave(Ranges::iterator range, uint64_t id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Settle(const std::shared_ptr<Request>& request) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Release(const std::shared_ptr<Request>& request) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void DropPiece(const Request& request) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The piece that has or will have the range, or null.
  std::shared_ptr<Request> PieceWith(const Place& place) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Attach(const std::shared_ptr<Request>& request, Ranges::iterator range)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Releases kept pieces, the oldest first, until `bytes` more fit, or no piece is left to release.
  void MakeRoomFor(uint64_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The kept piece that has been kept longest; there is one.
  void ReleaseOldest() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  uint64_t BusyBytes() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return used_bytes_ - idle_bytes_; }
  bool MayBeCached(const std::string& path) const ABSL_LOCKS_EXCLUDED(mutex_);
  // Without what was announced.
  absl::Status ReadNow(const std::string& path, uint64_t offset, std::span<std::byte> out);

  void Run();
  bool HasWork() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The first range that waits, and its neighbours.
  std::shared_ptr<Request> TakeRequest() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void AddNeighbours(const std::shared_ptr<Request>& request, Ranges::iterator first)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The piece of the range's run that has it, to be fetched as a whole; false: it is fetched alone.
  bool MakePiece(Request& request, const Ranges::value_type& range) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Whether `next`, on one side of the request, can be fetched with it.
  bool IsNeighbour(const Request& request, const Ranges::value_type& next) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Add(const std::shared_ptr<Request>& request, Ranges::iterator range)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Fill(Request& request);

  const std::unique_ptr<ByteSource> source_;
  const FetchAheadOptions options_;
  const std::unique_ptr<DiskCache> cache_;

  mutable Mutex mutex_;
  CondVar work_;
  CondVar done_;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t next_id_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t used_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t idle_bytes_ ABSL_GUARDED_BY(mutex_) = 0;                   // of them
  std::list<std::shared_ptr<Request>> idle_ ABSL_GUARDED_BY(mutex_);  // the oldest first
  Pieces pieces_ ABSL_GUARDED_BY(mutex_);
  double share_ ABSL_GUARDED_BY(mutex_) = 1;  // of pieces' bytes that are read
  uint64_t alone_bytes_ ABSL_GUARDED_BY(mutex_) =
      0;  // read range by range since the last piece, below kMinShare
  Ranges ranges_ ABSL_GUARDED_BY(mutex_);
  std::map<std::pair<uint64_t, uint64_t>, Ranges::iterator> waiting_ ABSL_GUARDED_BY(mutex_);
  std::set<std::string> changed_ ABSL_GUARDED_BY(mutex_);  // objects that the cache has old bytes of
  ReadCounts counts_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::thread> threads_;  // written once, under mutex_
};

std::unique_ptr<Expected> FetchAheadSource::Expect(std::vector<ByteRange> ranges, uint64_t turn) {
  std::vector<Place> places;
  std::vector<RunBounds> runs;  // parallel
  for (ByteRange& range : ranges) {
    if (!IsAhead(range)) continue;
    places.emplace_back(std::move(range.path), range.offset, range.size);
    runs.push_back({range.run_begin, range.run_end, range.runs});
  }
  if (places.empty()) return nullptr;
  MutexLock lock(mutex_);
  if (stopping_) return nullptr;
  StartThreads();
  const uint64_t id = next_id_++;
  for (size_t i = 0; i < places.size(); ++i) {
    const auto [range, is_new] = ranges_.try_emplace(places[i]);
    range->second.readers.push_back(id);
    if (!is_new) continue;  // announced by another part, whose turn it keeps
    range->second.turn = {turn, next_id_++};
    range->second.run = runs[i];
    if (const std::shared_ptr<Request> piece = PieceWith(places[i]); piece != nullptr) {
      Attach(piece, range);
      continue;
    }
    waiting_.emplace(range->second.turn, range);
    work_.NotifyOne();
  }
  return std::make_unique<Announcement>(*this, id, std::move(places));
}

absl::Status FetchAheadSource::ReadAt(const std::string& path, uint64_t offset, std::span<std::byte> out) {
  if (!IsAddress(path)) return source_->ReadAt(path, offset, out);
  std::shared_ptr<Request> request;
  {
    MutexLock lock(mutex_);
    const auto range = ranges_.find({path, offset, out.size()});
    if (range == ranges_.end()) {
      ++counts_.direct;
    } else if (range->second.request == nullptr) {
      ++counts_.direct;
      Leave(range, range->second.readers.front());
    } else {
      request = range->second.request;
      ++(request->done ? counts_.ready : counts_.late);
      while (!request->done) done_.Wait(mutex_);
    }
  }
  if (request == nullptr) return ReadNow(path, offset, out);
  const absl::Status status = request->status;
  if (status.ok()) std::memcpy(out.data(), request->bytes.data() + (offset - request->begin), out.size());
  {
    MutexLock lock(mutex_);
    const auto range = ranges_.find({path, offset, out.size()});
    if (range != ranges_.end() && range->second.request == request)
      Leave(range, range->second.readers.front());
  }
  // Another try would end as this one, after its deadline.
  if (status.ok() || absl::IsUnavailable(status)) return status;
  return ReadNow(path, offset, out);
}

absl::Status FetchAheadSource::ReadNow(const std::string& path, uint64_t offset, std::span<std::byte> out) {
  if (MayBeCached(path) && cache_->Find(path, offset, out)) return absl::OkStatus();
  EVENKEEL_RETURN_IF_ERROR(source_->ReadAt(path, offset, out));
  if (cache_ != nullptr) cache_->Keep(path, offset, out);
  return absl::OkStatus();
}

bool FetchAheadSource::MayBeCached(const std::string& path) const {
  if (cache_ == nullptr) return false;
  MutexLock lock(mutex_);
  return !changed_.contains(path);
}

void FetchAheadSource::Forget(const std::string& path) {
  source_->Forget(path);
  if (!IsAddress(path)) return;
  // The reader found other bytes than it expects. Bounded, because data may be damaged in many places.
  constexpr size_t kMaxChanged = 1 << 16;
  MutexLock lock(mutex_);
  for (auto piece = pieces_.lower_bound({path, 0}); piece != pieces_.end() && piece->first.first == path;) {
    const std::shared_ptr<Request> request = (piece++)->second;
    DropPiece(*request);
    if (request->is_idle) Release(request);
  }
  if (cache_ != nullptr && changed_.size() < kMaxChanged) changed_.insert(path);
}

ReadCounts FetchAheadSource::counts() const {
  ReadCounts counts;
  {
    MutexLock lock(mutex_);
    counts = counts_;
    counts.bytes_ahead = used_bytes_;
  }
  if (cache_ != nullptr) {
    const DiskCache::Counts cached = cache_->counts();
    counts.cache_hits = cached.hits;
    counts.cache_misses = cached.misses;
    counts.cache_damaged = cached.damaged;
    counts.cache_unwritten = cached.unwritten;
  }
  return counts;
}

void FetchAheadSource::GiveUp(uint64_t id, const std::vector<Place>& places) {
  MutexLock lock(mutex_);
  for (const Place& place : places) {
    if (const auto range = ranges_.find(place); range != ranges_.end()) Leave(range, id);
  }
}

void FetchAheadSource::Leave(Ranges::iterator range, uint64_t id) {
  std::vector<uint64_t>& readers = range->second.readers;
  const auto found = std::ranges::find(readers, id);
  if (found == readers.end()) return;
  readers.erase(found);
  if (!readers.empty()) return;
  if (const std::shared_ptr<Request> request = range->second.request; request != nullptr) {
    --request->unread;
    Settle(request);
  } else {
    waiting_.erase(range->second.turn);
  }
  ranges_.erase(range);
}

void FetchAheadSource::Settle(const std::shared_ptr<Request>& request) {
  if (!request->done || request->unread > 0) return;
  if (!request->is_piece || !request->status.ok() || PieceWith(request->places.front()) != request)
    return Release(request);
  request->is_idle = true;
  idle_.push_back(request);
  idle_bytes_ += request->end - request->begin;
  work_.NotifyAll();  // it makes room where that is needed
}

void FetchAheadSource::Release(const std::shared_ptr<Request>& request) {
  const uint64_t bytes = request->end - request->begin;
  used_bytes_ -= bytes;
  if (request->is_idle) {
    idle_.remove(request);
    idle_bytes_ -= bytes;
    request->is_idle = false;
  }
  if (request->is_piece) {
    DropPiece(*request);
    const double read = static_cast<double>(request->read_bytes) / static_cast<double>(bytes);
    share_ += kForget * (std::min(read, 1.0) - share_);
  }
  work_.NotifyAll();
}

void FetchAheadSource::DropPiece(const Request& request) {
  const auto found = pieces_.find({request.address, request.begin});
  if (found != pieces_.end() && found->second.get() == &request) pieces_.erase(found);
}

std::shared_ptr<FetchAheadSource::Request> FetchAheadSource::PieceWith(const Place& place) const {
  auto after = pieces_.upper_bound({std::get<0>(place), BeginOf(place)});
  if (after == pieces_.begin()) return nullptr;
  const auto& [key, request] = *std::prev(after);
  return key.first == std::get<0>(place) && EndOf(place) <= request->end ? request : nullptr;
}

void FetchAheadSource::Attach(const std::shared_ptr<Request>& request, Ranges::iterator range) {
  if (request->is_idle) {
    idle_.remove(request);
    idle_bytes_ -= request->end - request->begin;
    request->is_idle = false;
  }
  ++request->unread;
  request->read_bytes += std::get<2>(range->first);
  range->second.request = request;
}

void FetchAheadSource::MakeRoomFor(uint64_t bytes) {
  while (!idle_.empty() && used_bytes_ + bytes > options_.budget_bytes) ReleaseOldest();
}

void FetchAheadSource::ReleaseOldest() {
  const std::shared_ptr<Request> oldest = idle_.front();  // of which the list lets go
  Release(oldest);
}

bool FetchAheadSource::HasWork() const {
  if (waiting_.empty()) return false;
  const Place& first = waiting_.begin()->second->first;
  return BusyBytes() + std::get<2>(first) <= options_.budget_bytes;
}

void FetchAheadSource::Run() {
  for (;;) {
    std::shared_ptr<Request> request;
    {
      MutexLock lock(mutex_);
      while (!stopping_ && !HasWork()) work_.Wait(mutex_);
      if (stopping_) return;
      request = TakeRequest();
    }
    // Also memory that is not there is a status, not the end of this thread.
    const absl::Status status = Attempt([&] { return Fill(*request); });
    MutexLock lock(mutex_);
    request->status = status;
    request->done = true;
    if (!status.ok()) DropPiece(*request);
    Settle(request);
    done_.NotifyAll();
  }
}

std::shared_ptr<FetchAheadSource::Request> FetchAheadSource::TakeRequest() {
  const auto first = waiting_.begin()->second;
  auto request = std::make_shared<Request>();
  request->address = std::get<0>(first->first);
  request->begin = BeginOf(first->first);
  request->end = EndOf(first->first);
  request->is_piece = MakePiece(*request, *first);
  Add(request, first);
  AddNeighbours(request, first);
  if (!request->is_piece && share_ < kMinShare) alone_bytes_ += request->read_bytes;
  MakeRoomFor(request->end - request->begin);
  used_bytes_ += request->end - request->begin;
  if (request->is_piece) pieces_.emplace(std::pair(request->address, request->begin), request);
  return request;
}

bool FetchAheadSource::MakePiece(Request& request, const Ranges::value_type& range) {
  const RunBounds& run = range.second.run;
  const uint64_t bytes = run.end - run.begin;
  if (run.at_a_time == 0 || bytes > options_.budget_bytes / 2 / run.at_a_time) return false;
  const uint64_t pieces = (bytes + options_.max_piece_bytes - 1) / options_.max_piece_bytes;
  const uint64_t piece = (bytes + pieces - 1) / pieces;
  const uint64_t begin = run.begin + (request.begin - run.begin) / piece * piece;
  const uint64_t end = std::max(std::min(begin + piece, run.end), request.end);
  const bool is_probe = share_ < kMinShare;
  if (is_probe && alone_bytes_ < std::max(kProbeAfter * (end - begin), bytes * run.at_a_time)) return false;
  // It is there already, without the last bytes of a range that crosses its end.
  if (pieces_.contains({request.address, begin})) return false;
  if (BusyBytes() + (end - begin) > options_.budget_bytes) return false;
  if (is_probe) {
    // As many bytes as a window has were read since the last probe, so no more of it will be read, and its share counts.
    while (!idle_.empty()) ReleaseOldest();
    alone_bytes_ = 0;
  }
  request.begin = begin;
  request.end = end;
  return true;
}

void FetchAheadSource::AddNeighbours(const std::shared_ptr<Request>& request, Ranges::iterator first) {
  if (request->is_piece) {
    for (auto next = ranges_.lower_bound({request->address, request->begin, 0});
         next != ranges_.end() && std::get<0>(next->first) == request->address &&
         BeginOf(next->first) < request->end;
         ++next) {
      if (next->second.request == nullptr && EndOf(next->first) <= request->end) Add(request, next);
    }
    return;
  }
  for (auto next = std::next(first); next != ranges_.end() && IsNeighbour(*request, *next); ++next) {
    Add(request, next);
  }
  for (auto next = first; next != ranges_.begin() && IsNeighbour(*request, *std::prev(next));) {
    Add(request, --next);
  }
}

bool FetchAheadSource::IsNeighbour(const Request& request, const Ranges::value_type& next) const {
  const auto& [place, range] = next;
  if (range.request != nullptr || std::get<0>(place) != request.address) return false;
  const uint64_t begin = std::min(request.begin, BeginOf(place));
  const uint64_t end = std::max(request.end, EndOf(place));
  const bool is_close =
      BeginOf(place) <= request.end + options_.max_gap && EndOf(place) + options_.max_gap >= request.begin;
  return is_close && end - begin <= options_.max_request_bytes &&
         BusyBytes() + (end - begin) <= options_.budget_bytes;
}

void FetchAheadSource::Add(const std::shared_ptr<Request>& request, Ranges::iterator range) {
  request->begin = std::min(request->begin, BeginOf(range->first));
  request->end = std::max(request->end, EndOf(range->first));
  request->places.push_back(range->first);
  Attach(request, range);
  waiting_.erase(range->second.turn);
}

absl::Status FetchAheadSource::Fill(Request& request) {
  request.bytes.resize(request.end - request.begin);
  const auto bytes_of = [&request](const Place& place) {
    return std::span(request.bytes).subspan(BeginOf(place) - request.begin, std::get<2>(place));
  };
  const auto is_cached = [&](const Place& place) {
    return cache_->Find(request.address, BeginOf(place), bytes_of(place));
  };
  // One request has all of them, so a part of them in the cache saves nothing.
  if (MayBeCached(request.address) && std::ranges::all_of(request.places, is_cached)) return absl::OkStatus();
  EVENKEEL_RETURN_IF_ERROR(source_->ReadAt(request.address, request.begin, request.bytes));
  if (cache_ == nullptr) return absl::OkStatus();
  for (const Place& place : request.places) cache_->Keep(request.address, BeginOf(place), bytes_of(place));
  return absl::OkStatus();
}

}  // namespace

std::unique_ptr<ByteSource> MakeFetchAheadSource(std::unique_ptr<ByteSource> source,
                                                 const FetchAheadOptions& options,
                                                 std::unique_ptr<DiskCache> cache) {
  return std::make_unique<FetchAheadSource>(std::move(source), options, std::move(cache));
}

}  // namespace evenkeel::dataset
