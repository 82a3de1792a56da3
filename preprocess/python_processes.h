// What Python processes do for a processor that is not native: they describe it once, and then measure and
// produce items, and may write chats. isolation/python_pool.h implements it, so that nothing here makes a process.
//
// Thread safety: all members may be called from many threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "preprocess/processor.h"

namespace evenkeel::preprocess {

// One medium of a processor in Python.
struct PythonMedium {
  Medium medium = Medium::kImage;
  std::string placeholder;  // a special token, once for each output row; empty: it has no place in a sequence
  std::string in_template;  // the token that the chat template writes for an item; empty: the placeholder
  std::string begin, end;   // special tokens around all placeholders of an item; empty: none
  bool measures_stored = false;  // lengths depend on the bytes
  std::vector<FieldSpec> fields;
};

struct PythonDescription {
  std::string name;      // of the class, with its module
  bool renders = false;  // the class writes chats itself
  // Everything that values depend on: versions of packages, digests of source and configuration files.
  std::vector<std::pair<std::string, std::string>> versions;
  std::vector<PythonMedium> media;
};

// Tokens by their numbers, then placeholders.
struct PythonRun {
  std::vector<int64_t> ids;
  uint32_t rows = 0;
};

struct PythonLengths {
  ItemLengths lengths;
  std::vector<PythonRun> runs;  // how the item stands in the sequence; empty: output_rows placeholders
};

// A chat as the class writes it.
struct PythonText {
  // Bytes [begin, end) of `text`, ascending, of which at least one is there; and the weight of their tokens' loss.
  struct Trained {
    uint64_t begin = 0;
    uint64_t end = 0;
    float weight = 1;  // positive
  };
  std::string text;
  std::vector<Trained> trained;
};

class PythonProcesses {
 public:
  virtual ~PythonProcesses() = default;

  virtual const PythonDescription& description() const = 0;
  // `bytes`: empty unless the medium measures stored items. InvalidArgument: the code refuses the item.
  // Internal or Unavailable: the attempt failed.
  virtual absl::StatusOr<PythonLengths> Measure(const MediaFacts& facts, std::string_view suffix,
                                                std::span<const std::byte> bytes) = 0;
  // `sample`: JSON with `messages`, and `tools` and `documents` if it has them. Only where description().renders.
  // Errors as Measure's.
  virtual absl::StatusOr<PythonText> Render(std::string_view sample) = 0;
  // As Processor::Produce.
  virtual absl::Status Produce(const ItemRequest& request,
                               std::span<const std::span<std::byte>> field_bytes) = 0;
  // As Processor::FillInvalid: integer fields as those of an empty item of these facts, zeros elsewhere.
  virtual absl::Status ProduceBlank(const ItemRequest& request,
                                    std::span<const std::span<std::byte>> field_bytes) = 0;
};

}  // namespace evenkeel::preprocess
