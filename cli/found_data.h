// What the data given by a user contain: datasets of shards, their samples by form and medium, and the members and keys that are not
// for the model. `evenkeel init` describes it and writes a job for it.
//
// Shards are looked into, not read: headers of members and texts of some samples, no media.
//
// Thread safety: a function without state; plain values.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/energon_fields.h"
#include "core/job.h"
#include "core/words.h"

namespace evenkeel::cli {

inline constexpr uint64_t kMaxShardsLookedAt = 4;        // of a dataset
inline constexpr uint64_t kMaxShardsLookedAtOfAll = 64;  // but one of each
inline constexpr uint64_t kMaxSamplesLookedAt = 250;     // of a shard

// Of data that Megatron-Energon has prepared (cli/energon.h).
struct EnergonWishes {
  std::string split;     // empty: train
  bool as_tars = false;  // the members of samples are read as they are, whatever dataset.yaml has
};

// A dataset of the job.
struct FoundDataset {
  std::string path;  // where it is; its last component gives the name
  DataFormat format = DataFormat::kWebDataset;
  std::string media;                 // the folder of media that rows name, if it is not that of the shards
  std::vector<std::string> shards;   // in the order of the stream
  std::string list;                  // of MDS: the file that lists the shards, if there is one
  std::string weight;                // empty: none is written
  std::string repeat;                // likewise
  std::vector<std::string> exclude;  // "shard-file-name/key"
  std::vector<std::string> notes;    // where all of this comes from, a comment each
  std::optional<EnergonFields> energon;  // what Energon makes of each sample, which must be the same
};

struct FoundData {
  std::vector<FoundDataset> datasets;
  uint64_t bytes = 0;  // of all shards
  uint64_t shards_looked_at = 0;
  uint64_t samples = 0;                       // the next members count those looked at
  bool is_all = false;                        // the samples are all that there are
  uint64_t chats = 0;                         // samples with a chat
  uint64_t captions = 0;                      // samples with media and a text, or with text alone
  std::array<uint64_t, 4> items = {};         // by Medium
  std::array<uint64_t, 4> samples_with = {};  // by Medium: samples with at least one item
  std::map<std::string, uint64_t>
      forms;  // "messages", "conversations", "a list of turns", "preference pairs", "a caption", "text alone"
  std::map<std::string, uint64_t> suffixes;           // members by suffix
  std::map<std::string, uint64_t> unused;             // keys of JSON that reach no model: "id", "score"
  std::map<std::string, uint64_t> unusable;           // reason -> samples that the index will exclude
  std::map<std::string, std::string> first_unusable;  // reason -> the first such sample, and why

  uint64_t num_unusable() const;
  uint64_t num_shards() const;
};

// Looks at `path`: data of Energon; a folder with shards of a format that jobs have, or one shard. An MDS dataset with
// its list comes first, then tar files, Parquet tables, MDS shards, JSON lines, JSON files, texts, and token files of
// Megatron-LM, if a folder has several; they are in natural order of their names. Samples come from some shards of each dataset, spread over all, and at most kMaxSamplesLookedAt of each. NotFound: no such path.
// InvalidArgument: something else, with what it is taken for and what is expected; no usable sample; a sample whose content is not
// what Energon makes of it. Errors of the file system.
absl::StatusOr<FoundData> LookAtData(const std::string& path, const EnergonWishes& wishes,
                                     const Limits& limits);

// `names` as patterns of a job's `shards`: one with a range where consecutive numbers give exactly these names, in this order; else
// the names. InvalidArgument: a name that a job would take for a range.
absl::StatusOr<std::vector<std::string>> ShardPatterns(const std::vector<std::string>& names);

}  // namespace evenkeel::cli
