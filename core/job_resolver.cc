// Turns the message of a job file into a Job: checks every value, sets defaults, and resolves paths relative
// to the file. Its errors name the file, the line and the key.
#include "core/job_resolver.h"

#include <algorithm>
#include <array>
#include <bit>
#include <filesystem>
#include <map>
#include <numeric>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "core/address.h"
#include "core/implied_media.h"
#include "core/job_syntax.h"
#include "core/packing.h"
#include "core/pipeline_spec.h"
#include "core/status.h"

namespace evenkeel {
namespace {

constexpr uint64_t kMaxSamplesPerStep = 1 << 24;  // positions in a plan are 32 bits wide, items included
constexpr uint64_t kMaxTokens = 1ull << 40;
constexpr uint32_t kMaxStages = 4096;
constexpr uint32_t kMaxAlign = 1 << 16;
constexpr uint32_t kUsualPool = 64, kMaxPool = 1 << 16;
constexpr uint32_t kMaxGroupedRanks = 1 << 11;  // what reorder/context_parallel plans for
constexpr double kMaxRing = 1e12;
constexpr int kMaxColumns = 64;
constexpr int kMaxWeightChanges = 256;  // of a job; the sampler keeps half a megabyte for each at most
constexpr size_t kMaxColumnName = 256;  // bytes
// Of addresses of shards.
constexpr std::array<absl::string_view, 6> kSchemes = {"s3", "gs", "az", "hf", "https", "http"};

template <typename Value>
using Words = std::vector<std::pair<std::string, Value>>;

// The default of processor.chat, and the only one that can have labels and a date. preprocess/ has the styles, and
// checks what a job names (preprocess/job_words.h).
constexpr std::string_view kTemplateChat = "template";

// Holds the message, the lines of its keys, and the job that is made from them.
class Resolver {
 public:
  explicit Resolver(const LoadedJobFile& file)
      : in_(file.message), lines_(file.lines), folder_(std::filesystem::path(lines_.file()).parent_path()) {}

  absl::StatusOr<Job> Resolve() {
    job_.path = lines_.file();
    job_.name = in_.name().empty() ? std::filesystem::path(lines_.file()).stem().string() : in_.name();
    job_.seed = in_.seed();
    EVENKEEL_RETURN_IF_ERROR(Version());
    EVENKEEL_RETURN_IF_ERROR(Index());
    EVENKEEL_RETURN_IF_ERROR(Stores());
    EVENKEEL_RETURN_IF_ERROR(Datasets());
    EVENKEEL_RETURN_IF_ERROR(Splits());
    EVENKEEL_RETURN_IF_ERROR(Batch());
    EVENKEEL_RETURN_IF_ERROR(Weights());  // after the batch, which gives the draws of a step
    EVENKEEL_RETURN_IF_ERROR(Order());
    EVENKEEL_RETURN_IF_ERROR(Topology());
    EVENKEEL_RETURN_IF_ERROR(Phases());
    EVENKEEL_RETURN_IF_ERROR(Stages());  // after the phases, whose mesh may give their number
    EVENKEEL_RETURN_IF_ERROR(ContextParallel());
    EVENKEEL_RETURN_IF_ERROR(Processor());  // after the phases: which configurations it needs
    EVENKEEL_RETURN_IF_ERROR(Microbatch());
    EVENKEEL_RETURN_IF_ERROR(PackFitsPhases());
    EVENKEEL_RETURN_IF_ERROR(ChunkFitsPhases());
    EVENKEEL_RETURN_IF_ERROR(AllLimits());  // after batch and microbatch: they bound the length of a sample
    EVENKEEL_RETURN_IF_ERROR(Exclude());
    EVENKEEL_RETURN_IF_ERROR(Columns());  // after the limits, which bound them
    return std::move(job_);
  }

 private:
  template <typename... Args>
  absl::Status Error(const std::string& path, const Args&... why) const {
    return lines_.Error(path, absl::StrCat(why...));
  }

  std::string Relative(const std::string& path) const {
    return path.empty() ? path : (folder_ / path).lexically_normal().string();
  }
  std::string RelativeOrAddress(const std::string& path) const {
    return IsAddress(path) ? path : Relative(path);
  }

  // Of what lies behind an address. A query may be a signature, which must not reach a message or a log.
  absl::Status CheckAddress(const std::string& path, const std::string& address) const {
    const std::string scheme(SchemeOf(address));
    if (scheme.empty()) return absl::OkStatus();
    if (std::find(kSchemes.begin(), kSchemes.end(), scheme) == kSchemes.end()) {
      return Error(path, "'", ShortText(scheme), "://' is not one of ", absl::StrJoin(kSchemes, "://, "),
                   "://");
    }
    const std::string_view rest = std::string_view(address).substr(scheme.size() + 3);
    if (rest.substr(0, rest.find('/')).find('@') != std::string_view::npos)
      return Error(path, "an address with a user name or password; give credentials by the environment");
    const bool is_http = absl::StartsWith(scheme, "http");
    if (is_http && rest.find_first_of("?#") != std::string_view::npos)
      return Error(path, "an address with a query; only addresses of plain files are read");
    if (rest.empty() || rest.front() == '/')
      return Error(path, "'", ShortText(address), "': ", is_http ? "no host" : "no bucket");
    return scheme == "hf" ? CheckHub(path, rest) : absl::OkStatus();
  }

  // datasets/owner/name@revision/file. A branch's files change, so that whoever wants the latest ones says so.
  absl::Status CheckHub(const std::string& path, std::string_view rest) const {
    const std::vector<std::string> parts = absl::StrSplit(absl::string_view(rest.data(), rest.size()), '/');
    if (parts.size() < 3 || parts[0] != "datasets" || parts[1].empty())
      return Error(path, "'hf://", ShortText(rest), "' is not hf://datasets/OWNER/NAME@REVISION/FILE");
    const size_t at = parts[2].find('@');
    if (at == std::string::npos || at == 0 || at + 1 == parts[2].size()) {
      return Error(path, "'hf://", ShortText(rest), "' has no revision; write ",
                   ShortText(parts[2].substr(0, at)),
                   "@ and the commit that 'History' of the repository's files shows, or a tag or branch");
    }
    return absl::OkStatus();
  }

  absl::Status Stores() {
    std::set<std::string> seen;
    for (int i = 0; i < in_.stores_size(); ++i) {
      const std::string path = absl::StrCat("stores[", i, "]");
      const pb::Store& in = in_.stores(i);
      if (!IsAddress(in.url()))
        return Error(path + ".url", "missing; give the start of addresses: s3://, s3://bucket/");
      if (!absl::EndsWith(in.url(), "://")) EVENKEEL_RETURN_IF_ERROR(CheckAddress(path + ".url", in.url()));
      if (!seen.insert(in.url()).second)
        return Error(path + ".url", "'", ShortText(in.url()), "' is listed twice");
      if (!in.endpoint().empty()) {
        const std::string_view scheme = SchemeOf(in.endpoint());
        if (scheme != "http" && scheme != "https")
          return Error(path + ".endpoint", "'", ShortText(in.endpoint()),
                       "' does not begin with https:// or http://");
        EVENKEEL_RETURN_IF_ERROR(CheckAddress(path + ".endpoint", in.endpoint()));
      }
      EVENKEEL_ASSIGN_OR_RETURN(const bool virtual_host,
                                Choose<bool>(path + ".addressing_style", in.addressing_style(),
                                             {{"path", false}, {"virtual", true}}));
      StoreSpec out{.url = in.url(),
                    .endpoint = in.endpoint(),
                    .region = in.region(),
                    .virtual_host = virtual_host,
                    .anonymous = in.anonymous(),
                    .allow_http = in.allow_http(),
                    .ca_file = Relative(in.ca_file())};
      if (in.has_timeout_seconds()) out.timeout_seconds = in.timeout_seconds();
      if (!(out.timeout_seconds >= 0.1 && out.timeout_seconds <= 600))
        return Error(path + ".timeout_seconds", "must be from 0.1 to 600, is ", out.timeout_seconds);
      if (in.has_retries()) out.retries = in.retries();
      if (out.retries > 100) return Error(path + ".retries", "must be at most 100, is ", out.retries);
      job_.stores.push_back(std::move(out));
    }
    return absl::OkStatus();
  }

  // Returns the value of `word`; if it is empty, that of the first of `words`.
  template <typename Value>
  absl::StatusOr<Value> Choose(const std::string& path, const std::string& word,
                               const Words<Value>& words) const {
    if (word.empty()) return words.front().second;
    std::vector<std::string> names;
    for (const auto& [name, value] : words) {
      if (name == word) return value;
      names.push_back(name);
    }
    return Error(path, "'", ShortText(word), "' is not one of ", absl::StrJoin(names, ", "));
  }

  absl::Status ChooseWord(const std::string& path, const std::string& word,
                          const std::vector<std::string>& allowed, std::string* out) const {
    Words<std::string> words;
    for (const std::string& name : allowed) words.emplace_back(name, name);
    EVENKEEL_ASSIGN_OR_RETURN(*out, Choose(path, word, words));
    return absl::OkStatus();
  }

  absl::Status Version() const {
    uint32_t version = in_.stream_version();
    if (version == 0 || version == kStreamVersion) return absl::OkStatus();
    return Error("stream_version", "the job wants version ", version, ", this release makes version ",
                 kStreamVersion,
                 "; run the release that the job was started with, or remove the line to start a new stream");
  }

  absl::Status Index() {
    if (in_.index().empty()) return Error("index", "missing; give the folder of the index");
    EVENKEEL_RETURN_IF_ERROR(CheckAddress("index", in_.index()));
    if (!IsAddress(in_.index())) {
      job_.index = Relative(in_.index());
      return absl::OkStatus();
    }
    const std::string scheme(SchemeOf(in_.index()));
    if (scheme != "s3" && scheme != "gs" && scheme != "az") {
      return Error("index", "'", scheme,
                   "://' cannot be written to; give a folder, or s3://bucket/folder, gs:// or az://");
    }
    const std::string folder(absl::StripSuffix(in_.index(), "/"));
    if (folder.find('/', scheme.size() + 3) == std::string::npos || HasPattern(folder) ||
        folder.find("//", scheme.size() + 3) != std::string::npos)
      return Error("index", "'", ShortText(folder), "' is not ", scheme, "://BUCKET/FOLDER");
    job_.index = folder;
    return absl::OkStatus();
  }

