// The samples of one file of a dataset, one after another: the interface of all formats.
//
// A sample that breaks a rule has the reason for its exclusion. Damage that ends the file is returned as a last
// sample with the reason "shard damaged" and the key of the sample in progress.
//
// Example:
//     std::unique_ptr<SampleScanner> scanner = MakeScanner(job.datasets[0], source, path, size, job.limits);
//     for (;;) {
//       EVENKEEL_ASSIGN_OR_RETURN(std::optional<ScannedSample> sample, scanner->Next());
//       if (!sample) break;
//       if (sample->reason.empty()) Use(*sample);
//     }
//
// Thread safety: none; one scanner, one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "core/job.h"
#include "dataset/format/sample_parser.h"
#include "dataset/source/byte_source.h"

namespace evenkeel::dataset {

inline constexpr std::string_view kShardDamaged = "shard damaged";

struct ScannedSample {
  std::string key;
  std::vector<SampleMember>
      members;          // in the order of the file; of a row its text, then its media if stored with it
  bool is_row = false;  // a JSON object whose members are the sample (TextParser::ParseRow)
  TextForm tokens =
      TextForm::kNone;  // of a sample whose only member is ids of tokens (TextParser::ParseTokens)
  std::string reason;   // empty: usable
  std::string detail;
};

// More members than any sample within the limits has.
inline uint64_t MaxMembers(const Limits& limits) { return 4 * uint64_t{limits.max_items} + 64; }

class SampleScanner {
 public:
  // `source` must outlive the scanner.
  SampleScanner(ByteSource& source, std::string path) : source_(source), path_(std::move(path)) {}
  virtual ~SampleScanner() = default;
  // The next sample; nullopt at the end. Returns only errors of the source.
  virtual absl::StatusOr<std::optional<ScannedSample>> Next() = 0;
  // Fills `out`, which has its size, from a member of a sample that Next returned, the latest ones being the cheapest:
  // from its offset in the file, unless a format has other places. Errors of the source; DataLoss as Next.
  virtual absl::Status ReadMember(const SampleMember& member, std::span<std::byte> out) {
    return source_.ReadAt(path_, member.offset, out);
  }
  // How many bytes ReadMember reads: of a compressed member what it decompresses to. ResourceExhausted: that is more than
  // `max_bytes`; DataLoss: the member is damaged; errors of the source.
  virtual absl::StatusOr<uint64_t> SizeOf(const SampleMember& member, uint64_t max_bytes) {
    static_cast<void>(max_bytes);
    return member.size;
  }
  virtual bool damaged() const = 0;

 protected:
  // What Next returns where the file is damaged from the sample `key` on.
  ScannedSample DamageOf(const absl::Status& status, std::string key) const;

  ByteSource& source_;
  const std::string path_;
};

// Of files whose samples are rows, with their numbers as keys.
class RowScanner : public SampleScanner {
 public:
  using SampleScanner::SampleScanner;
  absl::StatusOr<std::optional<ScannedSample>> Next() final;
  bool damaged() const final { return damaged_; }

 protected:
  // As Next. DataLoss without FailureKind::kMachine: the file is damaged.
  virtual absl::StatusOr<std::optional<ScannedSample>> Read() = 0;
  // Whether the file is open, so that damage is that of a row.
  virtual bool is_open() const = 0;

  uint64_t row_ = 0;  // of the next sample

 private:
  bool damaged_ = false;
};

// A scanner of the file `path` of `size` bytes in the format of `dataset`. `source` and `limits` must outlive it.
std::unique_ptr<SampleScanner> MakeScanner(const DatasetSpec& dataset, ByteSource& source,
                                           const std::string& path, uint64_t size, const Limits& limits);

}  // namespace evenkeel::dataset
