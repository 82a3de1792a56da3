// What the tests of this room share: tars made byte by byte, sources that count, a processor that needs no
// decoder.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/job.h"
#include "core/measure.h"
#include "core/status.h"
#include "dataset/index/index.h"
#include "dataset/index/index_builder.h"
#include "dataset/source/byte_source.h"

namespace evenkeel::dataset {

// One header block with a right checksum.
std::string TarHeader(const std::string& name, uint64_t size, char type = '0',
                      const std::string& magic = "ustar");
std::string TarPadded(std::string body);
inline std::string TarFile(const std::string& name, const std::string& body, char type = '0') {
  return TarHeader(name, body.size(), type) + TarPadded(body);
}
// "length key=value\n".
std::string PaxRecord(const std::string& key, const std::string& value);
inline std::string PaxHeader(const std::string& records) { return TarFile("pax", records, 'x'); }
inline std::string TarEnd() { return std::string(1024, '\0'); }
std::string Tar(const std::vector<std::pair<std::string, std::string>>& files);

// A column of an MDS shard: name, encoding, and bytes of a value, 0 for variable ones.
struct MdsField {
  std::string name;
  std::string encoding;
  uint32_t num_bytes = 0;
};
// The JSON object that describes a shard's columns, and the shard with these encoded values.
std::string MdsConfig(const std::vector<MdsField>& columns);
std::string MdsShard(const std::vector<MdsField>& columns, const std::vector<std::vector<std::string>>& rows);
// index.json with shards of these columns: names and sizes of their files.
std::string MdsList(const std::vector<MdsField>& columns,
                    const std::vector<std::pair<std::string, uint64_t>>& shards);
// A value of list[jpeg] or list[png].
std::string MdsListOfMedia(const std::vector<std::string>& media);

// Compressed, as one member or frame.
std::string Gzip(const std::string& bytes);
std::string Zstd(const std::string& bytes);

// A folder that is removed with its content.
class TempFolder {
 public:
  TempFolder();
  ~TempFolder();
  const std::string& path() const { return path_; }
  std::string Write(const std::string& name, const std::string& bytes) const;
  std::vector<std::string> Files() const;  // relative, sorted

 private:
  std::string path_;
};

std::string ReadFile(const std::string& path);

// Objects in memory.
class MemorySource : public ByteSource {
 public:
  std::map<std::string, std::string> objects;
  std::atomic<uint64_t> reads{0};
  std::atomic<uint64_t> bytes_read{0};

  absl::StatusOr<uint64_t> Size(const std::string& path) override;
  absl::Status ReadAt(const std::string& path, uint64_t offset, std::span<std::byte> out) override;
};

// Counts what a file source reads.
class CountingSource : public ByteSource {
 public:
  std::atomic<uint64_t> bytes_read{0};

  absl::StatusOr<uint64_t> Size(const std::string& path) override { return files_->Size(path); }
  absl::StatusOr<std::string> Stamp(const std::string& path) override { return files_->Stamp(path); }
  absl::Status ReadAt(const std::string& path, uint64_t offset, std::span<std::byte> out) override {
    bytes_read += out.size();
    return files_->ReadAt(path, offset, out);
  }

 private:
  std::unique_ptr<ByteSource> files_ = MakeFileSource(2);
};

// Media are texts: "64x48" is an item of that size, "BAD", "CODEC" and "HUGE" cannot be used, "WIDE" is
// refused by the processor. A token is a byte of text; an item has width*height input rows and a quarter of
// that in the sequence.
class FakeMeasurer : public Measurer {
 public:
  explicit FakeMeasurer(std::string name = "fake", uint32_t factor = 1)
      : name_(std::move(name)), factor_(factor) {}

  mutable std::atomic<uint64_t> probes{0};

  absl::StatusOr<MediaFacts> Probe(Medium medium, std::string_view suffix,
                                   std::span<const std::byte> bytes) const override;
  absl::StatusOr<ItemLengths> Measure(const MediaFacts& facts) const override;
  absl::StatusOr<SequenceLengths> MeasureSequence(const Conversation& conversation,
                                                  std::span<const SampleItem> items,
                                                  std::span<const MediaFacts> facts) const override;
  Digest digest() const override { return DigestOf(name_); }

 private:
  std::string name_;
  uint32_t factor_;
};

// Prepare, every shard, Commit.
absl::StatusOr<IndexSummary> BuildIndex(const Job& job, const Measurer& measurer, ByteSource& source,
                                        IndexOptions options = {},
                                        std::vector<Exclusion>* exclusions = nullptr);

// A conversation as one line: "user[hello <image 0>] assistant[...]".
std::string Line(const Conversation& conversation);

// An index of lengths that are a function of the row.
class FormulaIndex : public Index {
 public:
  explicit FormulaIndex(std::vector<uint64_t> sizes) : sizes_(std::move(sizes)) {}

  Digest digest() const override { return DigestOf(std::string_view("formula")); }
  uint64_t num_samples(uint32_t dataset) const override {
    return dataset < sizes_.size() ? sizes_[dataset] : 0;
  }
  absl::StatusOr<SampleLengths> lengths(uint32_t dataset, uint64_t index) const override;
  absl::StatusOr<SamplePlaces> places(uint32_t, uint64_t) const override {
    return absl::UnimplementedError("fake");
  }

 private:
  std::vector<uint64_t> sizes_;
};

}  // namespace evenkeel::dataset
