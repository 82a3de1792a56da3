// Thousands of damaged media, each probed and produced as a worker does, and one digest of all that came of
// them.
//
//   mutation_campaign [--first N] [--count N] [--isolated] [--verbatim] [--each] FILE|FOLDER...
//
// Every N-th file is a mutation of one of the given media: bits flipped, bytes overwritten, stretches cut or
// doubled, the end missing, the rest of another file of the kind after a cut. Mutation n of a list is always
// the same. --verbatim: the files as they are, one line each. --each: a line for each mutation too, so that
// the runs of differing digests can be compared. --isolated: decoded by confined processes.
// --first: the number of the first mutation (0). The digest is over every verdict and every byte produced, so
// that runs that must agree (another CPU, EVENKEEL_CPU, isolated or not, again) are compared by one line.
// Exit code 1: an item was neither produced nor refused.
#include <sys/resource.h>

#include <filesystem>
#include <iostream>
#include <map>
#include <optional>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "core/cpu.h"
#include "core/same_arithmetic.h"
#include "core/status.h"
#include "isolation/isolated_processor.h"
#include "tests/preprocess/files.h"
#include "tests/source_dir.h"

namespace evenkeel::isolation {
namespace {

struct Source {
  std::string name;
  std::string suffix;
  Medium medium = Medium::kImage;
  Bytes bytes;
};

// What fields hold before: memory of parts is used again, so that a byte that nobody wrote would show.
constexpr std::byte kUnwritten{0xA5};

std::optional<Medium> MediumOf(const std::string& suffix) {
  static const std::map<std::string, Medium> kMedia = {
      {"jpg", Medium::kImage},  {"jpeg", Medium::kImage}, {"png", Medium::kImage},  {"webp", Medium::kImage},
      {"wav", Medium::kAudio},  {"flac", Medium::kAudio}, {"mp3", Medium::kAudio},  {"m4a", Medium::kAudio},
      {"aac", Medium::kAudio},  {"ac3", Medium::kAudio},  {"ogg", Medium::kAudio},  {"oga", Medium::kAudio},
      {"opus", Medium::kAudio}, {"mka", Medium::kAudio},  {"mp4", Medium::kVideo},  {"m4v", Medium::kVideo},
      {"mov", Medium::kVideo},  {"avi", Medium::kVideo},  {"webm", Medium::kVideo}, {"mkv", Medium::kVideo},
      {"aiff", Medium::kAudio}, {"tif", Medium::kImage},  {"tiff", Medium::kImage}, {"avif", Medium::kImage},
      {"heic", Medium::kImage}, {"heif", Medium::kImage}};
  const auto found = kMedia.find(suffix);
  if (found == kMedia.end()) return std::nullopt;
  return found->second;
}

// Media below `paths`, by path; larger ones than `max_bytes` are left out.
std::vector<Source> ReadSources(const std::vector<std::string>& paths, uint64_t max_bytes) {
  std::vector<std::string> files;
  for (const std::string& path : paths) {
    if (!std::filesystem::is_directory(path)) {
      files.push_back(path);
      continue;
    }
    for (const auto& entry : std::filesystem::recursive_directory_iterator(path)) {
      if (entry.is_regular_file() && entry.file_size() <= max_bytes) files.push_back(entry.path().string());
    }
  }
  std::sort(files.begin(), files.end());
  std::vector<Source> sources;
  for (const std::string& file : files) {
    std::string suffix = preprocess::SuffixOf(file);
    for (char& c : suffix) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    const std::optional<Medium> medium = MediumOf(suffix);
    if (!medium.has_value()) continue;
    Bytes bytes = ReadBytes(file);
    if (!bytes.empty())
      sources.push_back({std::filesystem::path(file).filename(), suffix, *medium, std::move(bytes)});
  }
  return sources;
}

// The front of one file and the back of another of its kind.
Bytes Spliced(const Source& source, const std::vector<Source>& sources, uint64_t n) {
  Dice dice(n * 31 + 7);
  const Source* other = &source;
  for (int i = 0; i < 8 && (other == &source || other->suffix != source.suffix); ++i) {
    other = &sources[dice.Roll(sources.size())];
  }
  Bytes bytes(source.bytes.begin(), source.bytes.begin() + dice.Roll(source.bytes.size()));
  bytes.insert(bytes.end(), other->bytes.begin() + dice.Roll(other->bytes.size()), other->bytes.end());
  return bytes;
}

// What became of an item: its error, or the digest of its facts, notes and fields. `code` is the word for
// the table.
std::string Outcome(const preprocess::Processor& processor, const Source& source, const Bytes& bytes,
                    std::string* code) {
  const auto refused = [code](const char* stage, const absl::Status& status) {
    *code = absl::StrCat(stage, " ", absl::StatusCodeToString(status.code()));
    return absl::StrCat(*code, ": ", status.message());
  };
  const absl::StatusOr<MediaFacts> facts = processor.Probe(source.medium, source.suffix, bytes);
  if (!facts.ok()) return refused("probe", facts.status());
  const absl::StatusOr<ItemLengths> lengths = processor.Measure(*facts);
  if (!lengths.ok()) return refused("measure", lengths.status());
  std::vector<Bytes> fields;
  for (const preprocess::FieldSpec& field : processor.fields(source.medium))
    fields.emplace_back(field.num_bytes(*lengths), kUnwritten);
  const std::vector<std::span<std::byte>> spans(fields.begin(), fields.end());
  preprocess::ItemNotes notes;
  const absl::Status made =
      processor.Produce({source.medium, source.suffix, bytes, *facts, *lengths, &notes}, spans);
  if (!made.ok()) return refused("produce", made);
  *code = "valid";
  Digester digester;
  for (const Bytes& field : fields) digester.Update(field);
  return absl::StrCat("valid ", lengths->input_rows, " ", notes.samples_filled, " ", notes.samples_trimmed,
                      " ", notes.frames_repeated, " ", digester.Finish().Hex());
}

struct Arguments {
  uint64_t first = 0;
  uint64_t count = 1000;
  uint64_t max_bytes = 400 << 10;
  bool isolated = false;
  bool verbatim = false;
  bool each = false;
  std::vector<std::string> paths;
};

absl::StatusOr<std::unique_ptr<preprocess::Processor>> LoadProcessor(bool isolated) {
  Job job;
  job.processor.vision = SourceDir() + "/tests/golden/processor/qwen2-vl";
  job.processor.audio = SourceDir() + "/tests/golden/processor/qwen2-audio";
  job.isolation = isolated ? Isolation::kAll : Isolation::kOff;
  EVENKEEL_ASSIGN_OR_RETURN(auto decoders, StartDecoders(job, {}));
  EVENKEEL_ASSIGN_OR_RETURN(std::unique_ptr<preprocess::Processor> processor,
                            preprocess::Processor::LoadMedia(job.processor, job.limits));
  return WithDecoders(std::move(processor), std::move(decoders), job);
}

absl::StatusOr<int> Run(const Arguments& arguments) {
  EVENKEEL_ASSIGN_OR_RETURN(const std::unique_ptr<preprocess::Processor> processor,
                            LoadProcessor(arguments.isolated));
  const std::vector<Source> sources = ReadSources(arguments.paths, arguments.max_bytes);
  if (sources.empty()) return absl::NotFoundError("no media among the files");
  const uint64_t count = arguments.verbatim ? sources.size() : arguments.count;
  std::map<std::string, std::map<std::string, uint64_t>> table;
  Digester digester;
  int failed = 0;
  for (uint64_t n = arguments.first; n < arguments.first + count; ++n) {
    const Source& source = sources[n % sources.size()];
    const Bytes bytes = arguments.verbatim ? source.bytes
                        : n % 7 == 3       ? Spliced(source, sources, n)
                                           : Mutated(source.bytes, n);
    std::string code;
    const std::string outcome = Outcome(*processor, source, bytes, &code);
    ++table[source.suffix][code];
    digester.Update(std::string_view(outcome));
    const bool is_attempt =
        outcome.find("INTERNAL") != outcome.npos || outcome.find("UNAVAILABLE") != outcome.npos;
    if (is_attempt) ++failed;
    if (is_attempt || arguments.verbatim || arguments.each)
      std::cerr << source.name << " #" << n << ": " << outcome << "\n";
  }
  for (const auto& [suffix, codes] : table) {
    for (const auto& [code, number] : codes) std::cerr << suffix << "\t" << code << "\t" << number << "\n";
  }
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  std::cerr << "most memory: " << (used.ru_maxrss >> 10) << " MiB\n";
  std::cout << count << " files, " << failed << " attempts failed, digest " << digester.Finish().Hex()
            << "\n";
  return failed == 0 ? 0 : 1;
}

}  // namespace
}  // namespace evenkeel::isolation

int main(int argc, char** argv) {
  absl::Status begun = evenkeel::CheckCpuLevel();
  if (begun.ok()) begun = evenkeel::KeepArithmeticTheSame(argv);
  if (!begun.ok()) {
    std::cerr << begun << "\n";
    return 2;
  }
  evenkeel::isolation::Arguments arguments;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--isolated")
      arguments.isolated = true;
    else if (word == "--verbatim")
      arguments.verbatim = true;
    else if (word == "--each")
      arguments.each = true;
    else if (word == "--first" && i + 1 < argc)
      arguments.first = std::strtoull(argv[++i], nullptr, 10);
    else if (word == "--count" && i + 1 < argc)
      arguments.count = std::strtoull(argv[++i], nullptr, 10);
    else if (word == "--max-bytes" && i + 1 < argc)
      arguments.max_bytes = std::strtoull(argv[++i], nullptr, 10);
    else
      arguments.paths.push_back(word);
  }
  const absl::StatusOr<int> code = evenkeel::isolation::Run(arguments);
  if (!code.ok()) std::cerr << code.status() << "\n";
  return code.ok() ? *code : 2;
}
