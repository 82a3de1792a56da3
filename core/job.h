// The job: one file that decides what a stream contains. Loaded, checked and with every default filled in.
//
// Example:
//     absl::StatusOr<Job> job = LoadJob("job.yaml");
//     // "job.yaml:7: unknown key 'datset' in job; nearest is 'datasets'"
//     if (!job.ok()) return job.status();
//     uint32_t node = job->NodeOf(job->FindPhase("vision")->ranks[3]);
//
// Thread safety: a plain value; safe to read from many threads.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "core/context_groups.h"
#include "core/digest.h"
#include "core/mesh.h"
#include "core/sample_selection.h"
#include "core/words.h"

namespace evenkeel {

// Rises only when golden values change. Covers decoders, tokenizer, sampler, planners' bytes.
inline constexpr uint32_t kStreamVersion = 4;

enum class Batching : uint8_t { kPacked, kPadded };
enum class Runs : uint8_t { kOncePerStep, kOncePerMicrobatch };
enum class Shuffle : uint8_t { kNone, kFull, kBlocked };
enum class Wire : uint8_t { kU8, kBf16, kF32 };
// What a member of a context group takes of the sequences of its microbatches: all, or its shard of every document.
enum class Sequences : uint8_t { kWhole, kZigzag, kContiguous };
std::string_view SequencesName(Sequences sequences);  // "whole", "zigzag", "contiguous"
// Which media are decoded in confined processes: none; audio and video; all.
enum class Isolation : uint8_t { kOff, kFfmpeg, kAll };

// cost of a unit of length n: (constant + linear*n + quadratic*n*n) * (1 + mask_factor)
struct Cost {
  double constant = 0;
  double linear = 1;
  double quadratic = 0;
  double mask_factor = 0;

  double operator()(double length) const {
    return (constant + linear * length + quadratic * length * length) * (1 + mask_factor);
  }
};

// What the files of a dataset are: tar archives, JSON with media as files, Parquet tables, lines of text, MDS shards, or
// tokens as Megatron-LM stores them.
enum class DataFormat : uint8_t { kWebDataset, kJson, kParquet, kText, kMds, kMegatron };
std::string_view FormatName(DataFormat format);

// Names of a row's members, where the job gives other ones than the defaults. All are empty by default.
struct FieldNames {
  std::string messages;
  std::string text;
  std::string prompt;  // with `answer`, or of a preference pair
  std::string answer;
  std::string chosen;  // with `rejected`
  std::string rejected;
  std::string image;
  std::string audio;
  std::string video;

  bool operator==(const FieldNames&) const = default;
};

// How addresses that begin with `url` are reached. What is empty or false is left to the environment.
struct StoreSpec {
  std::string url;
  std::string endpoint;  // http(s)://host[:port]
  std::string region;
  bool virtual_host = false;  // of S3: the bucket is part of the host's name
  bool anonymous = false;
  bool allow_http = false;      // credentials may be sent without TLS
  std::string ca_file;          // PEM
  double timeout_seconds = 15;  // without a byte
  uint32_t retries = 8;
};

// A weight that holds from a draw of the stream on.
struct WeightChange {
  uint64_t from_draw = 0;
  double weight = 0;
};

struct DatasetSpec {
  std::string name;
  // Paths, absolute or relative to the working directory, and addresses (core/address.h); ranges expanded, in order.
  std::vector<std::string> shards;
  double weight = 1;     // from the first draw on
  bool repeats = false;  // `weight` is the job's `repeat`: it counts times the samples that are drawn
  std::vector<WeightChange> changes;  // of the weight, draws ascending and above 0
  double max_epochs = 0;              // epochs after which it is drawn no more; 0: no end
  DataFormat format = DataFormat::kWebDataset;
  std::string media;  // of kJson, kParquet and kMds: the folder that media are in; empty: that of the shard
  FieldNames fields;  // of kJson, kParquet and kMds
  std::vector<Condition> where;  // all of which a sample must meet; in the order of SampleFact

