// What Energon takes of each sample of a folder: its class and `field_map` in dataset.yaml; and whether Evenkeel, which reads the
// members of a sample by their suffixes (docs/datasets.md), gets the same content.
//
// Some classes have the same content by their nature, others never. The samples decide about the rest: for example, a tar may have
// more pictures than the field map names.
//
// Thread safety: functions without state; plain values.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/words.h"
#include "dataset/format/json.h"
#include "dataset/format/sample_parser.h"

namespace evenkeel::cli {

// A member of a sample, or a value in it if it is JSON: "json[0][value]" is {"json", {"0", "value"}}.
struct EnergonPart {
  std::string suffix;
  std::vector<std::string> path;
};

struct EnergonFields {
  std::string where;               // dataset.yaml and the line of the field map
  std::string sample_class;        // "VQASample"
  std::string field_map;           // "image: jpg, context: json[0][value], answers: json[1][value]"
  bool has_turns = false;          // a question and an answer; else a text
  Medium medium = Medium::kText;   // of `media`
  std::vector<EnergonPart> media;  // the first that a sample has is its medium; empty: the class has none
  std::vector<EnergonPart> text;   // the same for the text, or the question
  std::vector<EnergonPart> answer;
};

// What Evenkeel read of a sample.
struct ReadSample {
  const std::vector<dataset::SampleMember>& members;
  std::string_view text;            // the suffix of the member with the text or the JSON
  std::vector<size_t> items;        // members
  const dataset::ParsedText* chat;  // null: a plain text
  const dataset::JsonValue* json;   // of the chat
};

// Reads a dataset.yaml. NotFound: no such file. InvalidArgument: with its line, something that needs Energon's Python or that Evenkeel
// does not read in the same way, with what to do; or a damaged file.
absl::StatusOr<EnergonFields> ReadEnergonFields(const std::string& path);

// Whether the sample's content is what Energon makes of it. FailedPrecondition: what differs, and what to do.
absl::Status CheckSameContent(const EnergonFields& fields, const ReadSample& sample);

}  // namespace evenkeel::cli