  absl::Status Datasets() {
    if (in_.datasets().empty()) return Error("datasets", "missing; give at least one dataset");
    bool drawn = false;
    uint64_t shards = 0;
    std::set<std::string> names;
    for (int i = 0; i < in_.datasets_size(); ++i) {
      std::string path = absl::StrCat("datasets[", i, "]");
      EVENKEEL_ASSIGN_OR_RETURN(DatasetSpec dataset, Dataset(in_.datasets(i), path));
      if (!names.insert(dataset.name).second) {
        return Error(path + ".name", "two datasets are named '", dataset.name, "'");
      }
      shards += dataset.shards.size();
      if (shards > kMaxShards)
        return Error(path + ".shards", "the job has more than ", kMaxShards, " shards");
      drawn = drawn || dataset.weight > 0 || !in_.datasets(i).weights().empty();  // then see Weights
      job_.datasets.push_back(std::move(dataset));
    }
    EVENKEEL_RETURN_IF_ERROR(AllRepeat());
    EVENKEEL_RETURN_IF_ERROR(CountEnds());
    if (!drawn) {
      return Error("datasets", "every ", job_.datasets[0].repeats ? "repeat" : "weight",
                   " is 0; at least one dataset must be drawn");
    }
    return absl::OkStatus();
  }

  // How often the dataset is drawn.
  absl::Status Share(const pb::Dataset& in, const std::string& path, DatasetSpec& out) const {
    if (in.has_weight()) out.weight = in.weight();
    if (out.weight < 0) return Error(path + ".weight", "must not be negative");
    if (in.has_weight() && !in.weights().empty())
      return Error(path + ".weights", "contradicts weight; give one of the two");
    if (!in.weights().empty()) out.weight = 0;
    if (!in.has_repeat()) return absl::OkStatus();
    if (in.has_weight() || !in.weights().empty())
      return Error(path + ".repeat", "contradicts ", in.has_weight() ? "weight" : "weights",
                   "; give one of the two");
    if (!(in.repeat() >= 0)) return Error(path + ".repeat", "must not be negative");
    out.weight = in.repeat();
    out.repeats = true;
    return absl::OkStatus();
  }

  absl::Status MaxEpochs(const pb::Dataset& in, const std::string& path, DatasetSpec& out) const {
    constexpr uint64_t kMost = 1 << 20;
    if (!in.has_max_epochs()) return absl::OkStatus();
    if (!(in.max_epochs() > 0) || in.max_epochs() > static_cast<double>(kMost)) {
      return Error(path + ".max_epochs", "must be above 0 and at most ", kMost, ", is ", in.max_epochs(),
                   "; leave it out for a dataset without an end");
    }
    out.max_epochs = in.max_epochs();
    return absl::OkStatus();
  }

  // Every end is a mixture of its own (dataset/order/draws.h).
  absl::Status CountEnds() const {
    constexpr std::ptrdiff_t kMostEnds = 128;
    const auto ends = std::count_if(job_.datasets.begin(), job_.datasets.end(),
                                    [](const DatasetSpec& dataset) { return dataset.max_epochs > 0; });
    if (ends <= kMostEnds) return absl::OkStatus();
    return Error("datasets", ends, " datasets have max_epochs; at most ", kMostEnds,
                 ". Make one dataset of shards that have the same share");
  }

  // Shares by weights and shares by samples have no common unit.
  absl::Status AllRepeat() const {
    const auto number = std::count_if(job_.datasets.begin(), job_.datasets.end(),
                                      [](const DatasetSpec& dataset) { return dataset.repeats; });
    if (number == 0 || number == static_cast<std::ptrdiff_t>(job_.datasets.size())) return absl::OkStatus();
    const auto without = std::find_if_not(job_.datasets.begin(), job_.datasets.end(),
                                          [](const DatasetSpec& dataset) { return dataset.repeats; });
    return Error(absl::StrCat("datasets[", without - job_.datasets.begin(), "].repeat"),
                 "missing; give it to all datasets of the job or to none");
  }

  absl::StatusOr<DatasetSpec> Dataset(const pb::Dataset& in, const std::string& path) const {
    DatasetSpec out;
    out.name = in.name();
    if (out.name.empty()) return Error(path + ".name", "missing; error messages and exclude need it");
    if (out.name.find_first_of("/\n") != std::string::npos) {
      return Error(path + ".name", "'", ShortText(out.name), "' must not contain '/' or a line break");
    }
    EVENKEEL_RETURN_IF_ERROR(Share(in, path, out));
    EVENKEEL_RETURN_IF_ERROR(MaxEpochs(in, path, out));
    if (in.shards().empty()) return Error(path + ".shards", "missing; give at least one shard");
    for (int i = 0; i < in.shards_size(); ++i) {
      EVENKEEL_RETURN_IF_ERROR(
          AppendShards(in.shards(i), absl::StrCat(path, ".shards[", i, "]"), &out.shards));
    }
    std::set<std::string> seen;
    for (const std::string& shard : out.shards) {
      if (!seen.insert(shard).second)
        return Error(path + ".shards", "'", ShortText(shard), "' is listed twice");
    }
    EVENKEEL_RETURN_IF_ERROR(Format(in, path, out));
    EVENKEEL_RETURN_IF_ERROR(Where(in.where(), path + ".where", out));
    return out;
  }

  // The keys of the message are the names of the facts, in their order.
  absl::Status Where(const pb::Where& in, const std::string& path, DatasetSpec& out) const {
    const std::array<const std::string*, kNumSampleFacts> bounds = {
        &in.llm_tokens(), &in.trained_tokens(), &in.images(),       &in.audios(),        &in.videos(),
        &in.short_side(), &in.long_side(),      &in.aspect_ratio(), &in.audio_seconds(), &in.video_seconds()};
    for (uint8_t i = 0; i < kNumSampleFacts; ++i) {
      if (bounds[i]->empty()) continue;
      const auto fact = static_cast<SampleFact>(i);
      absl::StatusOr<Condition> condition = ParseCondition(fact, *bounds[i]);
      if (!condition.ok())
        return Error(absl::StrCat(path, ".", std::string(SampleFactName(fact))),
                     condition.status().message());
      out.where.push_back(*condition);
    }
    return absl::OkStatus();
  }

  absl::Status Splits() {
    std::vector<std::string> names;
    double sum = 0;
    for (int i = 0; i < in_.splits_size(); ++i) {
      const std::string path = absl::StrCat("splits[", i, "]");
      const pb::Split& in = in_.splits(i);
      if (in.name().empty()) return Error(path + ".name", "missing");
      if (std::find(names.begin(), names.end(), in.name()) != names.end())
        return Error(path + ".name", "two splits are named '", ShortText(in.name()), "'");
      if (!(in.share() > 0 && in.share() <= 1))
        return Error(path + ".share", "must be above 0 and at most 1, is ", in.share());
      sum += in.share();
      if (sum > 1 + 1e-9)
        return Error(path + ".share", "with this one the shares are ", sum, ", more than 1");
      names.push_back(in.name());
      job_.splits.push_back({in.name(), in.share()});
    }
    job_.split_seed = in_.split_seed();
    if (names.empty() && in_.split_seed() != 0) return Error("split_seed", "belongs to splits");
    if (in_.split().empty()) return absl::OkStatus();
    if (names.empty()) return Error("split", "'", ShortText(in_.split()), "': the job has no splits");
    const auto found = std::find(names.begin(), names.end(), in_.split());
    if (found == names.end()) {
      return Error("split", "there is no split '", ShortText(in_.split()), "'; nearest is '",
                   Nearest(in_.split(), names), "'");
    }
    job_.split = static_cast<size_t>(found - names.begin());
    return absl::OkStatus();
  }

  // By the ends of the shards' names: tar archives where no name is known.
  static DataFormat FormatOfName(const std::string& name) {
    const std::string shard(WithoutPackedEnd(name));
    // What lists the shards of MDS; JSON of this name needs a format.
    const bool is_list = shard == "index.json" || absl::EndsWith(shard, "/index.json");
    if (is_list || absl::EndsWithIgnoreCase(shard, ".mds")) return DataFormat::kMds;
    for (const char* end : {".json", ".jsonl", ".ndjson"})
      if (absl::EndsWithIgnoreCase(shard, end)) return DataFormat::kJson;
    if (absl::EndsWithIgnoreCase(shard, ".parquet")) return DataFormat::kParquet;
    if (absl::EndsWith(shard, ".bin") || absl::EndsWith(shard, ".idx")) return DataFormat::kMegatron;
    return absl::EndsWithIgnoreCase(shard, ".txt") ? DataFormat::kText : DataFormat::kWebDataset;
  }

