// Groups the members of a tar archive into samples and collects the reasons why a sample is excluded.
#include "dataset/format/shard_scanner.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/failure.h"
#include "core/packing.h"
#include "core/status.h"
#include "core/utf8.h"
#include "dataset/source/packed_member.h"

namespace evenkeel::dataset {
namespace {

// WebDataset's own notes in an archive: __name__ at the top level. They belong to no sample.
bool IsNote(const std::string& name) {
  return name.size() >= 4 && name.find('/') == std::string::npos && name.compare(0, 2, "__") == 0 &&
         name.compare(name.size() - 2, 2, "__") == 0;
}

void Refuse(std::string reason, std::string detail, ScannedSample& sample) {
  if (!sample.reason.empty()) return;  // only the first reason is kept
  sample.reason = std::move(reason);
  sample.detail = std::move(detail);
}

}  // namespace

void ShardScanner::AddMember(const TarMember& member, std::string suffix, ScannedSample& sample) const {
  std::string where = absl::StrCat("member '", Printable(member.name), "' at byte ", member.header_offset);
  if (std::string bad = RefuseName(member.name); !bad.empty())
    Refuse("unsafe name", absl::StrCat(where, ": ", bad), sample);
  if (!member.refused.empty()) {
    // Without this member it would be another sample, so the sample is excluded.
    Refuse(member.refused == "name too long" ? "name too long" : "not a regular file",
           absl::StrCat(where, ": ", member.refused), sample);
  }
  uint64_t offset = member.offset;
  if (const std::string_view inner = WithoutPackedEnd(suffix);
      inner.size() < suffix.size() && KindOf(inner) != MemberKind::kOther) {
    const std::optional<uint64_t> address =
        PackedMemberAddress(PackingOf(suffix), member.offset, member.size);
    if (!address) {
      Refuse(
          "compressed member too large",
          absl::StrCat(where, ": ", member.size, " bytes; at most 4 GiB, from the first 256 GiB of a shard"),
          sample);
    }
    offset = address.value_or(0);
    suffix.resize(inner.size());
  }
  bool twice = std::any_of(sample.members.begin(), sample.members.end(),
                           [&](const SampleMember& other) { return other.suffix == suffix; });
  if (twice) Refuse("duplicate suffix", absl::StrCat(where, ": a second '", Printable(suffix), "'"), sample);
  if (sample.members.size() >= max_members_) {
    Refuse("too many members", absl::StrCat("more than ", max_members_), sample);
    return;
  }
  if (sample.reason.empty()) sample.members.push_back({std::move(suffix), offset, member.size});
}

absl::StatusOr<std::optional<ScannedSample>> ShardScanner::Next() {
  std::optional<ScannedSample> sample = std::exchange(started_, std::nullopt);
  while (!ended_) {
    absl::StatusOr<std::optional<TarMember>> member = reader_.Next();
    // Only contradictions within the archive are recorded as damage. Bytes that could not be read are an
    // error of the attempt.
    const bool of_the_archive = absl::IsDataLoss(member.status()) || absl::IsOutOfRange(member.status());
    if (!member.ok() && (!of_the_archive || ::evenkeel::KindOf(member.status()) == FailureKind::kMachine)) {
      return member.status();
    }
    if (!member.ok()) {
      ended_ = damaged_ = true;
      ScannedSample damage;
      if (sample) damage.key = sample->key;
      damage.reason = kShardDamaged;
      // From "at byte" on: the reason has the rest, and paths do not belong in the index.
      damage.detail = std::string(member.status().message());
      if (size_t at = damage.detail.find("at byte "); at != std::string::npos) damage.detail.erase(0, at);
      return std::optional<ScannedSample>(std::move(damage));
    }
    if (!member->has_value()) {
      ended_ = true;
      break;
    }
    std::string key, suffix;
    if (IsNote((*member)->name) || !SplitWebDatasetName((*member)->name, &key, &suffix)) continue;
    if (sample && sample->key == key) {
      AddMember(**member, std::move(suffix), *sample);
      continue;
    }
    ScannedSample next;
    next.key = std::move(key);
    AddMember(**member, std::move(suffix), next);
    if (!sample) {
      sample = std::move(next);
      continue;
    }
    started_ = std::move(next);
    return sample;
  }
  return sample;
}

absl::Status ShardScanner::ReadMember(const SampleMember& member, std::span<std::byte> out) {
  return IsPackedMember(member.offset) ? ReadPackedMember(source_, path_, member.offset, out)
                                       : SampleScanner::ReadMember(member, out);
}

absl::StatusOr<uint64_t> ShardScanner::SizeOf(const SampleMember& member, uint64_t max_bytes) {
  return IsPackedMember(member.offset) ? UnpackedSize(source_, path_, member.offset, max_bytes)
                                       : SampleScanner::SizeOf(member, max_bytes);
}

}  // namespace evenkeel::dataset
