// Routes addresses to the stores of rust/store.h, and keeps what was seen of each object.
#include "dataset/source/store_source.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/address.h"
#include "core/annotated_mutex.h"
#include "core/failure.h"
#include "core/status.h"
#include "rust/store.h"

namespace evenkeel::dataset {
namespace {

// Objects whose size and ETag are kept; then all are looked at again.
constexpr size_t kMaxKept = 1 << 20;
// Of one folder, from which on it is listed, a thousand of them in a request.
constexpr size_t kManyObjects = 100;

struct FreeStore {
  void operator()(EvenkeelStore* store) const { evenkeel_store_free(store); }
};
using Store = std::unique_ptr<EvenkeelStore, FreeStore>;

std::string_view View(const EvenkeelText& text) {
  return {reinterpret_cast<const char*>(text.bytes), text.num_bytes};
}
EvenkeelText Text(std::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

// "s3://bucket" and "a/b.tar" of "s3://bucket/a/b.tar"; "hf://datasets/owner/name@revision" and the rest.
struct Parts {
  std::string_view store;
  std::string_view key;
};
Parts PartsOf(std::string_view address) {
  const std::string_view scheme = SchemeOf(address);
  size_t slash = address.find('/', scheme.size() + 3);
  for (int i = 0; scheme == "hf" && i < 2 && slash != std::string_view::npos; ++i)
    slash = address.find('/', slash + 1);
  if (slash == std::string_view::npos) return {address, {}};
  return {address.substr(0, slash), address.substr(slash + 1)};
}

// A folder of media and a name in it are one key: names have no "..", and objects are no symbolic links.
std::string WithoutMark(const std::string& address) {
  const size_t mark = address.find(kConfined);
  if (mark == std::string::npos) return address;
  return absl::StrCat(address.substr(0, mark), "/", address.substr(mark + kConfined.size()));
}

// Azure's listings have ETags without the quotes that its other answers have, and that conditions must have.
std::string Quoted(std::string_view etag) {
  if (etag.empty() || etag.front() == '"' || etag.starts_with("W/")) return std::string(etag);
  return absl::StrCat("\"", std::string(etag), "\"");
}

std::string StampOf(const std::string& etag) {
  return etag.empty() ? std::string() : absl::StrCat(std::string(kETagMark), etag);
}

absl::StatusCode CodeOf(int32_t code) {
  switch (code) {
    case EVENKEEL_STORE_NOT_FOUND:
      return absl::StatusCode::kNotFound;
    case EVENKEEL_STORE_DENIED:
      return absl::StatusCode::kPermissionDenied;
    case EVENKEEL_STORE_REFUSED:
      return absl::StatusCode::kInvalidArgument;
    case EVENKEEL_STORE_SHORT:
      return absl::StatusCode::kOutOfRange;
    case EVENKEEL_STORE_CHANGED:
      return absl::StatusCode::kFailedPrecondition;
    default:
      return absl::StatusCode::kUnavailable;
  }
}

// Of the last call on this thread.
absl::Status StatusOf(int32_t code) {
  if (code == EVENKEEL_STORE_OK) return absl::OkStatus();
  std::string message(View(evenkeel_store_last_error()));
  const bool changed = code == EVENKEEL_STORE_CHANGED;
  if (changed) absl::StrAppend(&message, "; restore it, or run 'evenkeel index' and restart the stream");
  return WithKind(absl::Status(CodeOf(code), message), changed ? FailureKind::kData : FailureKind::kMachine);
}

// Whether `name` is one of those that `pattern`, with * and ?, stands for.
bool Matches(std::string_view pattern, std::string_view name) {
  size_t p = 0, n = 0, star = std::string_view::npos, after = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      after = n;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == name[n])) {
      ++p;
      ++n;
    } else if (star != std::string_view::npos) {
      p = star + 1;  // the last * takes one character more
      n = ++after;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

// The stores of addresses, each opened once.
class Stores {
 public:
  explicit Stores(std::vector<StoreSpec> specs) : specs_(std::move(specs)) {}

  absl::StatusOr<const EvenkeelStore*> Open(std::string_view name) {
    MutexLock lock(mutex_);  // opening makes no request
    const auto found = stores_.find(name);
    if (found != stores_.end()) return found->second.get();
    const StoreSpec spec = SpecOf(name);
    const EvenkeelStoreOptions options = {
        .endpoint = Text(spec.endpoint),
        .region = Text(spec.region),
        .ca_file = Text(spec.ca_file),
        .virtual_host = spec.virtual_host,
        .anonymous = spec.anonymous,
        .allow_http = spec.allow_http,
        .timeout_seconds = spec.timeout_seconds,
        .max_retries = spec.retries,
    };
    EvenkeelStore* store = nullptr;
    EVENKEEL_RETURN_IF_ERROR(StatusOf(evenkeel_store_open(Text(name), options, &store)));
    return stores_.emplace(std::string(name), Store(store)).first->second.get();
  }

 private:
  // What the job has for the store, by the longest `url`.
  StoreSpec SpecOf(std::string_view store) const {
    const StoreSpec* best = nullptr;
    const std::string root = absl::StrCat(std::string(store), "/");
    for (const StoreSpec& spec : specs_) {
      const bool matches = root.starts_with(spec.url) || store == spec.url;
      if (matches && (best == nullptr || spec.url.size() > best->url.size())) best = &spec;
    }
    return best == nullptr ? StoreSpec() : *best;
  }

  const std::vector<StoreSpec> specs_;
  Mutex mutex_;
  std::map<std::string, Store, std::less<>> stores_ ABSL_GUARDED_BY(mutex_);
};

class StoreWriter : public ObjectWriter {
 public:
  explicit StoreWriter(std::vector<StoreSpec> specs) : stores_(std::move(specs)) {}

  absl::Status Write(const std::string& address, std::string_view bytes) override {
    const Parts parts = PartsOf(address);
    EVENKEEL_ASSIGN_OR_RETURN(const EvenkeelStore* const store, stores_.Open(parts.store));
    return StatusOf(evenkeel_store_write(store, Text(parts.key), Text(bytes)));
  }

 private:
  Stores stores_;
};

class StoreSource : public ByteSource {
 public:
  StoreSource(std::vector<StoreSpec> specs, std::unique_ptr<ByteSource> files)
      : stores_(std::move(specs)), files_(std::move(files)) {}

  absl::StatusOr<uint64_t> Size(const std::string& path) override {
    if (!IsAddress(path)) return files_->Size(path);
    EVENKEEL_ASSIGN_OR_RETURN(const Object object, Find(WithoutMark(path), IsConfined(path)));
    return object.size;
  }

  absl::StatusOr<std::string> Stamp(const std::string& path) override {
    if (!IsAddress(path)) return files_->Stamp(path);
    EVENKEEL_ASSIGN_OR_RETURN(const Object object, Find(WithoutMark(path), IsConfined(path)));
    return StampOf(object.etag);
  }

  bool Assume(const std::string& path, uint64_t size, std::string_view stamp) override {
    if (!IsAddress(path)) return files_->Assume(path, size, stamp);
    if (IsConfined(path) || !stamp.starts_with(kETagMark)) return false;
    MutexLock lock(mutex_);
    if (objects_.size() >= kMaxKept) return false;
    return objects_.try_emplace(path, Object{size, std::string(stamp.substr(kETagMark.size()))}).second;
  }

  absl::Status ReadAt(const std::string& path, uint64_t offset, std::span<std::byte> out) override {
    if (!IsAddress(path)) return files_->ReadAt(path, offset, out);
    const std::string address = WithoutMark(path);
    EVENKEEL_ASSIGN_OR_RETURN(const EvenkeelStore* const store, stores_.Open(PartsOf(address).store));
    // A medium that is an object is read once: its checksum is the only condition.
    Object object;
    if (!IsConfined(path)) {
      EVENKEEL_ASSIGN_OR_RETURN(object, Find(address, /*is_medium=*/false));
      if (offset > object.size || out.size() > object.size - offset) {
        return WithKind(absl::OutOfRangeError(absl::StrCat(address, ": ends at byte ", object.size,
                                                           ", read up to ", offset + out.size())),
                        FailureKind::kMachine);
      }
    }
    return StatusOf(evenkeel_store_read(store, Text(PartsOf(address).key), Text(object.etag), offset,
                                        reinterpret_cast<uint8_t*>(out.data()), out.size()));
  }

  absl::StatusOr<WholeObject> ReadWhole(const std::string& path, uint64_t max_bytes) override {
    if (!IsAddress(path)) return files_->ReadWhole(path, max_bytes);
    const std::string address = WithoutMark(path);
    EVENKEEL_ASSIGN_OR_RETURN(const EvenkeelStore* const store, stores_.Open(PartsOf(address).store));
    EvenkeelObject seen{};
    EvenkeelText body{};
    EVENKEEL_RETURN_IF_ERROR(
        StatusOf(evenkeel_store_read_whole(store, Text(PartsOf(address).key), max_bytes, &seen, &body)));
    WholeObject object{.size = seen.num_bytes, .stamp = StampOf(Quoted(View(seen.etag)))};
    const std::span<const std::byte> bytes = std::as_bytes(std::span(body.bytes, body.num_bytes));
    object.bytes.assign(bytes.begin(), bytes.end());
    return object;
  }

  absl::StatusOr<std::vector<std::string>> List(const std::string& pattern) override {
    if (!IsAddress(pattern)) return files_->List(pattern);
    const Parts parts = PartsOf(pattern);
    const size_t slash = parts.key.rfind('/');
    const std::string_view folder = slash == std::string_view::npos ? "" : parts.key.substr(0, slash);
    const std::string_view name = slash == std::string_view::npos ? parts.key : parts.key.substr(slash + 1);
    if (HasPattern(parts.store) || HasPattern(folder)) {
      return absl::InvalidArgumentError(absl::StrCat(
          pattern, ": * and ? are allowed in the last component only; list the folders one by one"));
    }
    EVENKEEL_ASSIGN_OR_RETURN(const EvenkeelStore* const store, stores_.Open(parts.store));
    const EvenkeelObject* objects = nullptr;
    size_t num_objects = 0;
    EVENKEEL_RETURN_IF_ERROR(StatusOf(evenkeel_store_list(store, Text(folder), &objects, &num_objects)));
    std::vector<std::string> out;
    for (const EvenkeelObject& object : std::span(objects, num_objects)) {
      const std::string_view key = View(object.key);
      if (!Matches(name, key.substr(key.rfind('/') + 1))) continue;
      out.push_back(absl::StrCat(std::string(parts.store), "/", std::string(key)));
      // Without an ETag the object itself is asked when it is needed.
      if (object.etag.num_bytes > 0) Keep(out.back(), {object.num_bytes, Quoted(View(object.etag))});
    }
    return out;
  }

  void Forget(const std::string& path) override {
    if (!IsAddress(path)) files_->Forget(path);  // what is known of an object stays its condition
  }

 private:
  struct Object {
    uint64_t size = 0;
    std::string etag;  // empty: the server has none
  };

  static bool IsConfined(const std::string& path) { return path.find(kConfined) != std::string::npos; }

  void Keep(const std::string& address, Object object) {
    MutexLock lock(mutex_);
    if (objects_.size() >= kMaxKept) objects_.clear();
    objects_.insert_or_assign(address, std::move(object));
  }

  // Asks the store, once for a shard.
  absl::StatusOr<Object> Find(const std::string& address, bool is_medium) {
    if (!is_medium) {
      MutexLock lock(mutex_);
      const auto found = objects_.find(address);
      if (found != objects_.end()) return found->second;
    }
    EVENKEEL_ASSIGN_OR_RETURN(const EvenkeelStore* const store, stores_.Open(PartsOf(address).store));
    EvenkeelObject seen{};
    EVENKEEL_RETURN_IF_ERROR(StatusOf(evenkeel_store_head(store, Text(PartsOf(address).key), &seen)));
    Object object{seen.num_bytes, Quoted(View(seen.etag))};
    if (!is_medium) Keep(address, object);
    return object;
  }

  Stores stores_;
  const std::unique_ptr<ByteSource> files_;
  Mutex mutex_;
  std::unordered_map<std::string, Object> objects_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

std::unique_ptr<ByteSource> MakeStoreSource(std::vector<StoreSpec> stores,
                                            std::unique_ptr<ByteSource> files) {
  return std::make_unique<StoreSource>(std::move(stores), std::move(files));
}

std::unique_ptr<ObjectWriter> MakeObjectWriter(std::vector<StoreSpec> stores) {
  return std::make_unique<StoreWriter>(std::move(stores));
}

void LookAtFolders(ByteSource& source, const std::vector<std::string>& paths) {
  std::map<std::string_view, size_t> folders;
  for (const std::string& path : paths) {
    if (IsAddress(path)) ++folders[std::string_view(path).substr(0, path.rfind('/'))];
  }
  for (const auto& [folder, count] : folders) {
    if (count >= kManyObjects) source.List(absl::StrCat(std::string(folder), "/*")).status().IgnoreError();
  }
}

StoreCounts CountsOfStores() {
  EvenkeelStoreCounts counts{};
  evenkeel_store_counts(&counts);
  // A request that failed since it was counted is in both or in none.
  return {counts.requests, std::min(counts.failed_requests, counts.requests), counts.bytes,
          counts.request_microseconds, counts.repeated_requests};
}

}  // namespace evenkeel::dataset
