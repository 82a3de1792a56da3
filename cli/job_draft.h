// The first job for some data and a checkpoint: values with the reason for each, as a commented file.
//
// Thread safety: a function without state; plain values.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/found_data.h"

namespace evenkeel::cli {

struct JobWishes {
  std::string data;       // the path given by the user
  std::string processor;  // folder of the checkpoint
  std::string job;        // path of the file to be written; paths in it become relative to its folder
  std::string ranks = "0";
  uint64_t samples = 0;  // of a step; 0: 16 a rank
  std::string chat;      // empty: by the data and the checkpoint
  std::string date;      // for chat templates that write the day; empty: none
};

struct JobDraft {
  std::string yaml;
  std::vector<std::pair<std::string, std::string>> reasons;  // key and value, why
};

// Loads the job's processor, so a draft that is returned is one that the other commands accept. InvalidArgument: the processor's
// folder cannot encode the data or write its chats, with what to do; a wish is malformed. NotFound: there is no such folder.
absl::StatusOr<JobDraft> DraftJob(const FoundData& data, const JobWishes& wishes);

}  // namespace evenkeel::cli
