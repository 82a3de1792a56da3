// Text -> token ids: those of the checkpoint's own tokenizer.json under the Python package `tokenizers`.
//
// It is a thin face of a Rust static library (rust/) behind a C interface that no panic crosses.
// It is not: chat templates, labels, placeholders (sequence_builder.h).
//
// Example:
//     EVENKEEL_ASSIGN_OR_RETURN(auto tokenizer, Tokenizer::Load(folder, {"<|mark|>"}));
//     EVENKEEL_ASSIGN_OR_RETURN(std::vector<int64_t> ids, tokenizer->Encode("a <|mark|>"));  // ends in its id
//     EVENKEEL_ASSIGN_OR_RETURN(EncodedText text, tokenizer->EncodeUntrusted("a <|mark|>"));  // never its id
//
// Thread safety: all members are const and may be called from many threads; none of them starts a thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "core/digest.h"

struct EvenkeelTokenizer;  // rust/tokenizer.h

namespace evenkeel::preprocess {

// Where an untrusted text stands. Some tokenizers write a space before the first word of a sequence and
// nowhere else (`Metaspace` with `prepend_scheme: first`).
enum class TextPlace : uint8_t { kFirst, kBehindAMark };

// A tokenised text: memory that the thread keeps, valid until its next call of an encode.
struct EncodedText {
  std::span<const uint32_t> ids;
  std::span<const uint64_t> begins;  // the byte of the text where each token begins; empty unless asked for
  // The byte of the text where each token ends; empty unless asked for. Tokens that share a character all end
  // with it; letters that the normaliser composes end with the first.
  std::span<const uint64_t> ends;
};

class Tokenizer {
 public:
  // Reads `folder`/tokenizer.json, adds the special tokens that tokenizer_config.json (else
  // special_tokens_map.json) names, as transformers does, and then `added_tokens`, as special tokens, in order,
  // each at the next free id; one that the tokenizer has already keeps its id. Texts longer than `max_text_bytes` are refused.
  // NotFound: no such file; InvalidArgument: the file is no tokenizer, with its path and what is wrong.
  static absl::StatusOr<std::unique_ptr<Tokenizer>> Load(const std::string& folder,
                                                         const std::vector<std::string>& added_tokens,
                                                         uint64_t max_text_bytes = 16ull << 20);
  ~Tokenizer();
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  // As Python's `Tokenizer.encode(text, add_special_tokens=...).ids`: added tokens inside `text` are
  // recognised. InvalidArgument: not UTF-8, with the byte offset; ResourceExhausted: longer than the limit.
  absl::StatusOr<std::vector<int64_t>> Encode(std::string_view text, bool add_special_tokens = false) const;

  // For text that nobody vouches for: tokens that the tokenizer marks as special ("<|im_start|>") are not
  // recognised but tokenised as the letters they consist of; other added tokens ("<tool_call>") are
  // recognised. Errors as Encode.
  absl::StatusOr<EncodedText> EncodeUntrusted(std::string_view text,
                                              TextPlace place = TextPlace::kFirst) const;
  // The same ids, with their ends. Slower.
  absl::StatusOr<EncodedText> EncodeUntrustedWithEnds(std::string_view text,
                                                      TextPlace place = TextPlace::kFirst) const;

  // For text that a chat template wrote, which may have special tokens: the ids of Encode, with begins and ends.
  // Those that begin at the bytes `spelled` (ascending) are letters, and so is what they consist of.
  absl::StatusOr<EncodedText> EncodeWritten(std::string_view text, std::span<const uint64_t> spelled,
                                            TextPlace place) const;

  // What the checkpoint's files say next to tokenizer.json.
  std::vector<std::string> special_tokens() const;  // of all tokens that are special
  std::string variables() const;            // those with names, as a JSON object: {"eos_token": "</s>"}
  std::string bos_token() const;            // empty: none
  std::optional<int64_t> text_end() const;  // eos_token, else the first id that ends a generation
  std::optional<int64_t> pad() const;       // pad_token, else text_end
  std::string chat_template(std::string_view name) const;  // of tokenizer_config.json; empty: none

  // The id of a whole token, added or not; nothing where there is none.
  std::optional<int64_t> TokenToId(std::string_view token) const;
  uint32_t vocab_size() const;  // added tokens included

  // Of the bytes of tokenizer.json, of the added tokens in order, and of what other files add to them.
  const Digest& digest() const { return digest_; }

 private:
  struct Free {
    void operator()(EvenkeelTokenizer* handle) const;
  };
  Tokenizer(std::unique_ptr<EvenkeelTokenizer, Free> handle, uint64_t max_text_bytes, Digest digest);
  absl::StatusOr<EncodedText> EncodeWith(std::string_view text, uint32_t flags,
                                         std::span<const uint64_t> spelled = {}) const;

  // Immutable behind the interface but for its own cache.
  const std::unique_ptr<EvenkeelTokenizer, Free> handle_;
  const uint64_t max_text_bytes_;
  const Digest digest_;
};

}  // namespace evenkeel::preprocess
