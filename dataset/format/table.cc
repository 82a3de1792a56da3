// Wraps the Parquet reader of rust/.
#include "dataset/format/table.h"

#include <algorithm>
#include <cstring>
#include <list>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/annotated_mutex.h"
#include "core/failure.h"
#include "core/status.h"
#include "dataset/format/mds.h"
#include "dataset/source/packed_member.h"
#include "dataset/source/source_over.h"
#include "dataset/source/store_source.h"
#include "rust/table.h"

namespace evenkeel::dataset {
namespace {

constexpr int kElementBits = 16, kColumnBits = 8;
constexpr uint64_t kMaxElements = 1 << kElementBits;
constexpr uint64_t kMaxColumns = (1 << kColumnBits) - 1;
constexpr uint64_t kMinOpenBytes = 1 << 20;  // counted for an open table: footer, buffers

struct Address {
  uint64_t row;
  uint32_t column;  // from 1; 0: the text
  uint32_t element;
};

uint64_t Encode(const Address& address) {
  return kTableAddress | address.row << (kColumnBits + kElementBits) |
         uint64_t{address.column} << kElementBits | address.element;
}

Address Decode(uint64_t offset) {
  const uint64_t address = offset & ~kTableAddress;
  return {address >> (kColumnBits + kElementBits),
          static_cast<uint32_t>(address >> kElementBits) & ((1u << kColumnBits) - 1),
          static_cast<uint32_t>(address) & ((1u << kElementBits) - 1)};
}

struct FreeTable {
  void operator()(EvenkeelTable* table) const { evenkeel_table_free(table); }
};

std::string_view View(const EvenkeelText& text) {
  return {reinterpret_cast<const char*>(text.bytes), text.num_bytes};
}

}  // namespace

uint64_t TextAddress(uint64_t row) { return Encode({row, 0, 0}); }

struct TableReader::State {
  State(ByteSource& source, std::string path) : source(source), path(std::move(path)) {}

  static int32_t ReadAt(void* state, uint64_t offset, uint8_t* out, size_t num_bytes) {
    State& self = *static_cast<State*>(state);
    self.failure = self.source.ReadAt(self.path, offset, std::as_writable_bytes(std::span(out, num_bytes)));
    return self.failure.ok() ? 0 : 1;
  }

  ByteSource& source;
  const std::string path;
  absl::Status failure;  // of the source's latest read
  std::unique_ptr<EvenkeelTable, FreeTable> table;
};

TableReader::TableReader(std::unique_ptr<State> state) : state_(std::move(state)) {}
TableReader::~TableReader() = default;

absl::Status TableReader::StatusOf(int32_t code) const {
  if (code == EVENKEEL_TABLE_OK) return absl::OkStatus();
  if (code == EVENKEEL_TABLE_SOURCE) return state_->failure;
  return absl::DataLossError(
      absl::StrCat(state_->path, ": table damaged: ", std::string(View(evenkeel_table_last_error()))));
}

absl::StatusOr<std::unique_ptr<TableReader>> TableReader::Open(ByteSource& source, const std::string& path,
                                                               uint64_t size) {
  std::unique_ptr<TableReader> reader(new TableReader(std::make_unique<State>(source, path)));
  EvenkeelTable* table = nullptr;
  const int32_t code = evenkeel_table_open(reader->state_.get(), &State::ReadAt, size, &table);
  reader->state_->table.reset(table);
  EVENKEEL_RETURN_IF_ERROR(reader->StatusOf(code));
  return reader;
}

uint64_t TableReader::num_rows() const { return evenkeel_table_num_rows(state_->table.get()); }

std::pair<uint64_t, uint64_t> TableReader::GroupOf(uint64_t address) const {
  std::pair<uint64_t, uint64_t> rows;
  evenkeel_table_group_of(state_->table.get(), Decode(address).row, &rows.first, &rows.second);
  return rows;
}

uint64_t TableReader::kept_bytes() const { return evenkeel_table_kept_bytes(state_->table.get()); }

absl::StatusOr<std::string_view> TableReader::Text(uint64_t row) {
  EvenkeelText text{};
  EVENKEEL_RETURN_IF_ERROR(StatusOf(evenkeel_table_text(state_->table.get(), row, &text)));
  return View(text);
}

absl::StatusOr<std::vector<TableMedium>> TableReader::Media(uint64_t row) {
  const EvenkeelTableMedium* media = nullptr;
  size_t num_media = 0;
  EVENKEEL_RETURN_IF_ERROR(StatusOf(evenkeel_table_media(state_->table.get(), row, &media, &num_media)));
  std::vector<TableMedium> out;
  for (const EvenkeelTableMedium& medium : std::span(media, num_media)) {
    // More have no address; a row that names them is excluded, since they are missing.
    if (medium.column >= kMaxColumns || medium.element >= kMaxElements) continue;
    out.push_back(
        {std::string(View(medium.name)), Encode({row, medium.column + 1, medium.element}), medium.num_bytes});
  }
  return out;
}

absl::Status TableReader::ReadAt(uint64_t offset, std::span<std::byte> out) {
  const Address address = Decode(offset);
  EvenkeelText value{};
  EVENKEEL_RETURN_IF_ERROR(StatusOf(address.column == 0
                                        ? evenkeel_table_text(state_->table.get(), address.row, &value)
                                        : evenkeel_table_value(state_->table.get(), address.row,
                                                               address.column - 1, address.element, &value)));
  if (value.num_bytes < out.size()) {
    return WithKind(
        absl::OutOfRangeError(absl::StrCat(state_->path, ": row ", address.row, " has ", value.num_bytes,
                                           " bytes where ", out.size(), " were expected")),
        FailureKind::kMachine);
  }
  if (!out.empty()) std::memcpy(out.data(), value.bytes, out.size());
  return absl::OkStatus();
}

namespace {

class TableScanner : public RowScanner {
 public:
  TableScanner(ByteSource& source, const std::string& path, uint64_t size, const Limits& limits)
      : RowScanner(source, path), size_(size), max_members_(MaxMembers(limits)) {}

