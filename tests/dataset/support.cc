#include "tests/dataset/support.h"

#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "dataset/source/little_endian.h"

namespace evenkeel::dataset {

std::string TarHeader(const std::string& name, uint64_t size, char type, const std::string& magic) {
  std::string block(512, '\0');
  block.replace(0, std::min<size_t>(name.size(), 100), name.substr(0, 100));
  block.replace(100, 7, "0000644");
  if (size < (1ull << 33)) {
    block.replace(124, 11, absl::StrFormat("%011o", size));
  } else {
    block[124] = '\x80';
    for (int i = 0; i < 8; ++i) block[135 - i] = static_cast<char>(size >> (8 * i));
  }
  block.replace(136, 11, "00000000000");
  block[156] = type;
  if (!magic.empty()) block.replace(257, magic.size(), magic);
  if (magic == "ustar") block.replace(263, 2, "00");
  block.replace(148, 8, "        ");
  uint32_t sum = 0;
  for (char c : block) sum += static_cast<uint8_t>(c);
  block.replace(148, 7, absl::StrFormat("%06o", sum) + std::string(1, '\0'));
  return block;
}

std::string TarPadded(std::string body) {
  body.resize((body.size() + 511) / 512 * 512, '\0');
  return body;
}

std::string PaxRecord(const std::string& key, const std::string& value) {
  size_t length = key.size() + value.size() + 3;
  size_t digits = std::to_string(length).size();
  if (std::to_string(length + digits).size() > digits) ++digits;
  return absl::StrCat(length + digits, " ", key, "=", value, "\n");
}

std::string Tar(const std::vector<std::pair<std::string, std::string>>& files) {
  std::string out;
  for (const auto& [name, body] : files) out += TarFile(name, body);
  return out + TarEnd();
}

std::string Gzip(const std::string& bytes) {
  z_stream stream{};
  if (::deflateInit2(&stream, 6, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY) != Z_OK) std::abort();
  std::string out(::deflateBound(&stream, bytes.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  if (::deflate(&stream, Z_FINISH) != Z_STREAM_END) std::abort();
  out.resize(stream.total_out);
  ::deflateEnd(&stream);
  return out;
}

std::string Zstd(const std::string& bytes) {
  std::string out(::ZSTD_compressBound(bytes.size()), '\0');
  out.resize(::ZSTD_compress(out.data(), out.size(), bytes.data(), bytes.size(), 3));
  return out;
}

std::string MdsConfig(const std::vector<MdsField>& columns) {
  std::string names, encodings, sizes;
  for (const MdsField& column : columns) {
    const char* comma = &column == columns.data() ? "" : ", ";
    absl::StrAppend(&names, comma, "\"", column.name, "\"");
    absl::StrAppend(&encodings, comma, "\"", column.encoding, "\"");
    absl::StrAppend(&sizes, comma, column.num_bytes == 0 ? "null" : absl::StrCat(column.num_bytes));
  }
  return absl::StrCat(
      "{\"column_encodings\": [", encodings, "], \"column_names\": [", names, "], \"column_sizes\": [", sizes,
      "], \"compression\": null, \"format\": \"mds\", \"hashes\": [], \"size_limit\": 67108864, ",
      "\"version\": 2}");
}

std::string MdsShard(const std::vector<MdsField>& columns,
                     const std::vector<std::vector<std::string>>& rows) {
  const std::string config = MdsConfig(columns);
  std::string numbers, samples;
  uint64_t begin = 4 + 4 * (rows.size() + 1) + config.size();
  PutLittle(rows.size(), 4, numbers);
  PutLittle(begin, 4, numbers);
  for (const std::vector<std::string>& row : rows) {
    for (size_t i = 0; i < columns.size(); ++i)
      if (columns[i].num_bytes == 0) PutLittle(row[i].size(), 4, samples);
    for (const std::string& value : row) samples += value;
    PutLittle(begin + samples.size(), 4, numbers);
  }
  return numbers + config + samples;
}

std::string MdsList(const std::vector<MdsField>& columns,
                    const std::vector<std::pair<std::string, uint64_t>>& shards) {
  std::string config = MdsConfig(columns);
  config.pop_back();
  std::string list;
  for (const auto& [name, size] : shards) {
    absl::StrAppend(&list, list.empty() ? "" : ", ", config, ", \"raw_data\": {\"basename\": \"", name,
                    "\", \"bytes\": ", size, ", \"hashes\": {}}, \"samples\": 1, \"zip_data\": null}");
  }
  return absl::StrCat("{\"shards\": [", list, "], \"version\": 2}");
}

std::string MdsListOfMedia(const std::vector<std::string>& media) {
  std::string head(4, '\0'), bytes;
  PutLittle(media.size(), 4, head);
  for (const std::string& medium : media) {
    PutLittle(medium.size(), 4, head);
    bytes += medium;
  }
  return head + bytes;
}

TempFolder::TempFolder() {
  std::string name = (std::filesystem::temp_directory_path() / "evenkeel-test-XXXXXX").string();
  path_ = ::mkdtemp(name.data());
}
TempFolder::~TempFolder() {
  std::error_code ignored;
  std::filesystem::permissions(path_, std::filesystem::perms::owner_all, ignored);
  std::filesystem::remove_all(path_, ignored);
}

std::string TempFolder::Write(const std::string& name, const std::string& bytes) const {
  std::string path = path_ + "/" + name;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::ofstream(path, std::ios::binary) << bytes;
  return path;
}

std::vector<std::string> TempFolder::Files() const {
  std::vector<std::string> out;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(path_)) {
    if (entry.is_regular_file()) out.push_back(std::filesystem::relative(entry.path(), path_).string());
  }
  std::sort(out.begin(), out.end());
  return out;
}

std::string ReadFile(const std::string& path) {
  std::stringstream out;
  out << std::ifstream(path, std::ios::binary).rdbuf();
  return out.str();
}

absl::StatusOr<uint64_t> MemorySource::Size(const std::string& path) {
  auto found = objects.find(path);
  if (found == objects.end()) return absl::NotFoundError(path);
  return found->second.size();
}

absl::Status MemorySource::ReadAt(const std::string& path, uint64_t offset, std::span<std::byte> out) {
  auto found = objects.find(path);
  if (found == objects.end()) return absl::NotFoundError(path);
  if (offset > found->second.size() || out.size() > found->second.size() - offset) {
    return absl::OutOfRangeError(path);
  }
  ++reads;
  bytes_read += out.size();
  if (!out.empty()) std::memcpy(out.data(), found->second.data() + offset, out.size());
  return absl::OkStatus();
}

absl::StatusOr<MediaFacts> FakeMeasurer::Probe(Medium medium, std::string_view,
                                               std::span<const std::byte> bytes) const {
  ++probes;
  std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  text.resize(std::min(text.find('\n'), text.size()));
  if (text == "CODEC") return absl::UnimplementedError("no such codec");
  if (text == "HUGE") return absl::ResourceExhaustedError("too many pixels");
  MediaFacts facts;
  facts.medium = medium;
  if (text == "WIDE") {
    facts.width = 1000000;
    facts.height = 1;
  } else if (std::sscanf(text.c_str(), "%ux%u", &facts.width, &facts.height) != 2) {
    return absl::InvalidArgumentError("not a picture");
  }
  if (medium == Medium::kVideo) facts.num_frames = 3;
  if (medium == Medium::kAudio) facts.num_samples = uint64_t{facts.width} << 32;
  return facts;
}

absl::StatusOr<ItemLengths> FakeMeasurer::Measure(const MediaFacts& facts) const {
  if (facts.width > 200 * facts.height) return absl::InvalidArgumentError("aspect ratio above 200");
  uint32_t rows = facts.width * facts.height * factor_;
  return ItemLengths{rows + 1, rows, rows / 4};
}

absl::StatusOr<SequenceLengths> FakeMeasurer::MeasureSequence(const Conversation& conversation,
                                                              std::span<const SampleItem> items,
                                                              std::span<const MediaFacts>) const {
  SequenceLengths out;
  for (const SampleItem& item : items) out.llm_length += item.lengths.output_rows;
  for (const Turn& turn : conversation.turns) {
    for (const evenkeel::Span& span : turn.spans) {
      out.llm_length += static_cast<uint32_t>(span.text.size());
      if (turn.role == Role::kAssistant) out.loss_tokens += static_cast<uint32_t>(span.text.size());
    }
  }
  return out;
}

absl::StatusOr<IndexSummary> BuildIndex(const Job& job, const Measurer& measurer, ByteSource& source,
                                        IndexOptions options, std::vector<Exclusion>* exclusions) {
  IndexBuilder builder(job, measurer, source, options);
  EVENKEEL_RETURN_IF_ERROR(builder.Prepare());
  for (size_t i = 0; i < builder.num_shards(); ++i) EVENKEEL_RETURN_IF_ERROR(builder.BuildShard(i));
  EVENKEEL_ASSIGN_OR_RETURN(IndexSummary summary, builder.Summarise());
  EVENKEEL_RETURN_IF_ERROR(builder.Commit());
  if (exclusions != nullptr) {
    exclusions->clear();
    EVENKEEL_RETURN_IF_ERROR(builder.ForEachExclusion([&](const Exclusion& e) { exclusions->push_back(e); }));
  }
  return summary;
}

std::string Line(const Conversation& conversation) {
  static constexpr const char* kRoles[] = {"system", "user", "assistant", "tool"};
  std::string out = conversation.plain ? "plain:" : "";
  for (const Turn& turn : conversation.turns) {
    if (!out.empty()) out += " ";
    out += absl::StrCat(kRoles[static_cast<size_t>(turn.role)], "[");
    for (const evenkeel::Span& span : turn.spans) {
      out += span.medium == Medium::kText
                 ? std::string(span.text)
                 : absl::StrCat("<", std::string(MediumName(span.medium)), " ", span.item, ">");
    }
    out += "]";
  }
  return out;
}

absl::StatusOr<SampleLengths> FormulaIndex::lengths(uint32_t dataset, uint64_t index) const {
  if (index >= num_samples(dataset)) return absl::OutOfRangeError("row");
  SampleLengths out;
  out.llm_length = static_cast<uint32_t>(10 + (index * 7919 + dataset * 31) % 491);
  out.loss_tokens = out.llm_length / 2;
  return out;
}

}  // namespace evenkeel::dataset