  double WeightAt(uint64_t draw) const;
};

// What videos are read with where neither the job nor the checkpoint gives a value. The numbers are
// qwen-vl-utils'.
struct VideoDefaults {
  double fps = 2;
  uint32_t min_frames = 4;
  uint32_t max_frames = 768;
  uint64_t min_pixels = 128 * 28 * 28;
  uint64_t max_pixels = 768 * 28 * 28;
};
inline constexpr VideoDefaults kVideoDefaults;

// Its AutoProcessor chooses image processors where the job gives neither `like` nor `resampler`.
inline constexpr std::string_view kFollowedRelease = "transformers-5.23";

// The processor of one encoder phase.
struct EncoderSpec {
  Phase phase;         // with the media that it encodes
  std::string folder;  // of its configuration
  std::string key;     // of the job that gives the folder; for messages
};

// An optional is empty where the job does not give the key. A key that is given counts, also where its value
// is the default: a family uses the job's value, else the checkpoint's, else the default.
struct ProcessorSpec {
  std::string vision;  // where `encoders` is empty: the folder of a phase that encodes images and videos,
  std::string audio;   // and that of one that encodes audio; empty: none
  std::string tokenizer;
  std::string chat = "chatml";
  std::string labels;         // of `template`: last_assistant, all or data; empty: assistants, the default
  bool loss_weights = false;  // with labels `data`: turns have weights of their loss
  std::string date;           // of `template`: YYYY-MM-DD; empty: the job gives none
  std::string system;
  std::string truncate = "none";
  std::vector<std::string> added_tokens;
  std::string like;       // the release whose choice of image processors counts; empty: `resampler` decides
  std::string resampler;  // empty: `like` decides; both empty: the followed release does
  std::string alpha;      // this and the next four: empty where the job leaves it to the family
  std::string exif_orientation;
  std::string sixteen_bit;
  std::string cmyk;
  std::string palette;
  bool approximate = false;
  std::optional<uint64_t> min_pixels;
  std::optional<uint64_t> max_pixels;
  std::optional<double> fps;  // the next three: of the chosen frames of a video
  std::optional<uint32_t> min_frames;
  std::optional<uint32_t> max_frames;
  std::optional<uint64_t> video_min_pixels;  // of one frame
  std::optional<uint64_t> video_max_pixels;
  std::string frame_rule;             // empty: the family's usual one
  std::string frames = "torchcodec";  // whose frames videos have: torchcodec, pyav, decord or accurate
  bool apply_video_rotation = true;
  bool use_audio_in_video = false;  // the audio of a video is an item, too: SampleItem::of_video
  Wire wire = Wire::kU8;
  // "transformers" or "package.module:Class": Python processes make items and lengths; empty: native code does.
  std::string python;
  std::vector<EncoderSpec> encoders;  // in the order of the job's phases

  // `encoders`, or what `vision` and `audio` stand for.
  std::vector<EncoderSpec> Encoders() const;
};

// What a bin holds of a phase at most, summed over its samples.
struct BinCapacity {
  std::string phase;    // its name
  uint64_t length = 0;  // llm tokens before alignment; of an encoder the lengths of its cost
};

// A step is a number of bins, each of which is one microbatch of one llm rank.
struct PackSpec {
  uint32_t bins = 0;  // of a step; 0: the job does not pack
  std::string algorithm = "even_fill";
  std::vector<BinCapacity> capacities =
      {};  // ascending by name; of the llm, and of others where the job gives it

