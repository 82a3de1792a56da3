// The samples of one shard by the WebDataset rule: consecutive members with the same key. A compressed member ("jpg.gz") is
// the member inside ("jpg"), at an address (dataset/source/packed_member.h).
//
// A sample that breaks a rule has the reason for its exclusion. Damage of the archive ends the shard: it is
// returned as a last sample with the reason "shard damaged" and the key of the sample in progress.
//
// Thread safety: none; one scanner, one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "core/job.h"
#include "dataset/format/sample_scanner.h"
#include "dataset/format/tar_reader.h"
#include "dataset/source/byte_source.h"

namespace evenkeel::dataset {

class ShardScanner : public SampleScanner {
 public:
  ShardScanner(ByteSource& source, const std::string& path, uint64_t size, const Limits& limits)
      : SampleScanner(source, path), reader_(source, path, size), max_members_(MaxMembers(limits)) {}

  absl::StatusOr<std::optional<ScannedSample>> Next() override;
  absl::Status ReadMember(const SampleMember& member, std::span<std::byte> out) override;
  absl::StatusOr<uint64_t> SizeOf(const SampleMember& member, uint64_t max_bytes) override;
  bool damaged() const override { return damaged_; }

 private:
  void AddMember(const TarMember& member, std::string suffix, ScannedSample& sample) const;

  TarReader reader_;
  const uint64_t max_members_;
  std::optional<ScannedSample> started_;  // the first member of the next sample
  bool ended_ = false;
  bool damaged_ = false;
};

}  // namespace evenkeel::dataset
