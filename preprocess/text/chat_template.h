// A checkpoint's chat template: renders the JSON of a conversation to text, as transformers'
// `apply_chat_template` does.
//
// A thin wrapper of the template engine in rust/, behind a C interface that no panic crosses. It has no
// notion of tokenizers, media or labels (templated_chat.h). A template's work is limited by counts, not by
// time, so that a template that never ends fails in the same way on every machine.
//
// Thread safety: all members are const and may be called from many threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

struct EvenkeelTemplate;  // rust/template.h
struct EvenkeelChat;

namespace evenkeel::preprocess {

struct ChatTemplateSettings {
  std::string variables;  // a JSON object with the template's global variables: the special tokens
  std::string date;       // YYYY-MM-DD, for strftime_now; empty: a template that calls it fails
  std::vector<std::string> special_tokens;
  uint64_t max_work = 4'000'000;            // instructions of one rendering
  uint64_t max_string_bytes = 64ull << 20;  // of all strings that it creates
  uint64_t max_output_bytes = 16ull << 20;
};

// A byte range of a text.
struct TextRange {
  uint64_t begin = 0;
  uint64_t end = 0;
  bool operator==(const TextRange&) const = default;
};

struct RenderedChat {
  std::string text;
  // Ascending offsets where the conversation's own text spells a special token.
  std::vector<uint64_t> spelled;
  std::vector<TextRange> generated;  // the template's generation blocks
};

class ChatTemplate {
 public:
  struct FreeChat {
    void operator()(EvenkeelChat* chat) const;
  };
  using Chat = std::unique_ptr<EvenkeelChat, FreeChat>;

  // InvalidArgument: not a template (with the line), or `variables` or `date` are malformed.
  static absl::StatusOr<std::unique_ptr<ChatTemplate>> Load(std::string_view source,
                                                            const ChatTemplateSettings& settings);
  ~ChatTemplate();
  ChatTemplate(const ChatTemplate&) = delete;
  ChatTemplate& operator=(const ChatTemplate&) = delete;

  bool has_generation() const { return has_generation_; }

  // Parses a JSON object with `messages` and optional `tools` and `documents`. InvalidArgument: anything
  // else.
  absl::StatusOr<Chat> Parse(std::string_view json) const;

  // Renders the first `num_messages` messages. InvalidArgument: the template fails or raises (with its
  // message). FailedPrecondition: it asks for the date, and none is set. ResourceExhausted: it exceeds its
  // limits.
  absl::Status Render(const EvenkeelChat& chat, size_t num_messages, bool add_generation_prompt,
                      RenderedChat& out) const;

 private:
  struct Free {
    void operator()(EvenkeelTemplate* loaded) const;
  };
  explicit ChatTemplate(std::unique_ptr<EvenkeelTemplate, Free> handle);

  const std::unique_ptr<EvenkeelTemplate, Free> handle_;
  const bool has_generation_;
};

}  // namespace evenkeel::preprocess