  absl::Status Format(const pb::Dataset& in, const std::string& path, DatasetSpec& out) const {
    Words<DataFormat> words;
    for (DataFormat format : {DataFormat::kWebDataset, DataFormat::kJson, DataFormat::kParquet,
                              DataFormat::kMds, DataFormat::kText, DataFormat::kMegatron})
      words.emplace_back(FormatName(format), format);
    out.format = FormatOfName(out.shards.front());
    for (const std::string& shard : out.shards) {
      if (!in.format().empty() || FormatOfName(shard) == out.format) continue;
      return Error(path + ".shards", "'", ShortText(shard), "' looks like ",
                   std::string(FormatName(FormatOfName(shard))), ", the first shard like ",
                   std::string(FormatName(out.format)), "; make two datasets, or give format");
    }
    if (!in.format().empty()) {
      EVENKEEL_ASSIGN_OR_RETURN(out.format, Choose(path + ".format", in.format(), words));
    }
    for (const std::string& shard : out.shards) {
      if (out.format != DataFormat::kMegatron || absl::EndsWith(shard, ".bin")) continue;
      return Error(path + ".shards", "'", ShortText(shard.substr(shard.rfind('/') + 1)),
                   "' does not end in .bin; of the format megatron ",
                   "give X.bin, uncompressed, next to which X.idx is");
    }
    const bool has_rows = out.format == DataFormat::kJson || out.format == DataFormat::kParquet ||
                          out.format == DataFormat::kMds;
    for (const auto& [key, given] :
         {std::pair{".media", !in.media().empty()}, std::pair{".fields", in.has_fields()}}) {
      if (!given || has_rows) continue;
      return Error(path + key, "belongs to the formats json, parquet and mds; the format is ",
                   std::string(FormatName(out.format)));
    }
    EVENKEEL_RETURN_IF_ERROR(CheckAddress(path + ".media", in.media()));
    out.media = RelativeOrAddress(in.media());
    if (!in.has_fields()) return absl::OkStatus();
    const pb::Fields& fields = in.fields();
    const bool is_pair = !fields.chosen().empty();
    if (is_pair != !fields.rejected().empty())
      return Error(path + ".fields", "chosen and rejected are given together");
    if (is_pair && !fields.answer().empty())
      return Error(path + ".fields", "chosen and rejected exclude answer");
    if (!is_pair && fields.prompt().empty() != fields.answer().empty())
      return Error(path + ".fields", "prompt and answer, or chosen and rejected, are given together");
    if ((is_pair || !fields.prompt().empty()) && (!fields.messages().empty() || !fields.text().empty())) {
      return Error(path + ".fields", is_pair ? "chosen and rejected" : "prompt and answer",
                   " exclude messages and text");
    }
    if (!fields.messages().empty() && !fields.text().empty())
      return Error(path + ".fields", "messages and text exclude each other");
    out.fields = {.messages = fields.messages(),
                  .text = fields.text(),
                  .prompt = fields.prompt(),
                  .answer = fields.answer(),
                  .chosen = fields.chosen(),
                  .rejected = fields.rejected(),
                  .image = fields.image(),
                  .audio = fields.audio(),
                  .video = fields.video()};
    return absl::OkStatus();
  }

  absl::Status AppendShards(const std::string& pattern, const std::string& path,
                            std::vector<std::string>* shards) const {
    if (pattern.empty()) return Error(path, "an empty path");
    EVENKEEL_RETURN_IF_ERROR(CheckAddress(path, pattern));
    absl::StatusOr<std::vector<std::string>> expanded = ExpandRanges(pattern);
    if (!expanded.ok()) return Error(path, expanded.status().message());
    if (expanded->size() + shards->size() > kMaxShards)
      return Error(path, "more than ", kMaxShards, " shards");
    for (const std::string& shard : *expanded) {
      for (const char* end : {".bz2", ".xz", ".br", ".lz4", ".snappy", ".zip"}) {
        if (!absl::EndsWithIgnoreCase(shard, end)) continue;
        return Error(path, "'", ShortText(shard), "' is compressed in a form that is not read (", end,
                     "); decompress it, or compress it by gzip (.gz) or zstd (.zst)");
      }
      shards->push_back(RelativeOrAddress(shard));
    }
    return absl::OkStatus();
  }

  absl::Status Weights() {
    int changes = 0;
    std::set<uint64_t> from = {0};
    for (int i = 0; i < in_.datasets_size(); ++i) {
      changes += in_.datasets(i).weights_size();
      const std::string path = absl::StrCat("datasets[", i, "].weights");
      if (changes > kMaxWeightChanges)
        return Error(path, "the job has more than ", kMaxWeightChanges, " changes of weights");
      EVENKEEL_RETURN_IF_ERROR(WeightsOf(in_.datasets(i), path, job_.datasets[static_cast<size_t>(i)]));
      for (const WeightChange& change : job_.datasets[static_cast<size_t>(i)].changes)
        from.insert(change.from_draw);
    }
    for (const uint64_t draw : from) {
      const bool drawn = std::any_of(job_.datasets.begin(), job_.datasets.end(),
                                     [&](const DatasetSpec& dataset) { return dataset.WeightAt(draw) > 0; });
      if (drawn) continue;
      return Error("datasets", "from draw ", draw,
                   " on every weight is 0; at least one dataset must be drawn");
    }
    return absl::OkStatus();
  }

  absl::Status WeightsOf(const pb::Dataset& in, const std::string& path, DatasetSpec& out) const {
    uint64_t last = 0;
    for (int i = 0; i < in.weights_size(); ++i) {
      const pb::WeightChange& change = in.weights(i);
      const std::string one = absl::StrCat(path, "[", i, "]");
      if (change.has_from_step() == change.has_from_draw())
        return Error(one, "give from_step or from_draw, one of the two");
      if (change.has_from_step() && job_.batch.samples == 0) {
        return Error(one + ".from_step",
                     "belongs to batch.samples; otherwise the draws of a step vary, give ", "from_draw");
      }
      if (!change.has_weight()) return Error(one + ".weight", "missing");
      if (change.weight() < 0) return Error(one + ".weight", "must not be negative");
      const uint64_t most = uint64_t{1} << 62, unit = change.has_from_step() ? job_.batch.samples : 1;
      const uint64_t value = change.has_from_step() ? change.from_step() : change.from_draw();
      if (value > most / unit) return Error(one, "beyond draw 2^62");
      if (i > 0 && value * unit <= last) return Error(one, "must be after the change before it");
      last = value * unit;
      if (last == 0) {
        out.weight = change.weight();
      } else {
        out.changes.push_back({last, change.weight()});
      }
    }
    return absl::OkStatus();
  }

  absl::Status Batch() {
    const pb::Batch& in = in_.batch();
    BatchSpec& out = job_.batch;
    out.samples = in.samples();
    out.llm_tokens = in.llm_tokens();
    if (in.size_case() == pb::Batch::SIZE_NOT_SET)
      return Error("batch", "missing; give samples, llm_tokens, pack or chunk");
    if (in.has_samples() && (out.samples == 0 || out.samples > kMaxSamplesPerStep)) {
      return Error("batch.samples", "must be from 1 to ", kMaxSamplesPerStep, ", is ", out.samples);
    }
    if (in.has_llm_tokens() && (out.llm_tokens == 0 || out.llm_tokens > kMaxTokens)) {
      return Error("batch.llm_tokens", "must be from 1 to ", kMaxTokens, ", is ", out.llm_tokens);
    }
    if (in.window_samples() != 0 && in.has_samples()) {
      return Error("batch.window_samples",
                   "belongs to llm_tokens, pack and chunk; with samples there are no windows");
    }
    if (in.window_samples() > kMaxWindowSamples) {
      return Error("batch.window_samples", "must be at most ", kMaxWindowSamples, ", is ",
                   in.window_samples());
    }
    if (in.has_pack()) {
      // Bins of fewer samples are less full: packing a window leaves one step that is not.
      out.window_samples = uint64_t{1} << 16;
      EVENKEEL_RETURN_IF_ERROR(Pack(in.pack()));
    }
    if (in.has_chunk()) EVENKEEL_RETURN_IF_ERROR(Chunk(in.chunk()));
    if (in.window_samples() != 0) out.window_samples = in.window_samples();
    return absl::OkStatus();
  }

  absl::Status Chunk(const pb::TextChunks& in) {
    constexpr uint64_t kMaxChunk = uint64_t{1} << 30;
    if (in.length() == 0 || in.length() > kMaxChunk) {
      return Error("batch.chunk.length", "must be from 1 to ", kMaxChunk, ", is ", in.length());
    }
    if (in.count() == 0 || in.count() > kMaxSamplesPerStep) {
      return Error("batch.chunk.count", "must be from 1 to ", kMaxSamplesPerStep, ", is ", in.count());
    }
    if (in.length() * in.count() > kMaxTokens) {
      return Error("batch.chunk", in.count(), " chunks of ", in.length(), " tokens are more than ",
                   kMaxTokens, " tokens a step");
    }
    job_.batch.chunk = {.length = in.length(), .count = in.count()};
    return absl::OkStatus();
  }

  // What of chunks depends on phases, microbatches and the order.
  absl::Status ChunkFitsPhases() const {
    const ChunkSpec& chunk = job_.batch.chunk;
    if (chunk.count == 0) return absl::OkStatus();
    for (const PhaseSpec& phase : job_.phases) {
      if (phase.phase == Phase::kLlm) continue;
      return Error("batch.chunk", "cuts texts alone, and the job has the phase '",
                   std::string(phase.phase.name()), "'; leave it out, or use batch.pack");
    }
    if (Llm().batching != Batching::kPacked || Llm().padded_attention) {
      return Error("batch.chunk", "chunks are packed sequences; the llm's batching must be packed");
    }
    if (job_.microbatch.capacity_tokens != 0 || job_.microbatch.pad_to != 0) {
      return Error("batch.chunk", "chunks are the microbatches, and have a length of their own; leave out ",
                   "microbatch.capacity_tokens and microbatch.pad_to");
    }
    if (job_.microbatch.align != 1) {
      return Error(
          "batch.chunk", "chunks are cut at any token, so documents cannot be aligned; microbatch.align is ",
          job_.microbatch.align,
          job_.sequences != Sequences::kWhole ? ", as topology.sequences needs it; leave it out" : "");
    }
    if (job_.order.heavy > 0) {
      return Error("order.heavy", "has no meaning with batch.chunk, which cuts long texts");
    }
    const uint64_t unit = Llm().ranks.size() * std::max<uint64_t>(1, job_.microbatch.count_multiple);
    if (chunk.count % unit != 0) {
      return Error("batch.chunk.count", chunk.count, " is not a multiple of ", unit,
                   ": every one of the llm's ", Llm().ranks.size(), " ranks takes as many chunks",
                   job_.microbatch.count_multiple > 1 ? ", a multiple of microbatch.count_multiple" : "");
    }
    return absl::OkStatus();
  }