  absl::Status ReadMember(const SampleMember& member, std::span<std::byte> out) override {
    return table_->ReadAt(member.offset, out);
  }

 protected:
  absl::StatusOr<std::optional<ScannedSample>> Read() override {
    if (table_ == nullptr) {
      EVENKEEL_ASSIGN_OR_RETURN(table_, TableReader::Open(source_, path_, size_));
    }
    if (row_ == table_->num_rows()) return std::optional<ScannedSample>();
    ScannedSample sample;
    sample.key = absl::StrCat(row_);
    sample.is_row = true;
    EVENKEEL_ASSIGN_OR_RETURN(const std::string_view text, table_->Text(row_));
    sample.members.push_back({"json", TextAddress(row_), text.size()});
    EVENKEEL_ASSIGN_OR_RETURN(std::vector<TableMedium> media, table_->Media(row_));
    for (TableMedium& medium : media)
      sample.members.push_back({std::move(medium.name), medium.address, medium.size});
    if (sample.members.size() > max_members_) {
      sample.reason = "too many members";
      sample.detail = absl::StrCat("more than ", max_members_);
    }
    ++row_;
    return std::optional<ScannedSample>(std::move(sample));
  }
  bool is_open() const override { return table_ != nullptr; }

 private:
  const uint64_t size_;
  const uint64_t max_members_;
  std::unique_ptr<TableReader> table_;
};

// One reader for each row group in use, the most recently used first.
class TableSource : public SourceOver {
 public:
  TableSource(std::unique_ptr<ByteSource> files, uint64_t max_bytes)
      : SourceOver(*files), files_(std::move(files)), max_bytes_(max_bytes) {}

  absl::Status ReadAt(const std::string& path, uint64_t offset, std::span<std::byte> out) override {
    if (!IsTableAddress(offset)) return files_->ReadAt(path, offset, out);
    EVENKEEL_ASSIGN_OR_RETURN(const std::shared_ptr<Open> open, Find(path, offset));
    uint64_t kept_bytes = 0;
    absl::Status read;
    {
      MutexLock lock(open->mutex);
      read = open->table->ReadAt(offset, out);
      kept_bytes = open->table->kept_bytes();
    }
    read.ok() ? Account(open, kept_bytes) : Drop(open);
    return read;
  }

