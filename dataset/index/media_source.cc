// Reads groups of media by a few threads, and answers from memory.
#include "dataset/index/media_source.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <set>
#include <system_error>
#include <thread>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "core/address.h"
#include "core/attempt.h"
#include "core/failure.h"
#include "core/status.h"

namespace evenkeel::dataset {
namespace {

constexpr size_t kRequestsAtOnce = 32;
constexpr uint64_t kMaxHeldBytes = 256 << 20;

// Calls `work` for 0 to count-1 from several threads; this one is among them, so that it goes on without others.
void ForEachAtOnce(size_t count, absl::FunctionRef<void(size_t)> work) {
  std::atomic<size_t> next{0};
  const auto run = [&] {
    for (size_t i = next++; i < count; i = next++) work(i);
  };
  std::vector<std::thread> threads;
  try {
    while (threads.size() + 1 < std::min(count, kRequestsAtOnce)) threads.emplace_back(run);
  } catch (const std::system_error&) {  // no more threads: those that there are do all of it
  }
  run();
  for (std::thread& thread : threads) thread.join();
}

}  // namespace

class MediaSource::Held : public Expected {
 public:
  Held(MediaSource& media, std::vector<std::string> paths) : media_(media), paths_(std::move(paths)) {}
  ~Held() override { media_.Release(paths_); }

 private:
  MediaSource& media_;
  const std::vector<std::string> paths_;
};

std::unique_ptr<Expected> MediaSource::Hold(const std::vector<std::string>& paths) {
  std::vector<std::string> wanted;
  std::set<std::string_view> seen;
  for (const std::string& path : paths) {
    if (IsAddress(path) && seen.insert(path).second) wanted.push_back(path);
  }
  std::vector<Object> objects(wanted.size());
  std::atomic<uint64_t> bytes{0};
  ForEachAtOnce(wanted.size(), [&](size_t i) {
    if (bytes > kMaxHeldBytes) return;
    objects[i] = std::make_shared<const absl::StatusOr<WholeObject>>(
        Attempt([&] { return source_.ReadWhole(wanted[i], max_bytes_); }));  // also where memory runs out
    if (objects[i]->ok()) bytes += (*objects[i])->bytes.size();
  });
  std::vector<std::string> held;
  MutexLock lock(mutex_);
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (objects[i] == nullptr) continue;
    auto& [count, object] = objects_[wanted[i]];
    ++count;
    object = std::move(objects[i]);
    held.push_back(std::move(wanted[i]));
  }
  return std::make_unique<Held>(*this, std::move(held));
}

std::vector<absl::StatusOr<std::string>> MediaSource::StampsOf(const std::vector<std::string>& paths) {
  std::vector<absl::StatusOr<std::string>> stamps(paths.size());
  const bool are_far = std::ranges::any_of(paths, [](const std::string& path) { return IsAddress(path); });
  const auto stamp = [&](size_t i) { stamps[i] = source_.Stamp(paths[i]); };
  if (are_far) {
    ForEachAtOnce(paths.size(), stamp);
  } else {
    for (size_t i = 0; i < paths.size(); ++i) stamp(i);
  }
  return stamps;
}

MediaSource::Object MediaSource::Find(const std::string& path) {
  if (!IsAddress(path)) return nullptr;
  MutexLock lock(mutex_);
  const auto found = objects_.find(path);
  return found == objects_.end() ? nullptr : found->second.second;
}

void MediaSource::Release(const std::vector<std::string>& paths) {
  MutexLock lock(mutex_);
  for (const std::string& path : paths) {
    const auto found = objects_.find(path);
    if (--found->second.first == 0) objects_.erase(found);
  }
}

absl::StatusOr<uint64_t> MediaSource::Size(const std::string& path) {
  const Object object = Find(path);
  if (object == nullptr) return source_.Size(path);
  if (!object->ok()) return object->status();
  return (*object)->size;
}

absl::StatusOr<std::string> MediaSource::Stamp(const std::string& path) {
  const Object object = Find(path);
  if (object == nullptr) return source_.Stamp(path);
  if (!object->ok()) return object->status();
  return (*object)->stamp;
}

absl::Status MediaSource::ReadAt(const std::string& path, uint64_t offset, std::span<std::byte> out) {
  const Object object = Find(path);
  if (object == nullptr) return source_.ReadAt(path, offset, out);
  if (!object->ok()) return object->status();
  const std::vector<std::byte>& bytes = (*object)->bytes;
  if (bytes.size() < (*object)->size) return source_.ReadAt(path, offset, out);  // larger than what is held
  if (offset > bytes.size() || out.size() > bytes.size() - offset) {
    return WithKind(absl::OutOfRangeError(absl::StrCat(path, ": ends at byte ", bytes.size())),
                    FailureKind::kMachine);
  }
  if (!out.empty()) std::memcpy(out.data(), bytes.data() + offset, out.size());
  return absl::OkStatus();
}

}  // namespace evenkeel::dataset