  absl::Status Pack(const pb::Pack& in) {
    PackSpec& out = job_.batch.pack;
    if (in.bins() == 0 || in.bins() > kMaxSamplesPerStep) {
      return Error("batch.pack.bins", "must be from 1 to ", kMaxSamplesPerStep, ", is ", in.bins());
    }
    out.bins = in.bins();
    if (!in.algorithm().empty()) out.algorithm = in.algorithm();
    std::map<std::string, uint64_t> capacities;
    for (int i = 0; i < in.capacities_size(); ++i) {
      const pb::BinCapacity& capacity = in.capacities(i);
      const std::string path = absl::StrCat("batch.pack.capacities[", i, "]");
      if (capacity.length() == 0 || capacity.length() > kMaxTokens) {
        return Error(path + ".length", "must be from 1 to ", kMaxTokens, ", is ", capacity.length());
      }
      if (!capacities.emplace(capacity.phase(), capacity.length()).second) {
        return Error(path + ".phase", "phase '", ShortText(capacity.phase()), "' has two capacities");
      }
    }
    for (const auto& [phase, length] : capacities) out.capacities.push_back({phase, length});
    return absl::OkStatus();
  }

  // What of packing depends on phases and microbatches.
  absl::Status PackFitsPhases() const {
    const PackSpec& pack = job_.batch.pack;
    if (pack.bins == 0) return absl::OkStatus();
    std::vector<std::string> names;
    for (const PhaseSpec& phase : job_.phases) names.emplace_back(phase.phase.name());
    for (const BinCapacity& capacity : pack.capacities) {
      if (std::find(names.begin(), names.end(), capacity.phase) != names.end()) continue;
      return Error("batch.pack.capacities", "there is no phase '", ShortText(capacity.phase),
                   "'; nearest is '", Nearest(capacity.phase, names), "'");
    }
    if (pack.CapacityOf(Phase::kLlm.name()) == 0) {
      return Error("batch.pack.capacities",
                   "none of the llm; give {phase: llm, length: N}, the tokens of a microbatch");
    }
    if (Llm().batching != Batching::kPacked || Llm().padded_attention) {
      return Error("batch.pack", "bins are packed sequences; the llm's batching must be packed");
    }
    if (job_.microbatch.capacity_tokens != 0 || job_.microbatch.pad_to != 0) {
      return Error("batch.pack", "bins are the microbatches, and have capacities of their own; leave out ",
                   "microbatch.capacity_tokens and microbatch.pad_to");
    }
    const uint64_t unit = Llm().ranks.size() * std::max<uint64_t>(1, job_.microbatch.count_multiple);
    if (pack.bins % unit != 0) {
      return Error("batch.pack.bins", pack.bins, " is not a multiple of ", unit, ": every one of the llm's ",
                   Llm().ranks.size(), " ranks takes as many bins",
                   job_.microbatch.count_multiple > 1 ? ", a multiple of microbatch.count_multiple" : "");
    }
    return absl::OkStatus();
  }

  absl::Status Order() {
    const pb::Order& in = in_.order();
    OrderSpec& out = job_.order;
    const Words<Shuffle> words = {
        {"full", Shuffle::kFull}, {"blocked", Shuffle::kBlocked}, {"none", Shuffle::kNone}};
    EVENKEEL_ASSIGN_OR_RETURN(out.shuffle, Choose("order.shuffle", in.shuffle(), words));
    if (out.shuffle != Shuffle::kBlocked && in.block_samples() + in.window_blocks() != 0) {
      return Error(in.block_samples() != 0 ? "order.block_samples" : "order.window_blocks",
                   "belongs to shuffle: blocked");
    }
    if (in.block_samples() > kMaxSamplesPerStep || in.window_blocks() > kMaxSamplesPerStep) {
      return Error("order", "block_samples and window_blocks must be at most ", kMaxSamplesPerStep, " each");
    }
    if (in.block_samples() != 0) out.block_samples = in.block_samples();
    if (in.window_blocks() != 0) out.window_blocks = in.window_blocks();
    return Level(in);
  }

  absl::Status Level(const pb::Order& in) {
    OrderSpec& out = job_.order;
    if (in.level() > 0 && job_.batch.samples == 0) {
      return Error(
          "order.level",
          "belongs to batch.samples; with llm_tokens and pack heavy samples are put together within ",
          "batch.window_samples, where order.heavy is given");
    }
    if (in.heavy() != 0 && in.level() == 0 && job_.batch.samples > 0) {
      return Error("order.heavy",
                   "needs order.level, the number of steps among which heavy samples are put together");
    }
    if (in.heavy() != 0 && !(in.heavy() >= 1 && in.heavy() <= 1e6)) {
      return Error("order.heavy", "must be from 1 to 1e6 mean samples, is ", in.heavy());
    }
    if (uint64_t{in.level()} * job_.batch.samples > kMaxWindowSamples) {
      return Error("order.level", in.level(), " steps of ", job_.batch.samples, " samples are more than ",
                   kMaxWindowSamples, " samples, the largest window");
    }
    constexpr double kUsualHeavy = 8;
    out.level_steps = in.level();
    out.heavy = in.heavy() == 0 && in.level() > 0 ? kUsualHeavy : in.heavy();
    return absl::OkStatus();
  }

  absl::Status Topology() {
    const pb::Topology& in = in_.topology();
    job_.ranks_per_node = in.ranks_per_node();
    job_.pipeline_stages = std::max(1u, in.pipeline_stages());
    job_.virtual_stages = std::max(1u, in.virtual_stages());
    if (job_.pipeline_stages > kMaxStages || job_.virtual_stages > kMaxStages) {
      return Error("topology", "pipeline_stages and virtual_stages must be at most ", kMaxStages);
    }
    return absl::OkStatus();
  }

  const PhaseSpec& Llm() const {
    return *std::find_if(job_.phases.begin(), job_.phases.end(),
                         [](const PhaseSpec& spec) { return spec.phase == Phase::kLlm; });
  }

  absl::Status Stages() {
    const uint32_t given = in_.topology().pipeline_stages(), stages = Llm().mesh.stages();
    if (stages > 1 && given != 0 && given != stages) {
      return Error("topology.pipeline_stages", given, ", but the mesh of the llm has ", stages,
                   " pipeline stages; remove one of the two");
    }
    if (stages > 1) job_.pipeline_stages = stages;
    const bool is_given = stages > 1 || given != 0;
    EVENKEEL_RETURN_IF_ERROR(ResolvePipeline(in_, lines_, is_given, job_));
    if (job_.virtual_stages > 1 && job_.pipeline_stages == 1) {
      return Error("topology.virtual_stages", job_.virtual_stages,
                   " virtual stages need pipeline_stages above 1");
    }
    return absl::OkStatus();
  }

  absl::Status ContextParallel() {
    const pb::Topology& in = in_.topology();
    const PhaseSpec& llm = Llm();
    const uint32_t size = llm.mesh.size(MeshAxis::kContext);
    EVENKEEL_ASSIGN_OR_RETURN(job_.groups.given, Choose("topology.context_parallel", in.context_parallel(),
                                                        Words<bool>{{"static", false}, {"dynamic", true}}));
    if (job_.groups.given) {
      EVENKEEL_RETURN_IF_ERROR(DynamicGroups(in.groups()));
    } else if (in.has_groups()) {
      return Error("topology.groups", "belongs to context_parallel: dynamic");
    }
    for (const auto& [key, given] : {std::pair("topology.context_parallel", !in.context_parallel().empty()),
                                     std::pair("topology.sequences", !in.sequences().empty())}) {
      if (given && size == 1 && !job_.groups.given)
        return Error(key,
                     "belongs to a mesh of the llm with context above 1, or to context_parallel: dynamic");
    }
    const Words<Sequences> words = {
        {"whole", Sequences::kWhole}, {"zigzag", Sequences::kZigzag}, {"contiguous", Sequences::kContiguous}};
    EVENKEEL_ASSIGN_OR_RETURN(job_.sequences, Choose("topology.sequences", in.sequences(), words));
    if (job_.sequences != Sequences::kWhole && llm.batching != Batching::kPacked) {
      return Error("topology.sequences", "shards are cut of packed sequences; the llm's batching is padded");
    }
    return absl::OkStatus();
  }

  // The groups of context_parallel: dynamic, and what does not go with them.
  absl::Status DynamicGroups(const pb::ContextGroups& in) {
    GroupSpec& out = job_.groups;
    const uint32_t ranks = static_cast<uint32_t>(Llm().ranks.size());
    EVENKEEL_RETURN_IF_ERROR(AllowsGroups());
    EVENKEEL_ASSIGN_OR_RETURN(
        out.powers_of_two,
        Choose("topology.groups.sizes", in.sizes(), Words<bool>{{"any", false}, {"powers_of_two", true}}));
    out.max_size = in.max_size();
    if (out.max_size == 0) out.max_size = out.powers_of_two ? std::bit_floor(ranks) : ranks;
    if (out.max_size > ranks)
      return Error("topology.groups.max_size", out.max_size, ", but the llm has ", ranks, " replicas");
    if (out.powers_of_two && !std::has_single_bit(out.max_size))
      return Error("topology.groups.max_size", out.max_size, " is not a power of two, as sizes says");
    out.pool = in.pool() == 0 ? kUsualPool : in.pool();
    if (out.pool > kMaxPool) return Error("topology.groups.pool", "must be at most ", kMaxPool);
    if (out.max_size > 1 && ranks / out.max_size > out.pool) {
      return Error("topology.groups.pool", out.pool, " groups, but there are ", ranks / out.max_size,
                   " groups of max_size, ", out.max_size, ", alone; raise one of the two");
    }
    out.tokens_per_rank = in.tokens_per_rank();
    if (out.tokens_per_rank == 0 || out.tokens_per_rank > kMaxTokens) {
      return Error("topology.groups.tokens_per_rank", "must be 1 to ", kMaxTokens,
                   ": the llm tokens that a rank holds of a microbatch at most");
    }
    if (!in.algorithm().empty()) out.algorithm = in.algorithm();  // checked by reorder/
    EVENKEEL_ASSIGN_OR_RETURN(out.media_attend_fully,
                              Choose("topology.groups.media_attention", in.media_attention(),
                                     Words<bool>{{"causal", false}, {"full", true}}));
    out.ring = in.ring(), out.ring_between_nodes = in.ring_between_nodes(),
    out.ring_constant = in.ring_constant();
    for (const auto& [key, value] :
         {std::pair("ring", out.ring), std::pair("ring_constant", out.ring_constant),
          std::pair("ring_between_nodes", out.ring_between_nodes)}) {
      if (!(value >= 0 && value <= kMaxRing))
        return Error(absl::StrCat("topology.groups.", key), "must be from 0 to ", kMaxRing, ", is ", value);
    }
    if (out.ring_between_nodes > 0 && out.ring_between_nodes < out.ring) {
      return Error("topology.groups.ring_between_nodes", out.ring_between_nodes, " is less than ring, ",
                   out.ring);
    }
    out.sizes = PoolSizes(ranks, out);
    return absl::OkStatus();
  }