  uint64_t CapacityOf(std::string_view phase) const;  // 0: it has none
};

// A step is a number of chunks, into which the concatenated texts are cut. Each is one microbatch of one llm rank.
struct ChunkSpec {
  uint64_t length = 0;  // tokens
  uint32_t count = 0;   // of a step; 0: the job does not cut chunks
};

struct BatchSpec {
  uint64_t samples = 0;  // exactly one of samples, llm_tokens, pack.bins and chunk.count is not 0
  uint64_t llm_tokens = 0;
  uint64_t window_samples = 4096;
  PackSpec pack = {};
  ChunkSpec chunk = {};
};

struct OrderSpec {
  Shuffle shuffle = Shuffle::kFull;
  uint64_t block_samples = 1024;
  uint64_t window_blocks = 64;
  // Samples heavier than this many mean ones are put together within windows; 0: they stay where they are drawn.
  double heavy = 0;
  uint32_t level_steps = 0;  // of such a window, where a step has a fixed number of samples
};

// Part of the layout's name, also where a job gives no algorithm. reorder/ has the algorithms, and checks
// what a job names (reorder/planner.h, CheckJob).
inline constexpr std::string_view kDefaultAlgorithm = "balance_without_moving";

struct PhaseSpec {
  Phase phase = Phase::kLlm;    // with the media that it encodes
  std::vector<uint32_t> ranks;  // global rank of each replica (of its leader, where it has several); distinct
  Mesh mesh;                    // its `ranks` are empty where every replica is one rank
  Cost cost;
  Batching batching = Batching::kPacked;
  Runs runs = Runs::kOncePerStep;
  std::string algorithm{kDefaultAlgorithm};
  uint32_t min_items = 0;
  // How far above the mean a rank may be, as a share; unset: the planner's own. 0: as even as can be.
  std::optional<double> tolerance;
  bool equal_counts = false;      // as many units on every rank, or one more
  bool padded_attention = false;  // packed, but attention costs the batch's count times its longest squared
  bool node_wise = false;         // encoders: the algorithm's batches are then permuted by node
  // Encoders: the lengths that a rank may have together in one exchange, padding included; 0: any.
  uint64_t capacity = 0;
};

// Whether no rank is one of both phases.
bool AreApart(const PhaseSpec& a, const PhaseSpec& b);

struct MicrobatchSpec {
  uint64_t capacity_tokens = 0;  // 0: unlimited
  uint64_t pad_to = 0;
  uint32_t align = 1;
  uint32_t count_multiple = 1;
};

struct Limits {
  uint64_t max_image_bytes = 64ull << 20;
  uint64_t max_audio_bytes = 512ull << 20;
  uint64_t max_video_bytes = 4ull << 30;
  uint64_t max_text_bytes = 16ull << 20;
  uint64_t max_image_pixels = 89478485;
  uint64_t max_image_side = 16384;
  uint32_t max_jpeg_scans = 256;
  uint64_t max_decode_ratio = 1000;
  uint64_t max_video_pixels = 33554432;
  uint64_t max_video_frames = 100000;
  uint32_t max_streams = 16;
  uint64_t max_audio_seconds = 3600;
  uint64_t max_llm_length = 131072;
  uint32_t max_json_depth = 64;
  uint32_t max_items = 1024;
  uint64_t max_jpeg_coefficient_bytes = 512ull << 20;
  uint64_t max_column_bytes = 1024;  // of a sample's columns as JSON; also what they take in a part
};
// The names of its fields, as the job file has them.
std::vector<std::string> LimitNames();

// The part of a phase that a chunk of the pipeline computes.
struct ChunkPart {
  std::string phase;  // its name
  double share = 0;   // of the phase's time, above 0; over all chunks the shares of a phase sum to 1
};

// A backward pass takes twice its forward's time: gradients of the input and of the weights.
inline constexpr double kBackwardOverForward = 2;

// How long the passes of a phase take.
struct PassSpec {
  std::string phase;
  double forward = 1;                      // times its cost
  double backward = kBackwardOverForward;  // times its forward
  bool frozen = false;  // trains no weights: has no backward where nothing before it trains
};

// The pipeline as the job describes it. Phases on ranks of their own that are in no chunk are a stage before it.
struct PipelineSpec {
  bool given = false;                  // the job has the section, or encoders that are a stage of their own
  std::string schedule;                // empty: by the number of chunks per stage; reorder/ has the schedules
  double transfer = 0;                 // seconds from stage to stage
  std::string order = "local_search";  // reorder/ has the algorithms
  uint32_t stages = 0;                 // with chunks, of which it is a divisor; else 0
  // Chunk c runs on stage c mod stages; empty: chunks of equal time.
  std::vector<std::vector<ChunkPart>> chunks;
  std::vector<PassSpec> passes;  // of phases that differ from the defaults

