// The messages between a worker and its Python processes: JSON, one in each packet, with the files that it
// names. nlohmann_json is confined to the .cc.
//
// The worker trusts nothing in a reply: types, numbers and sizes are checked.
// Thread safety: free functions; a socket belongs to one thread at a time.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/job.h"
#include "isolation/decoder_message.h"
#include "preprocess/python_processes.h"

namespace evenkeel::isolation {

enum class PythonWork : uint8_t { kMeasure, kProcess, kBlank, kRender };

struct PythonCall {
  uint64_t number = 0;  // that the reply must have, too: a reply to an earlier call is none to this one
  PythonWork work = PythonWork::kMeasure;
  MediaFacts facts;
  std::string_view suffix;
  ItemLengths planned;
  bool has_input = false;  // then the first file has it: the item's bytes, or a sample
  SharedRange input;
  std::vector<SharedRange> fields;  // ranges of the last file
};

struct PythonReply {
  uint64_t number = 0;
  absl::Status status;  // the processor's
  preprocess::PythonLengths lengths;
  preprocess::PythonText text;
};

// What python_items.py is started with.
std::string PythonSpec(const ProcessorSpec& spec, uint64_t memory_bytes);
std::string WritePythonCall(const PythonCall& call);
// Internal: the reply is not one.
absl::StatusOr<PythonReply> ReadPythonReply(std::string_view text);
// InvalidArgument: not a description.
absl::StatusOr<preprocess::PythonDescription> ReadPythonDescription(std::string_view text);

// Orders to the process that forks: fork one with the socket that is sent with the order, or end one.
std::string PythonForkOrder();
std::string PythonEndOrder(pid_t pid);
// The pid of a new process, or the wait status of one that ended. Unavailable: there is none, and why.
absl::StatusOr<int> ReadPythonDone(std::string_view text);

absl::Status SendText(int socket, std::string_view text, std::span<const int> files = {});
// Unavailable: the other end is gone or sent more than 128 KiB.
absl::StatusOr<std::string> ReceiveText(int socket);

}  // namespace evenkeel::isolation