  // Whether everything else in the job goes with groups that the plan chooses.
  absl::Status AllowsGroups() const {
    const std::string_view key = "topology.context_parallel";
    const PhaseSpec& llm = Llm();
    const uint32_t ranks = static_cast<uint32_t>(llm.ranks.size());
    const auto refuse = [&](const auto&... why) { return Error(std::string(key), "dynamic: ", why...); };
    if (llm.mesh.size(MeshAxis::kContext) > 1)
      return refuse("groups are made of replicas; leave context out of the llm's mesh");
    if (job_.pipeline_stages > 1 || job_.pipeline.given)
      return refuse("not with pipeline stages, whose microbatches are ordered for each replica by itself");
    if (llm.batching != Batching::kPacked || llm.padded_attention)
      return refuse("groups share packed sequences; the llm's batching must be packed");
    if (llm.algorithm != kDefaultAlgorithm || llm.equal_counts || llm.tolerance)
      return refuse(
          "topology.groups.algorithm places the samples; leave algorithm, equal_counts and tolerance out of "
          "the llm");
    if (job_.batch.pack.bins > 0 || job_.batch.chunk.count > 0)
      return refuse(
          "bins and chunks are one microbatch of one rank each; leave batch.pack and batch.chunk out");
    if (job_.phases_add_up)
      return refuse("members of a group meet in every microbatch; leave ranks_meet out");
    if (in_.microbatch().capacity_tokens() != 0 || in_.microbatch().pad_to() != 0)
      return refuse(
          "topology.groups.tokens_per_rank bounds a microbatch; leave microbatch.capacity_tokens and pad_to "
          "out");
    if (ranks > kMaxGroupedRanks)
      return refuse("at most ", kMaxGroupedRanks, " replicas; the llm has ", ranks);
    for (const PhaseSpec& phase : job_.phases) {
      if (phase.phase.is_generator())
        return refuse("phase ", std::string(PhaseName(phase.phase)),
                      " is a generator, whose rows come from one replica; leave it out");
      if (AreApart(phase, llm))
        return refuse("phase ", std::string(PhaseName(phase.phase)),
                      " has none of the llm's ranks; encoders must share them");
    }
    return absl::OkStatus();
  }

  // A mesh as the job gives it, over `ranks`; none: over those from 0 on. `path`: of the phase.
  absl::StatusOr<Mesh> MeshOver(std::vector<uint32_t> ranks, const pb::Phase& phase,
                                const std::string& path) const {
    const bool own = phase.has_mesh();
    const pb::Mesh& in = own ? phase.mesh() : in_.topology().mesh();
    const std::string where = own ? path + ".mesh" : "topology.mesh";
    Mesh out;
    if (!in.order().empty()) {
      absl::StatusOr<Mesh::Order> order = ParseMeshOrder(in.order());
      if (!order.ok()) return Error(where + ".order", order.status().message());
      out.order = *order;
    }
    out.sizes = {std::max(1u, in.tensor()), std::max(1u, in.context()), in.data(),
                 std::max(1u, in.pipeline())};
    for (uint32_t size : out.sizes) {
      if (size > kMaxRank) return Error(where, "a size is above ", kMaxRank);
    }
    if (out.stages() > kMaxStages) return Error(where + ".pipeline", "must be at most ", kMaxStages);
    uint32_t& data = out.sizes[static_cast<size_t>(MeshAxis::kData)];
    const uint64_t members = out.members_per_replica();
    if (members > kMaxRank) return Error(where, "a replica of ", members, " ranks; at most ", kMaxRank);
    if (data == 0 && ranks.empty()) {
      return Error(where + ".data", "missing; give the number of replicas, or the ranks of the phase");
    }
    if (data == 0) data = std::max<uint32_t>(1, static_cast<uint32_t>(ranks.size() / members));
    if (out.num_members() > kMaxRank + uint64_t{1}) {
      return Error(where, out.num_members(), " ranks; at most ", kMaxRank + 1);
    }
    if (ranks.empty()) {
      ranks.resize(out.num_members());
      for (uint32_t rank = 0; rank < ranks.size(); ++rank) ranks[rank] = rank;
    }
    if (ranks.size() != out.num_members()) {
      return Error(path + ".ranks", ranks.size(), " ranks, but ", where, " has tensor ",
                   out.size(MeshAxis::kTensor), " x context ", out.size(MeshAxis::kContext), " x data ", data,
                   " x pipeline ", out.stages(), " = ", out.num_members(),
                   "; with a mesh, ranks lists every member of every replica");
    }
    out.ranks = std::move(ranks);
    return out;
  }

  absl::Status Ranks(const pb::Phase& in, const std::string& path, PhaseSpec& out) const {
    const bool has_mesh = in.has_mesh() || in_.topology().has_mesh();
    if (in.ranks().empty() && !has_mesh)
      return Error(path + ".ranks", "missing; a list of ranks looks like \"0-3,8\"");
    if (!in.ranks().empty()) {
      absl::StatusOr<std::vector<uint32_t>> ranks = ParseRanks(in.ranks());
      if (!ranks.ok()) return Error(path + ".ranks", ranks.status().message());
      out.ranks = *std::move(ranks);
    }
    if (!has_mesh) return absl::OkStatus();
    EVENKEEL_ASSIGN_OR_RETURN(Mesh mesh, MeshOver(std::move(out.ranks), in, path));
    out.ranks = mesh.Leaders();
    if (!mesh.is_data_alone()) out.mesh = std::move(mesh);  // else as if the ranks alone were given
    return absl::OkStatus();
  }

  absl::Status Phases() {
    std::set<std::string> seen;
    EVENKEEL_ASSIGN_OR_RETURN(
        const bool drop_in,
        Choose("balance", in_.balance(), Words<bool>{{"move_excess", false}, {"drop_in", true}}));
    if (in_.phases_size() > static_cast<int>(kMaxPhases)) {
      return Error("phases", in_.phases_size(), " phases; at most ", kMaxPhases, " are supported");
    }
    for (int i = 0; i < in_.phases_size(); ++i) {
      std::string path = absl::StrCat("phases[", i, "]");
      EVENKEEL_ASSIGN_OR_RETURN(PhaseSpec phase, OnePhase(in_.phases(i), path));
      if (drop_in) EVENKEEL_RETURN_IF_ERROR(DropIn(in_.phases(i), path, phase));
      if (!seen.insert(in_.phases(i).name()).second) {
        return Error(path + ".name", "two phases are named '", in_.phases(i).name(), "'");
      }
      job_.phases.push_back(std::move(phase));
    }
    if (!seen.contains(std::string(Phase::kLlm.name())))
      return Error("phases", "exactly one phase must be named llm; there is none");
    EVENKEEL_RETURN_IF_ERROR(Generators());
    if (drop_in) EVENKEEL_RETURN_IF_ERROR(DropInRanks());
    EVENKEEL_RETURN_IF_ERROR(RanksMeet(drop_in));
    NumberPhases();
    return absl::OkStatus();
  }

  // `balance: drop_in` sets what keeps items in the rank and microbatch of their sample, and refuses what
  // would move them. The llm's default algorithm places samples with all such phases considered.
  absl::Status DropIn(const pb::Phase& in, const std::string& path, PhaseSpec& out) const {
    const bool is_llm = out.phase == Phase::kLlm;
    const std::string_view algorithm = is_llm ? kDefaultAlgorithm : "none";
    const std::pair<const char*, bool> contradictions[] = {
        {".algorithm", !in.algorithm().empty() && in.algorithm() != algorithm},
        {".runs", in.runs() == "once_per_step"},
        {".tolerance", !is_llm && in.has_tolerance()},
        {".equal_counts", !is_llm && in.equal_counts()},
        {".node_wise", in.node_wise()},
    };
    for (const auto& [key, contradicts] : contradictions) {
      if (!contradicts) continue;
      return Error(path + key, "contradicts balance: drop_in, which ",
                   is_llm ? "places samples with all phases considered" : "keeps items with their samples",
                   "; remove one of the two");
    }
    if (is_llm) return absl::OkStatus();
    out.algorithm = algorithm;
    out.runs = Runs::kOncePerMicrobatch;
    if (!in.has_min_items())
      out.min_items = 1;  // models that encode in forward need the encoder on every rank
    return absl::OkStatus();
  }

  // Before the phases are numbered: they are in the order of the file. A target has one generator, whose ranks have all
  // of a replica's hidden states or none of them.
  absl::Status Generators() const {
    const PhaseSpec& llm = Llm();
    for (size_t i = 0; i < job_.phases.size(); ++i) {
      const PhaseSpec& spec = job_.phases[i];
      if (!spec.phase.is_generator()) continue;
      const std::string path = absl::StrCat("phases[", i, "]");
      for (size_t before = 0; before < i; ++before) {
        for (Medium medium : kItemMedia) {
          if (!spec.phase.generates(medium) || !job_.phases[before].phase.generates(medium)) continue;
          return Error(path + ".media", "'", std::string(job_.phases[before].phase.name()), "' generates ",
                       std::string(MediumName(medium)), " items already; a target has one generator");
        }
      }
      if (spec.mesh.stages() > 1) {
        return Error(path + ".mesh.pipeline", "must be 1, is ", spec.mesh.stages(),
                     "; a generator has no pipeline of its own: give it a mesh without stages");
      }
      if (llm.mesh.stages() == 1 && in_.topology().pipeline_stages() <= 1 && !in_.has_pipeline()) continue;
      if (spec.runs == Runs::kOncePerStep) {
        return Error(path + ".runs",
                     "must be once_per_microbatch with a pipeline of the llm, whose last stage has the ",
                     "hidden states of one microbatch after the other");
      }
      if (!AreApart(spec, llm)) {
        return Error(path + ".ranks",
                     "has ranks of the llm, whose pipeline has its hidden states on the last ",
                     "stage alone; give the generator ranks that the llm does not have");
      }
    }
    return absl::OkStatus();
  }

