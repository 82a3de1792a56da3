// A sample's content after its members were read: turns of interleaved text and media.
// Every sample form (image+txt, messages, LLaVA conversations, ...) becomes one of these.
//
// Texts are views: the maker of a conversation documents who owns their memory.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "core/words.h"

namespace evenkeel {

// A stretch of text, or a medium that names its item by position in the sample's list of items.
struct Span {
  Medium medium = Medium::kText;
  std::string_view text;  // kText: UTF-8
  uint32_t item = 0;      // otherwise: index into the sample's items, ascending over the sample
};

enum class Role : uint8_t { kSystem = 0, kUser = 1, kAssistant = 2, kTool = 3 };

// What the data say of training on a turn, by `weight` (a number) or `loss` (true or false).
enum class TrainedByData : uint8_t { kNotSaid = 0, kNo = 1, kYes = 2, kUnclear = 3 };

struct Turn {
  Role role = Role::kUser;
  std::vector<Span> spans = {};
  uint32_t calls = 0;  // of Conversation::calls, behind those of the turns before
  TrainedByData trained = TrainedByData::kNotSaid;
  float weight = 1;  // of its loss, as the data say; 1 where they do not
  // The message's other members (reasoning_content, name, tool_call_id, …) as JSON, each after a comma. Only
  // the checkpoint's own template writes them.
  std::string_view members = {};
  std::string_view unwritten = {};  // the one of these that changes the text of most templates; empty: none
};

// What an assistant's turn asks a tool for.
struct ToolCall {
  std::string_view name;
  std::string_view arguments;  // an object, JSON as templates write it; empty: the sample has a text instead
  std::string_view element;    // the whole element of `tool_calls`, JSON
};

// A plain sample (image+txt, text only) has no chat turns: one kAssistant turn with `plain` set, whose text
// is all trained on. The chat renderer writes it without turn marks.
struct Conversation {
  bool plain = false;
  std::vector<Turn> turns = {};
  std::vector<std::string_view> tools =
      {};                            // the descriptions of those offered, each JSON as templates write it
  std::vector<ToolCall> calls = {};  // of all turns, in order
  std::string_view documents = {};   // a list, JSON; empty: none
  // The ids of a sample that is stored as tokens, all trained on; it has no turns. Empty: the sample is a text or a chat.
  std::span<const uint32_t> tokens = {};
  // Of a preference pair: the turn that begins its second sequence, the rejected one. Calls, and items, which are those of
  // the first once more, go on counting. 0: no pair.
  uint32_t rejected = 0;
  uint32_t prompt = 0;  // of a pair: how many turns at the begin of both sequences are not trained
};

}  // namespace evenkeel
