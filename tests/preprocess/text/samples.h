// Conversations for the tests of this folder, and those that goldens describe.
#pragma once

#include <algorithm>
#include <deque>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "preprocess/text/sequence_builder.h"

namespace evenkeel::preprocess {

// Texts live as long as the program.
inline Span Text(std::string text) {
  static std::deque<std::string>* const kept = new std::deque<std::string>();
  return {.medium = Medium::kText, .text = kept->emplace_back(std::move(text))};
}
inline Span Item(Medium medium, uint32_t item) { return {.medium = medium, .item = item}; }
inline ToolCall CallOf(const std::string& name, const std::string& arguments) {
  const std::string element = R"({"type": "function", "function": {"name": ")" + name +
                              R"(", "arguments": )" + (arguments.empty() ? R"("")" : arguments) + "}}";
  return {Text(name).text, Text(arguments).text, Text(element).text};
}
inline SampleItem Image(uint32_t rows) { return {Medium::kImage, {4 * rows, 4 * rows, rows}}; }
inline SampleItem Audio(uint32_t rows) { return {Medium::kAudio, {3000, 3000, rows}}; }
// One run an item, on these grids.
inline std::vector<ItemPlaceholders> OnGrids(const std::vector<SampleItem>& items,
                                             const std::vector<VisionGrid>& grids) {
  std::vector<ItemPlaceholders> out;
  for (size_t i = 0; i < items.size(); ++i) {
    out.push_back(
        {{.rows = items[i].lengths.output_rows, .grid = i < grids.size() ? grids[i] : VisionGrid()}});
  }
  return out;
}
inline Conversation Plain(std::vector<Span> spans) {
  return {.plain = true, .turns = {{.role = Role::kAssistant, .spans = std::move(spans)}}};
}
inline Conversation Chat(std::vector<Span> user, std::vector<Span> assistant) {
  return {.turns = {{Role::kUser, std::move(user)}, {Role::kAssistant, std::move(assistant)}}};
}

inline Medium MediumOf(const std::string& name) {
  return name == "image" ? Medium::kImage : name == "video" ? Medium::kVideo : Medium::kAudio;
}
inline Role RoleOf(const std::string& name) {
  return name == "system" ? Role::kSystem
         : name == "user" ? Role::kUser
         : name == "tool" ? Role::kTool
                          : Role::kAssistant;
}

struct Sample {
  Conversation conversation;
  std::vector<SampleItem> items;
  std::vector<VisionGrid> grids;
};

inline Sample SampleOf(const nlohmann::json& example) {
  Sample out;
  for (const nlohmann::json& tool : example.value("tools", nlohmann::json::array()))
    out.conversation.tools.push_back(Text(tool).text);
  for (const nlohmann::json& turn : example["turns"]) {
    Turn& into = out.conversation.turns.emplace_back();
    into.role = RoleOf(turn["role"]);
    for (const nlohmann::json& call : turn.value("calls", nlohmann::json::array())) {
      out.conversation.calls.push_back(CallOf(call[0], call[1]));
      ++into.calls;
    }
    for (const nlohmann::json& part : turn["content"]) {
      if (part.is_string()) {
        into.spans.push_back(Text(part));
      } else {
        into.spans.push_back(Item(MediumOf(part["medium"]), static_cast<uint32_t>(out.items.size())));
        const nlohmann::json& item = example["items"][out.items.size()];
        out.items.push_back({MediumOf(item["medium"]), {0, 0, item["rows"].get<uint32_t>()}});
        VisionGrid grid;
        if (item["grid"].is_array()) {
          grid = {item["grid"][0], item["grid"][1], item["grid"][2], item["seconds"].get<float>()};
        }
        out.grids.push_back(grid);
      }
    }
  }
  return out;
}

inline absl::StatusOr<Sequence> BuildWith(const SequenceBuilder& builder, const Conversation& conversation,
                                          const std::vector<SampleItem>& items,
                                          const std::vector<ItemPlaceholders>& placeholders) {
  Sequence out;
  absl::Status built = builder.Build(conversation, items, placeholders, out);
  if (!built.ok()) return built;
  return out;
}

inline uint64_t LossTokens(const Sequence& sequence) {
  return sequence.labels.size() - std::count(sequence.labels.begin(), sequence.labels.end(), -100);
}

}  // namespace evenkeel::preprocess