  // Before the phases are numbered: they are in the order of the file.
  absl::Status DropInRanks() const {
    const PhaseSpec& llm = Llm();
    for (size_t i = 0; i < job_.phases.size(); ++i) {
      if (job_.phases[i].ranks == llm.ranks && job_.phases[i].mesh == llm.mesh) continue;
      return Error(
          absl::StrCat("phases[", i, "].ranks"),
          "differ from the llm's; with balance: drop_in every phase runs on the llm's ranks, in its order");
    }
    return absl::OkStatus();
  }

  // Costs of different phases are added only where each phase's is given: the default, the length, is no common unit.
  absl::Status RanksMeet(bool drop_in) {
    constexpr const char* kKey = "ranks_meet";
    EVENKEEL_ASSIGN_OR_RETURN(
        job_.phases_add_up,
        Choose(kKey, in_.ranks_meet(), Words<bool>{{"every_phase", false}, {"end_of_step", true}}));
    if (!job_.phases_add_up) return absl::OkStatus();
    if (!drop_in || job_.pipeline_stages > 1 || Llm().mesh.stages() > 1) {
      return Error(kKey,
                   "end_of_step needs balance: drop_in and no pipeline, since ranks that exchange rows or ",
                   "activations meet before the end of a step; leave it out, or set balance: drop_in");
    }
    for (int i = 0; i < in_.phases_size(); ++i) {
      const std::string path = absl::StrCat("phases[", i, "]");
      if (!in_.phases(i).has_cost()) {
        return Error(path + ".cost",
                     "missing; ranks_meet: end_of_step adds the costs of all phases, so each needs ",
                     "one in the same unit, such as seconds or FLOPs");
      }
      if (job_.phases[static_cast<size_t>(i)].batching == Batching::kPadded ||
          job_.phases[static_cast<size_t>(i)].padded_attention) {
        return Error(path + ".batching", "must be packed with ranks_meet: end_of_step");
      }
    }
    return absl::OkStatus();
  }

  // The llm first, then what encodes images or videos, then what encodes audio alone, then generators, else in the file's
  // order: the order of two lists that differ in this alone, and the layout's name, are the same.
  void NumberPhases() {
    const auto rank = [](const Phase& phase) {
      if (phase == Phase::kLlm) return 0;
      if (phase.is_generator()) return 3;
      return phase.encodes(Medium::kImage) || phase.encodes(Medium::kVideo) ? 1 : 2;
    };
    std::stable_sort(job_.phases.begin(), job_.phases.end(),
                     [&](const PhaseSpec& a, const PhaseSpec& b) { return rank(a.phase) < rank(b.phase); });
    for (size_t i = 0; i < job_.phases.size(); ++i) {
      job_.phases[i].phase = job_.phases[i].phase.Numbered(static_cast<uint8_t>(i));
    }
  }

  absl::StatusOr<Phase> NamedPhase(const pb::Phase& in, const std::string& path) const {
    const std::string& name = in.name();
    if (name.empty()) return Error(path + ".name", "missing; llm, vision, audio, or a name of your own");
    if (!IsPhaseName(name)) {
      return Error(path + ".name", "'", ShortText(name), "' must be a lower-case letter, then at most ",
                   Phase::kMaxName - 1, " lower-case letters, digits, '_' or '-'");
    }
    const std::optional<Phase> implied = PhaseOfImpliedMedia(name);
    EVENKEEL_ASSIGN_OR_RETURN(
        const bool generates,
        Choose(path + ".kind", in.kind(), Words<bool>{{"encoder", false}, {"generator", true}}));
    if (name == Phase::kLlm.name() && !in.kind().empty()) {
      return Error(path + ".kind",
                   "the llm is neither an encoder nor a generator; leave it out, or give the phase ",
                   "another name");
    }
    if (in.media().empty()) {
      if (implied.has_value() && !generates) return *implied;
      return Error(path + ".media", "missing; phase '", name, "' ", generates ? "generates" : "encodes",
                   " some of image, video, audio: write media: [image]");
    }
    if (name == Phase::kLlm.name()) return Error(path + ".media", "belongs to encoder phases");
    Phase phase(name);
    if (generates) phase.BecomeGenerator();
    for (int i = 0; i < in.media_size(); ++i) {
      const std::string at = absl::StrCat(path, ".media[", i, "]");
      const Words<Medium> media = {
          {"image", Medium::kImage}, {"video", Medium::kVideo}, {"audio", Medium::kAudio}};
      if (in.media(i).empty()) return Error(at, "an empty word; one of image, video, audio");
      EVENKEEL_ASSIGN_OR_RETURN(const Medium medium, Choose(at, in.media(i), media));
      if (phase.takes(medium)) return Error(at, in.media(i), " is listed twice");
      phase.Add(medium);
    }
    return phase;
  }

  absl::StatusOr<PhaseSpec> OnePhase(const pb::Phase& in, const std::string& path) const {
    PhaseSpec out;
    EVENKEEL_ASSIGN_OR_RETURN(out.phase, NamedPhase(in, path));
    EVENKEEL_RETURN_IF_ERROR(Ranks(in, path, out));
    EVENKEEL_ASSIGN_OR_RETURN(out.cost, CostOf(in.cost(), path + ".cost"));
    const Words<std::pair<Batching, bool>> batchings = {{"packed", {Batching::kPacked, false}},
                                                        {"padded", {Batching::kPadded, false}},
                                                        {"padded_attention", {Batching::kPacked, true}}};
    EVENKEEL_ASSIGN_OR_RETURN(std::tie(out.batching, out.padded_attention),
                              Choose(path + ".batching", in.batching(), batchings));
    if (out.phase == Phase::kLlm && !in.runs().empty())
      return Error(path + ".runs", "belongs to encoder phases");
    if (out.phase == Phase::kLlm && !in.processor().empty())
      return Error(path + ".processor", "belongs to encoder phases; the llm's is processor.tokenizer");
    const Words<Runs> runs = {{"once_per_step", Runs::kOncePerStep},
                              {"once_per_microbatch", Runs::kOncePerMicrobatch}};
    EVENKEEL_ASSIGN_OR_RETURN(out.runs, Choose(path + ".runs", in.runs(), runs));
    EVENKEEL_RETURN_IF_ERROR(Algorithm(in, path, out));
    out.capacity = in.capacity();
    if (out.capacity != 0 && out.phase == Phase::kLlm)
      return Error(path + ".capacity", "belongs to encoder phases; the llm's is microbatch.capacity_tokens");
    if (out.capacity > kMaxTokens)
      return Error(path + ".capacity", "must be at most ", kMaxTokens, ", is ", out.capacity);
    out.min_items = in.min_items();
    if (out.min_items > 1024) return Error(path + ".min_items", "must be at most 1024, is ", out.min_items);
    return out;
  }

  absl::Status Algorithm(const pb::Phase& in, const std::string& path, PhaseSpec& out) const {
    if (!in.algorithm().empty()) out.algorithm = in.algorithm();  // checked by reorder/
    out.equal_counts = in.equal_counts();
    if (out.equal_counts && (out.batching == Batching::kPadded || out.padded_attention)) {
      return Error(path + ".equal_counts", "belongs to batching: packed");
    }
    out.node_wise = in.node_wise();
    if (out.node_wise && out.phase == Phase::kLlm)
      return Error(path + ".node_wise", "belongs to encoder phases");
    if (in.has_tolerance()) {
      if (!(in.tolerance() >= 0 && in.tolerance() < 1))
        return Error(path + ".tolerance", "must be in [0, 1)");
      out.tolerance = in.tolerance();
    }
    return absl::OkStatus();
  }

  absl::StatusOr<Cost> CostOf(const pb::Cost& in, const std::string& path) const {
    bool unset = !in.has_constant() && !in.has_linear() && !in.has_quadratic() && !in.has_mask_factor();
    if (unset) return Cost{};
    Cost out{in.constant(), in.linear(), in.quadratic(), in.mask_factor()};
    if (out.constant < 0 || out.linear < 0 || out.quadratic < 0) {
      return Error(path, "constant, linear and quadratic must not be negative");
    }
    if (out.mask_factor <= -1) return Error(path + ".mask_factor", "must be above -1");
    if (out.constant + out.linear + out.quadratic == 0) {
      return Error(path, "every length costs 0; give one of constant, linear, quadratic");
    }
    return out;
  }

  absl::Status Processor() {
    const pb::Processor& in = in_.processor();
    ProcessorSpec& out = job_.processor;
    EVENKEEL_RETURN_IF_ERROR(EncoderFolders(in));
    EVENKEEL_RETURN_IF_ERROR(Folder("processor.tokenizer", in.tokenizer(), &out.tokenizer));
    out.chat = in.chat().empty() ? std::string(kTemplateChat) : in.chat();
    EVENKEEL_RETURN_IF_ERROR(TemplateWords(in));
    EVENKEEL_RETURN_IF_ERROR(
        ChooseWord("processor.truncate", in.truncate(), {"none", "text"}, &out.truncate));
    EVENKEEL_RETURN_IF_ERROR(Pictures(in));
    const Words<Wire> wires = {{"u8", Wire::kU8}, {"bf16", Wire::kBf16}, {"f32", Wire::kF32}};
    EVENKEEL_ASSIGN_OR_RETURN(out.wire, Choose("wire", in_.wire(), wires));
    EVENKEEL_RETURN_IF_ERROR(ThroughPython(in));
    out.frame_rule = in.frame_rule();
    if (!in.frames().empty()) out.frames = in.frames();
    const Words<bool> rotations = {{"apply", true}, {"ignore", false}};
    EVENKEEL_ASSIGN_OR_RETURN(out.apply_video_rotation,
                              Choose("processor.video_rotation", in.video_rotation(), rotations));
    out.use_audio_in_video = in.use_audio_in_video();
    const Words<Isolation> isolations = {
        {"ffmpeg", Isolation::kFfmpeg}, {"all", Isolation::kAll}, {"off", Isolation::kOff}};
    EVENKEEL_ASSIGN_OR_RETURN(job_.isolation, Choose("isolation", in_.isolation(), isolations));
    out.system = in.system();
    out.added_tokens.assign(in.added_tokens().begin(), in.added_tokens().end());
    for (int i = 0; i < in.added_tokens_size(); ++i) {
      if (in.added_tokens(i).empty())
        return Error(absl::StrCat("processor.added_tokens[", i, "]"), "an empty token");
    }
    return Frames(in);
  }