  PassSpec PassOf(std::string_view phase) const;
};

struct Job {
  std::string name;
  std::string path;  // of the file; for messages only
  uint64_t seed = 0;
  std::string index;  // folder
  std::vector<DatasetSpec> datasets;
  ProcessorSpec processor;
  BatchSpec batch;
  OrderSpec order;
  uint32_t ranks_per_node = 0;  // 0: one node
  uint32_t pipeline_stages = 1;
  uint32_t virtual_stages = 1;
  Sequences sequences = Sequences::kWhole;
  GroupSpec groups = {};  // of dynamic context parallelism
  // The llm, then encoders of images or videos, then those of audio alone; else in the order of the file. The
  // number of a phase is its place here.
  std::vector<PhaseSpec> phases;
  // Ranks meet at the end of a step alone: the costs of a rank's phases add up, instead of each having a barrier.
  bool phases_add_up = false;
  MicrobatchSpec microbatch;
  Limits limits;
  std::vector<StoreSpec> stores;  // change no byte: in no digest
  std::vector<std::string> exclude;
  std::vector<SplitSpec> splits;  // the whole of the datasets if empty
  size_t split = 0;               // of `splits`: the one that is drawn
  uint64_t split_seed = 0;
  std::vector<std::string> columns;  // members of a sample's JSON that are delivered with it, in this order
  Isolation isolation = Isolation::kFfmpeg;  // changes no byte: in no digest
  PipelineSpec pipeline = {};

  // The multiple of microbatches that an interleaved schedule needs; 1: any number.
  uint32_t InterleavedStages() const;
  const PhaseSpec* phase(const Phase& phase) const;         // null where the job has none
  const PhaseSpec* FindPhase(std::string_view name) const;  // likewise
  // With dynamic groups: whether every member of a group has the phase's items of its microbatch, as it has the sequences,
  // since they are encoded inside the llm's forward. Otherwise an encoder's rows are sent to the members.
  bool IsSharedByGroups(const PhaseSpec& spec) const;
  // SampleItem::tower of the phase's items: how many phases before it encode the medium, too; kTargetTower of a generator.
  uint8_t TowerOf(const Phase& phase, Medium medium) const;
  // Of the samples that are drawn.
  HashRange SplitRange() const { return splits.empty() ? HashRange() : RangeOfSplit(splits, split); }
  uint32_t NodeOf(uint32_t global_rank) const {
    return ranks_per_node == 0 ? 0 : global_rank / ranks_per_node;
  }
};

// Reads, checks and resolves a job file. Relative paths become relative to the file's folder.
// Errors, all with "file:line: ": InvalidArgument (syntax, unknown key with the nearest known one, wrong type
// or value), NotFound (no such file).
// `split`: the one to draw, instead of the file's; empty: the file's.
absl::StatusOr<Job> LoadJob(const std::string& path, const std::string& split = "");
// `yaml` as if read from `path`.
absl::StatusOr<Job> ParseJob(const std::string& yaml, const std::string& path);

// The stream digest names the sequence of samples and their values: index, sampler, seed, batch size,
// where, split, processor, limits, exclude, columns, stream_version. `index` is the index's digest, `processor` that of the
// processor's own files.
Digest StreamDigest(const Job& job, const Digest& index, const Digest& processor);
std::string StreamCanonicalText(const Job& job, const Digest& index, const Digest& processor);
// Nothing where the job does not pack.
void AddPack(const PackSpec& pack, CanonicalText* text);
// Nothing where the job does not cut chunks.
void AddChunk(const ChunkSpec& chunk, CanonicalText* text);
// Nothing where `pipeline.given` is false.
void AddPipeline(const PipelineSpec& pipeline, CanonicalText* text);
// The layout digest names how samples and items are assigned to ranks: topology, phases, costs, algorithms,
// microbatch, wire form.
Digest LayoutDigest(const Job& job);
std::string LayoutCanonicalText(const Job& job);

}  // namespace evenkeel
