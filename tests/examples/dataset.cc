// The examples of dataset/.
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "core/status.h"
#include "dataset/format/json.h"
#include "dataset/format/mds_shard.h"
#include "dataset/format/megatron.h"
#include "dataset/format/sample_scanner.h"
#include "dataset/format/table.h"
#include "dataset/format/tar_reader.h"
#include "dataset/index/far_index.h"
#include "dataset/index/index_builder.h"
#include "dataset/index/media_source.h"
#include "dataset/order/index_order.h"
#include "dataset/order/recent_windows.h"
#include "dataset/source/disk_cache.h"
#include "dataset/source/fetch_ahead.h"
#include "dataset/source/packed_member.h"
#include "dataset/source/store_source.h"
#include "dataset/source/unpacking_source.h"

namespace evenkeel::dataset {

absl::Status ReadMessages(std::string_view text, void (*Use)(const JsonValue&)) {
#include "examples/dataset/format/json.h.inc"
  return absl::OkStatus();
}

absl::Status ScanSamples(const Job& job, ByteSource& source, const std::string& path, uint64_t size,
                         void (*Use)(const ScannedSample&)) {
#include "examples/dataset/format/sample_scanner.h.inc"
  return absl::OkStatus();
}

void ReadCompressed(std::span<std::byte> out) {
#include "examples/dataset/source/unpacking_source.h.inc"
}

void ReadMemberOfTar(ByteSource& source, const std::string& path, const TarMember& member,
                     const Limits& limits, std::span<std::byte> out){
#include "examples/dataset/source/packed_member.h.inc"
}

absl::Status ReadMdsShard(ByteSource& source, const std::string& path, uint64_t size, uint64_t begin,
                          uint64_t max_text_bytes) {
#include "examples/dataset/format/mds_shard.h.inc"
  return absl::OkStatus();
}

absl::Status ReadDocuments(ByteSource& bin, ByteSource& files, uint64_t size,
                           void (*Use)(const ScannedSample&)) {
#include "examples/dataset/format/megatron.h.inc"
  return absl::OkStatus();
}

absl::Status ReadTable(ByteSource& source, const std::string& path, uint64_t size) {
#include "examples/dataset/format/table.h.inc"
  return absl::OkStatus();
}

absl::Status ReadArchive(ByteSource& source, const std::string& path, uint64_t size) {
#include "examples/dataset/format/tar_reader.h.inc"
  return absl::OkStatus();
}

struct Window {};

std::shared_ptr<const Window> ReadWindow(RecentWindows<Window>& recent, uint64_t number,
                                         Window (*Compute)(uint64_t)){
#include "examples/dataset/order/recent_windows.h.inc"
}

absl::Status VisitRows(std::span<const SampleRef> refs, std::vector<SampleLengths>& lengths,
                       absl::Status (*Read)(const SampleRef&, SampleLengths*)) {
#include "examples/dataset/order/index_order.h.inc"
  return absl::OkStatus();
}

absl::Status CopyIndex(Job& job, const std::string& address) {
#include "examples/dataset/index/far_index.h.inc"
  return absl::OkStatus();
}

absl::Status BuildIndex(const Job& job, const Measurer& measurer, ByteSource& source) {
#include "examples/dataset/index/index_builder.h.inc"
  return absl::OkStatus();
}

void LookAtObject(const Job& job){
#include "examples/dataset/source/store_source.h.inc"
}

absl::Status KeepOnDisk(std::span<std::byte> out) {
#include "examples/dataset/source/disk_cache.h.inc"
  return absl::OkStatus();
}

void HoldMedia(ByteSource& source, const std::vector<std::string>& paths) {
#include "examples/dataset/index/media_source.h.inc"
}

void ReadAhead(uint64_t step, std::span<std::byte> out) {
#include "examples/dataset/source/fetch_ahead.h.inc"
}

}  // namespace evenkeel::dataset