  // Options of native processors mean nothing to Python code, which has the checkpoint's own.
  absl::Status ThroughPython(const pb::Processor& in) {
    constexpr std::string_view kPath = "processor.python";
    if (in.python().empty()) return absl::OkStatus();
    ProcessorSpec& out = job_.processor;
    out.python = in.python();
    const size_t colon = out.python.find(':');
    const bool is_class = colon != std::string::npos && colon != 0 && colon + 1 < out.python.size() &&
                          out.python.find(':', colon + 1) == std::string::npos;
    if (out.python != "transformers" && !is_class) {
      return Error(std::string(kPath), "'", ShortText(out.python),
                   "' is neither transformers nor package.module:Class");
    }
    for (const EncoderSpec& encoder : out.encoders) {
      if (encoder.phase.is_generator()) {
        return Error(std::string(kPath), "makes items of encoders alone, and '",
                     std::string(encoder.phase.name()), "' is a generator; leave one of the two out");
      }
      if (encoder.folder == out.encoders.front().folder) continue;
      return Error(encoder.key, "is another folder than that of ", out.encoders.front().key,
                   "; processor.python loads one processor for all phases");
    }
    const std::pair<std::string_view, bool> native[] = {
        {"processor.use_audio_in_video", in.use_audio_in_video()},
        {"processor.like", !in.like().empty()},
        {"processor.resampler", !in.resampler().empty()},
        {"processor.alpha", !in.alpha().empty()},
        {"processor.exif_orientation", !in.exif_orientation().empty()},
        {"processor.sixteen_bit", !in.sixteen_bit().empty()},
        {"processor.cmyk", !in.cmyk().empty()},
        {"processor.palette", !in.palette().empty()},
        {"processor.approximate", in.approximate()},
        {"processor.min_pixels", in.min_pixels() != 0},
        {"processor.max_pixels", in.max_pixels() != 0},
        {"processor.frame_rule", !in.frame_rule().empty()},
        {"wire", !in_.wire().empty() && out.wire != Wire::kF32}};
    for (const auto& [key, given] : native) {
      if (!given) continue;
      return Error(std::string(key), "belongs to native processors; with processor.python ",
                   "items are sent as the Python code makes them: remove the line");
    }
    out.wire = Wire::kF32;
    out.like.clear();
    return absl::OkStatus();
  }

  // What the checkpoint's template is asked for.
  absl::Status TemplateWords(const pb::Processor& in) {
    ProcessorSpec& out = job_.processor;
    const bool is_template = out.chat == kTemplateChat;
    const Words<std::string> words = {
        {"assistant", ""}, {"last_assistant", "last_assistant"}, {"all", "all"}, {"data", "data"}};
    EVENKEEL_ASSIGN_OR_RETURN(out.labels, Choose("processor.labels", in.labels(), words));
    if (!out.labels.empty() && !is_template) return Error("processor.labels", "needs chat: template");
    EVENKEEL_ASSIGN_OR_RETURN(out.loss_weights, Choose("processor.loss_weights", in.loss_weights(),
                                                       Words<bool>{{"none", false}, {"data", true}}));
    if (out.loss_weights && out.labels != "data")
      return Error("processor.loss_weights", "needs labels: data, which reads the turns' weights");
    if (in.date().empty()) return absl::OkStatus();
    if (!is_template) return Error("processor.date", "needs chat: template");
    if (in.date().find_first_not_of("0123456789-") != std::string::npos)
      return Error("processor.date", absl::StrCat("'", in.date(), "' is not a day of the form YYYY-MM-DD"));
    out.date = in.date();
    return absl::OkStatus();
  }

  absl::Status Pictures(const pb::Processor& in) {
    ProcessorSpec& out = job_.processor;
    out.resampler = in.resampler();
    out.like = in.like();
    if (!out.like.empty() && !out.resampler.empty()) {
      return Error("processor.like",
                   "chooses the resampler, which processor.resampler does too; remove one of them");
    }
    if (out.like.empty() && out.resampler.empty()) out.like = kFollowedRelease;
    // Words, and of alpha also a colour, that preprocess::CheckJob looks up.
    EVENKEEL_ASSIGN_OR_RETURN(out.exif_orientation, ExifOrientation(in));
    out.sixteen_bit = in.sixteen_bit();
    out.cmyk = in.cmyk();
    out.palette = in.palette();
    out.alpha = in.alpha();
    out.approximate = in.approximate();
    return absl::OkStatus();
  }

  // Of Parquet, pictures are upright: `datasets` turns them when it decodes them.
  absl::StatusOr<std::string> ExifOrientation(const pb::Processor& in) const {
    const auto is_parquet = [](const DatasetSpec& dataset) { return dataset.format == DataFormat::kParquet; };
    const auto num_parquet = std::count_if(job_.datasets.begin(), job_.datasets.end(), is_parquet);
    if (!in.exif_orientation().empty() || num_parquet == 0) return in.exif_orientation();
    if (num_parquet == static_cast<int64_t>(job_.datasets.size())) return std::string("apply");
    return Error(
        "processor.exif_orientation",
        "missing: pictures of Parquet are turned upright by default, those of other formats are not, "
        "and the job has both; give apply or ignore");
  }

  // Of every encoder phase: its own, for vision and audio the key of their name, else processor.folder.
  absl::Status EncoderFolders(const pb::Processor& in) {
    const Phase vision("vision"), audio("audio");
    const auto keyed = {std::pair{vision, in.vision()}, std::pair{audio, in.audio()}};
    for (const auto& [phase, folder] : keyed) {
      if (folder.empty() || job_.phase(phase) != nullptr) continue;
      return Error(absl::StrCat("processor.", std::string(phase.name())),
                   "the job has no phase that uses it");
    }
    for (const PhaseSpec& spec : job_.phases) {
      if (spec.phase == Phase::kLlm) continue;
      EncoderSpec& encoder = job_.processor.encoders.emplace_back(EncoderSpec{.phase = spec.phase});
      EVENKEEL_ASSIGN_OR_RETURN(std::string given, OwnFolder(spec.phase, &encoder.key));
      for (const auto& [phase, folder] : keyed) {
        if (phase != spec.phase) continue;
        const std::string key = absl::StrCat("processor.", std::string(phase.name()));
        if (!given.empty() && !folder.empty()) {
          return Error(encoder.key, "the folder is also given as ", key, "; remove one of them");
        }
        if (given.empty()) encoder.key = key, given = folder;
      }
      EVENKEEL_RETURN_IF_ERROR(Folder(encoder.key, given, &encoder.folder));
      if (spec.phase == vision) job_.processor.vision = encoder.folder;
      if (spec.phase == audio) job_.processor.audio = encoder.folder;
    }
    return absl::OkStatus();
  }

  // `processor` of the phase, and its key in the file, whose order is not that of the job's phases.
  absl::StatusOr<std::string> OwnFolder(const Phase& phase, std::string* key) const {
    for (int i = 0; i < in_.phases_size(); ++i) {
      if (in_.phases(i).name() != phase.name()) continue;
      *key = absl::StrCat("phases[", i, "].processor");
      return in_.phases(i).processor();
    }
    return absl::InternalError(absl::StrCat("phase ", std::string(phase.name()), " is not in the file"));
  }

  // The folder of one configuration: given, or processor.folder.
  absl::Status Folder(const std::string& path, const std::string& given, std::string* out) const {
    const std::string& folder = given.empty() ? in_.processor().folder() : given;
    if (folder.empty()) return Error(path, "missing; give it, or processor.folder");
    *out = Relative(folder);
    return absl::OkStatus();
  }

  absl::Status Frames(const pb::Processor& in) {
    ProcessorSpec& out = job_.processor;
    if (in.fps() < 0) return Error("processor.fps", "must not be negative");
    out.min_pixels = Given(in.min_pixels());
    out.max_pixels = Given(in.max_pixels());
    out.fps = Given(in.fps());
    out.min_frames = Given(in.min_frames());
    out.max_frames = Given(in.max_frames());
    out.video_min_pixels = Given(in.video_min_pixels());
    out.video_max_pixels = Given(in.video_max_pixels());
    EVENKEEL_RETURN_IF_ERROR(Ordered("", "pixels", out.min_pixels, out.max_pixels));
    EVENKEEL_RETURN_IF_ERROR(Ordered("", "frames", out.min_frames, out.max_frames));
    return Ordered<uint64_t>("video_", "pixels", out.video_min_pixels.value_or(kVideoDefaults.min_pixels),
                             out.video_max_pixels.value_or(kVideoDefaults.max_pixels));
  }

  // As everywhere in a job, 0 is a key that is not given.
  template <typename T>
  static std::optional<T> Given(T value) {
    return value == 0 ? std::nullopt : std::optional<T>(value);
  }

  // Bounds of which one is not given are compared where the other is known: with the checkpoint's.
  template <typename T>
  absl::Status Ordered(const char* prefix, const char* what, std::optional<T> min,
                       std::optional<T> max) const {
    if (!min || !max || *min <= *max) return absl::OkStatus();
    return Error(absl::StrCat("processor.", prefix, "min_", what), *min, " is above ", prefix, "max_", what,
                 ", ", *max);
  }

  // A key of `processor` that is a positive number where it is given, and absent where it is not.
  template <typename T>
  absl::Status Given(const char* key, bool given, T value, std::optional<T>* out) const {
    if (!given) return absl::OkStatus();
    if (!(value > 0)) {
      return Error(absl::StrCat("processor.", key), value,
                   " is not positive; leave the key out to use the checkpoint's value");
    }
    *out = value;
    return absl::OkStatus();
  }