  // Rows of one group are read together, by whoever needs the first of them.
  std::unique_ptr<Expected> Expect(std::vector<ByteRange> ranges, uint64_t turn) override {
    std::erase_if(ranges, [](const ByteRange& range) { return IsTableAddress(range.offset); });
    return files_->Expect(std::move(ranges), turn);
  }

  void Forget(const std::string& path) override {
    std::list<std::shared_ptr<Open>> closed;  // without the lock
    {
      MutexLock lock(mutex_);
      for (auto it = open_.begin(); it != open_.end();) {
        const auto next = std::next(it);
        if ((*it)->path == path) closed.splice(closed.end(), open_, it);
        it = next;
      }
    }
    files_->Forget(path);
  }

 private:
  struct Open {
    std::string path;
    std::pair<uint64_t, uint64_t> rows;  // of its group: first and end
    uint64_t kept_bytes = 0;             // guarded by the source's mutex_
    Mutex mutex;                         // locked without mutex_
    std::unique_ptr<TableReader> table ABSL_PT_GUARDED_BY(mutex);
  };

  // The reader of the row's group, opened if there is none. Two threads may open one for the same group; the one that
  // is used less is closed.
  absl::StatusOr<std::shared_ptr<Open>> Find(const std::string& path, uint64_t offset) {
    const uint64_t row = Decode(offset).row;
    {
      MutexLock lock(mutex_);
      const auto found = std::find_if(open_.begin(), open_.end(), [&](const std::shared_ptr<Open>& open) {
        return open->path == path && open->rows.first <= row && row < open->rows.second;
      });
      if (found != open_.end()) {
        open_.splice(open_.begin(), open_, found);
        return open_.front();
      }
    }
    auto open = std::make_shared<Open>();
    open->path = path;
    EVENKEEL_ASSIGN_OR_RETURN(const uint64_t size, files_->Size(path));
    EVENKEEL_ASSIGN_OR_RETURN(std::unique_ptr<TableReader> table, TableReader::Open(*files_, path, size));
    open->rows = table->GroupOf(offset);
    open->table = std::move(table);
    MutexLock lock(mutex_);
    open_.push_front(open);
    return open;
  }

  // Closes what was used least recently until the rest is within the limit; never the reader in use.
  void Account(const std::shared_ptr<Open>& used, uint64_t kept_bytes) {
    std::list<std::shared_ptr<Open>> closed;  // without the lock
    MutexLock lock(mutex_);
    used->kept_bytes = std::max(kept_bytes, kMinOpenBytes);
    uint64_t total = 0;
    for (const std::shared_ptr<Open>& open : open_) total += open->kept_bytes;
    while (total > max_bytes_ && open_.back() != used) {
      total -= open_.back()->kept_bytes;
      closed.splice(closed.end(), open_, std::prev(open_.end()));
    }
  }

  void Drop(const std::shared_ptr<Open>& open) {
    MutexLock lock(mutex_);
    open_.remove(open);
  }

  const std::unique_ptr<ByteSource> files_;
  const uint64_t max_bytes_;
  Mutex mutex_;
  std::list<std::shared_ptr<Open>> open_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

std::unique_ptr<SampleScanner> MakeTableScanner(ByteSource& source, const std::string& path, uint64_t size,
                                                const Limits& limits) {
  return std::make_unique<TableScanner>(source, path, size, limits);
}

std::unique_ptr<ByteSource> MakeTableSource(std::unique_ptr<ByteSource> files, uint64_t max_bytes) {
  return std::make_unique<TableSource>(std::move(files), max_bytes);
}

std::unique_ptr<ByteSource> MakeShardSource(std::vector<StoreSpec> stores, FarReading reading) {
  std::unique_ptr<ByteSource> source = MakeStoreSource(std::move(stores), MakeFileSource());
  if (reading.ahead.budget_bytes > 0 || reading.cache != nullptr) {
    source = MakeFetchAheadSource(std::move(source), reading.ahead, std::move(reading.cache));
  }
  source = MakeUnpackingSource(std::move(source), reading.unpack);
  return MakeTableSource(MakeMdsSource(MakePackedMemberSource(std::move(source))));
}

}  // namespace evenkeel::dataset
