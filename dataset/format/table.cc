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
#include "rust/table.h"

namespace evenkeel::dataset {
namespace {

constexpr int kElementBits = 16, kColumnBits = 8;
constexpr uint64_t kMaxElements = 1 << kElementBits;
constexpr uint64_t kMaxColumns = (1 << kColumnBits) - 1;

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

class TableScanner : public SampleScanner {
 public:
  TableScanner(ByteSource& source, const std::string& path, uint64_t size, const Limits& limits)
      : source_(source), path_(path), size_(size), max_members_(4 * uint64_t{limits.max_items} + 64) {}

  absl::StatusOr<std::optional<ScannedSample>> Next() override {
    if (damaged_) return std::optional<ScannedSample>();
    absl::StatusOr<std::optional<ScannedSample>> sample = Read();
    if (!absl::IsDataLoss(sample.status()) || KnownKind(sample.status()) == FailureKind::kMachine)
      return sample;
    damaged_ = true;
    ScannedSample damage;
    if (table_ != nullptr) damage.key = absl::StrCat(row_);
    damage.reason = kShardDamaged;
    // Without the path, which is no part of the index.
    damage.detail = std::string(sample.status().message().substr(path_.size() + 2));
    return std::optional<ScannedSample>(std::move(damage));
  }
  absl::Status ReadMember(const SampleMember& member, std::span<std::byte> out) override {
    return table_->ReadAt(member.offset, out);
  }
  bool damaged() const override { return damaged_; }

 private:
  absl::StatusOr<std::optional<ScannedSample>> Read() {
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

  ByteSource& source_;
  const std::string path_;
  const uint64_t size_;
  const uint64_t max_members_;
  std::unique_ptr<TableReader> table_;
  uint64_t row_ = 0;  // of the next sample
  bool damaged_ = false;
};

// Tables stay open while no thread reads them; the one that was used last is taken first.
class TableSource : public ByteSource {
 public:
  TableSource(std::unique_ptr<ByteSource> files, size_t max_open_tables)
      : files_(std::move(files)), max_open_tables_(max_open_tables) {}

  absl::StatusOr<uint64_t> Size(const std::string& path) override { return files_->Size(path); }
  absl::StatusOr<std::string> Stamp(const std::string& path) override { return files_->Stamp(path); }

  absl::Status ReadAt(const std::string& path, uint64_t offset, std::span<std::byte> out) override {
    if ((offset & kTableAddress) == 0) return files_->ReadAt(path, offset, out);
    std::unique_ptr<TableReader> table = Take(path);
    if (table == nullptr) {
      EVENKEEL_ASSIGN_OR_RETURN(const uint64_t size, files_->Size(path));
      EVENKEEL_ASSIGN_OR_RETURN(table, TableReader::Open(*files_, path, size));
    }
    EVENKEEL_RETURN_IF_ERROR(table->ReadAt(offset, out));
    GiveBack(path, std::move(table));
    return absl::OkStatus();
  }

  void Forget(const std::string& path) override {
    while (Take(path) != nullptr) continue;
    files_->Forget(path);
  }

 private:
  struct Idle {
    std::string path;
    std::unique_ptr<TableReader> table;
  };

  std::unique_ptr<TableReader> Take(const std::string& path) {
    MutexLock lock(mutex_);
    auto found =
        std::find_if(idle_.begin(), idle_.end(), [&](const Idle& idle) { return idle.path == path; });
    if (found == idle_.end()) return nullptr;
    std::unique_ptr<TableReader> table = std::move(found->table);
    idle_.erase(found);
    return table;
  }

  void GiveBack(const std::string& path, std::unique_ptr<TableReader> table) {
    std::unique_ptr<TableReader> oldest;  // closed without the lock
    MutexLock lock(mutex_);
    idle_.push_front({path, std::move(table)});
    if (idle_.size() <= max_open_tables_) return;
    oldest = std::move(idle_.back().table);
    idle_.pop_back();
  }

  const std::unique_ptr<ByteSource> files_;
  const size_t max_open_tables_;
  Mutex mutex_;
  std::list<Idle> idle_ ABSL_GUARDED_BY(mutex_);  // most recently used first
};

}  // namespace

std::unique_ptr<SampleScanner> MakeTableScanner(ByteSource& source, const std::string& path, uint64_t size,
                                                const Limits& limits) {
  return std::make_unique<TableScanner>(source, path, size, limits);
}

std::unique_ptr<ByteSource> MakeTableSource(std::unique_ptr<ByteSource> files, size_t max_open_tables) {
  return std::make_unique<TableSource>(std::move(files), max_open_tables);
}

std::unique_ptr<ByteSource> MakeShardSource() { return MakeTableSource(MakeFileSource()); }

}  // namespace evenkeel::dataset