  absl::Status Microbatch() {
    const pb::Microbatch& in = in_.microbatch();
    MicrobatchSpec& out = job_.microbatch;
    const uint64_t shards = ShardsOfDocument();
    if (shards > kMaxAlign) {
      return Error(
          "topology.groups", "documents would have to be multiples of ", shards,
          " tokens, so that groups of all sizes (", absl::StrJoin(job_.groups.sizes, ", "),
          ") can cut them; set sizes: powers_of_two, a smaller max_size or pool, or sequences: whole");
    }
    out = {in.capacity_tokens(), in.pad_to(), in.align() == 0 ? static_cast<uint32_t>(shards) : in.align(),
           in.count_multiple()};
    if (out.align % shards != 0) {
      return Error("microbatch.align", out.align, " is not a multiple of ", shards,
                   ", into which topology.sequences cuts every document");
    }
    if (out.capacity_tokens > kMaxTokens || out.pad_to > kMaxTokens) {
      return Error("microbatch", "capacity_tokens and pad_to must be at most ", kMaxTokens);
    }
    if (out.align > kMaxAlign)
      return Error("microbatch.align", "must be at most ", kMaxAlign, ", is ", out.align);
    if (job_.groups.given && job_.groups.LargestTokens() < out.align) {
      return Error("topology.groups.tokens_per_rank", "the largest group, of ", job_.groups.max_size,
                   " ranks, holds ", job_.groups.LargestTokens(), " tokens, fewer than microbatch.align, ",
                   out.align);
    }
    if (out.pad_to != 0 && out.pad_to % out.align != 0) {
      return Error("microbatch.pad_to", out.pad_to, " is not a multiple of align, ", out.align);
    }
    if (out.pad_to != 0 && out.pad_to < out.capacity_tokens) {
      return Error("microbatch.pad_to", out.pad_to, " is below capacity_tokens, ", out.capacity_tokens);
    }
    if (out.capacity_tokens == 0) out.capacity_tokens = out.pad_to;
    if (out.capacity_tokens != 0 && out.capacity_tokens < out.align) {
      return Error("microbatch.capacity_tokens", out.capacity_tokens, " is below align, ", out.align);
    }
    return CountMultiple();
  }

  // Into how many runs of equal length every document is cut for its context group; 1 where it is delivered whole. With
  // dynamic groups a multiple of that for every size; above kMaxAlign: too many.
  uint64_t ShardsOfDocument() const {
    if (job_.sequences == Sequences::kWhole) return 1;
    const uint64_t chunks = job_.sequences == Sequences::kZigzag ? 2 : 1;
    if (!job_.groups.given) return Llm().mesh.size(MeshAxis::kContext) * chunks;
    uint64_t multiple = 1;
    for (uint32_t size : job_.groups.sizes) {
      if (multiple <= kMaxAlign) multiple = std::lcm(multiple, uint64_t{size});
    }
    return multiple * chunks;
  }

  absl::Status CountMultiple() {
    uint32_t& multiple = job_.microbatch.count_multiple;
    const uint32_t stages = job_.InterleavedStages();
    if (multiple == 0) multiple = stages;
    if (multiple > kMaxStages) return Error("microbatch.count_multiple", "must be at most ", kMaxStages);
    if (multiple % stages != 0) {
      return Error("microbatch.count_multiple", multiple, " is not a multiple of ",
                   job_.pipeline.stages > 0 ? "pipeline.stages, " : "pipeline_stages, ", stages,
                   ", which an interleaved schedule needs");
    }
    return absl::OkStatus();
  }

  template <typename Value>
  absl::Status Limit(const char* name, Value given, uint64_t highest, Value* out) const {
    if (given > highest)
      return Error(absl::StrCat("limits.", name), "must be at most ", highest, ", is ", given);
    if (given != 0) *out = given;
    return absl::OkStatus();
  }

  absl::Status AllLimits() {
    const pb::Limits& in = in_.limits();
    Limits& out = job_.limits;
    constexpr uint64_t kBytes = 1ull << 40;
    // Highest values: what later arithmetic in 32 bits, or a decoder's own fields, can hold.
    EVENKEEL_RETURN_IF_ERROR(Limit("max_image_bytes", in.max_image_bytes(), kBytes, &out.max_image_bytes));
    EVENKEEL_RETURN_IF_ERROR(Limit("max_audio_bytes", in.max_audio_bytes(), kBytes, &out.max_audio_bytes));
    EVENKEEL_RETURN_IF_ERROR(Limit("max_video_bytes", in.max_video_bytes(), kBytes, &out.max_video_bytes));
    EVENKEEL_RETURN_IF_ERROR(Limit("max_text_bytes", in.max_text_bytes(), 1ull << 30, &out.max_text_bytes));
    EVENKEEL_RETURN_IF_ERROR(
        Limit("max_image_pixels", in.max_image_pixels(), 1ull << 30, &out.max_image_pixels));
    EVENKEEL_RETURN_IF_ERROR(Limit("max_image_side", in.max_image_side(), 65535, &out.max_image_side));
    EVENKEEL_RETURN_IF_ERROR(Limit("max_jpeg_scans", in.max_jpeg_scans(), 65535, &out.max_jpeg_scans));
    EVENKEEL_RETURN_IF_ERROR(
        Limit("max_decode_ratio", in.max_decode_ratio(), 1ull << 20, &out.max_decode_ratio));
    EVENKEEL_RETURN_IF_ERROR(
        Limit("max_video_pixels", in.max_video_pixels(), 1ull << 30, &out.max_video_pixels));
    EVENKEEL_RETURN_IF_ERROR(
        Limit("max_video_frames", in.max_video_frames(), 1ull << 31, &out.max_video_frames));
    EVENKEEL_RETURN_IF_ERROR(Limit("max_streams", in.max_streams(), 65535, &out.max_streams));
    EVENKEEL_RETURN_IF_ERROR(
        Limit("max_audio_seconds", in.max_audio_seconds(), 1000000, &out.max_audio_seconds));
    EVENKEEL_RETURN_IF_ERROR(Limit("max_llm_length", in.max_llm_length(), 1ull << 30, &out.max_llm_length));
    EVENKEEL_RETURN_IF_ERROR(Limit("max_json_depth", in.max_json_depth(), 1000, &out.max_json_depth));
    EVENKEEL_RETURN_IF_ERROR(Limit("max_items", in.max_items(), 65535, &out.max_items));
    EVENKEEL_RETURN_IF_ERROR(Limit("max_jpeg_coefficient_bytes", in.max_jpeg_coefficient_bytes(), kBytes,
                                   &out.max_jpeg_coefficient_bytes));
    // Every sample of a part takes as much.
    EVENKEEL_RETURN_IF_ERROR(
        Limit("max_column_bytes", in.max_column_bytes(), 64 << 10, &out.max_column_bytes));
    ClipLength();
    return absl::OkStatus();
  }

  // Lowers max_llm_length to what one microbatch and one step can hold, so that the index excludes longer
  // samples and no step fails on them.
  void ClipLength() {
    uint64_t& longest = job_.limits.max_llm_length;
    uint64_t align = job_.microbatch.align;
    if (job_.microbatch.capacity_tokens != 0) {
      longest = std::min(longest, job_.microbatch.capacity_tokens / align * align);
    }
    if (job_.groups.given) longest = std::min(longest, job_.groups.LargestTokens() / align * align);
    if (job_.batch.llm_tokens != 0) longest = std::min(longest, job_.batch.llm_tokens);
    const uint64_t of_bin = job_.batch.pack.CapacityOf(Phase::kLlm.name());
    if (of_bin != 0) longest = std::min(longest, of_bin);
  }

  absl::Status Exclude() {
    std::set<std::string> datasets;
    for (const DatasetSpec& dataset : job_.datasets) datasets.insert(dataset.name);
    for (int i = 0; i < in_.exclude_size(); ++i) {
      const std::string& line = in_.exclude(i);
      std::vector<std::string> parts = absl::StrSplit(line, absl::MaxSplits('/', 2));
      std::string path = absl::StrCat("exclude[", i, "]");
      if (parts.size() != 3 || parts[1].empty() || parts[2].empty()) {
        return Error(path, "'", ShortText(line), "' is not of the form dataset/shard-file-name/sample-key");
      }
      if (!datasets.contains(parts[0])) {
        return Error(path, "there is no dataset '", ShortText(parts[0]), "'; nearest is '",
                     Nearest(parts[0], {datasets.begin(), datasets.end()}), "'");
      }
      job_.exclude.push_back(line);
    }
    // Order and repetition do not matter, so they must not change the digest.
    std::sort(job_.exclude.begin(), job_.exclude.end());
    job_.exclude.erase(std::unique(job_.exclude.begin(), job_.exclude.end()), job_.exclude.end());
    return absl::OkStatus();
  }

  absl::Status Columns() {
    if (in_.columns_size() > kMaxColumns) {
      return Error("columns", "at most ", kMaxColumns, " are delivered, ", in_.columns_size(), " are listed");
    }
    for (int i = 0; i < in_.columns_size(); ++i) {
      const std::string& name = in_.columns(i);
      const std::string path = absl::StrCat("columns[", i, "]");
      if (name.empty() || name.size() > kMaxColumnName) {
        return Error(path, "a name has 1 to ", kMaxColumnName, " bytes, this one ", name.size());
      }
      if (std::find(job_.columns.begin(), job_.columns.end(), name) != job_.columns.end()) {
        return Error(path, "'", ShortText(name), "' is listed twice");
      }
      job_.columns.push_back(name);
    }
    return absl::OkStatus();
  }

  const pb::JobFile& in_;
  const SourceLines& lines_;
  const std::filesystem::path folder_;
  Job job_;
};

}  // namespace

absl::StatusOr<Job> ResolveJob(const LoadedJobFile& file) { return Resolver(file).Resolve(); }

std::vector<std::string> LimitNames() {
  std::vector<std::string> names;
  const google::protobuf::Descriptor& limits = *pb::Limits::descriptor();
  for (int i = 0; i < limits.field_count(); ++i) names.push_back(limits.field(i)->name());
  return names;
}

}  // namespace evenkeel
