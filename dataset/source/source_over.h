// A source that leaves to the one below whatever it does not do itself.
//
// Thread safety: as ByteSource.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "dataset/source/byte_source.h"

namespace evenkeel::dataset {

class SourceOver : public ByteSource {
 public:
  // `below` must outlive it.
  explicit SourceOver(ByteSource& below) : below_(below) {}

  absl::StatusOr<uint64_t> Size(const std::string& path) override { return below_.Size(path); }
  absl::StatusOr<std::string> Stamp(const std::string& path) override { return below_.Stamp(path); }
  bool Assume(const std::string& path, uint64_t size, std::string_view stamp) override {
    return below_.Assume(path, size, stamp);
  }
  absl::Status ReadAt(const std::string& path, uint64_t offset, std::span<std::byte> out) override {
    return below_.ReadAt(path, offset, out);
  }
  absl::StatusOr<WholeObject> ReadWhole(const std::string& path, uint64_t max_bytes) override {
    return below_.ReadWhole(path, max_bytes);
  }
  absl::StatusOr<std::vector<std::string>> List(const std::string& pattern) override {
    return below_.List(pattern);
  }
  std::unique_ptr<Expected> Expect(std::vector<ByteRange> ranges, uint64_t turn) override {
    return below_.Expect(std::move(ranges), turn);
  }
  ReadCounts counts() const override { return below_.counts(); }
  void Forget(const std::string& path) override { below_.Forget(path); }

 private:
  ByteSource& below_;
};

}  // namespace evenkeel::dataset
