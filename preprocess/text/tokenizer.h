// Text -> token ids: those of the checkpoint's tokenizer.json under the Python package `tokenizers`.
//
// A thin wrapper of a Rust static library (rust/) behind a C interface that no panic crosses. Chat templates,
// labels and placeholders are elsewhere (sequence_builder.h).
//
// Example:
//     EVENKEEL_ASSIGN_OR_RETURN(auto tokenizer, Tokenizer::Load(folder, {"<|mark|>"}));
//     EVENKEEL_ASSIGN_OR_RETURN(std::vector<int64_t> ids, tokenizer->Encode("a <|mark|>"));  // its id last
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

// The position of an untrusted text. Some tokenizers write a space before the first word of a sequence and
// nowhere else (`Metaspace` with `prepend_scheme: first`).
enum class TextPlace : uint8_t { kFirst, kBehindAMark };

// A tokenized text, in memory of the calling thread: valid until its next call of an Encode function.
struct EncodedText {
  std::span<const uint32_t> ids;
  std::span<const uint64_t> begins;  // the first byte of each token; empty unless requested
  // One past the last byte of each token; empty unless requested. Tokens that share a character all end
  // with it; letters that the normalizer composes end with the first one.
  std::span<const uint64_t> ends;
};

class Tokenizer {
 public:
  // Reads `folder`/tokenizer.json, adds the special tokens of tokenizer_config.json (else
  // special_tokens_map.json), as transformers does, and then `added_tokens`, as special tokens, in order,
  // each at the next free id; a token that the tokenizer has already keeps its id. Texts longer than
  // `max_text_bytes` are refused. NotFound: no such file; InvalidArgument: the file is not a tokenizer (with
  // its path and the cause).
  static absl::StatusOr<std::unique_ptr<Tokenizer>> Load(const std::string& folder,
                                                         const std::vector<std::string>& added_tokens,
                                                         uint64_t max_text_bytes = 16ull << 20);
  ~Tokenizer();
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  // As Python's `Tokenizer.encode(text, add_special_tokens=...).ids`: added tokens inside `text` are
  // recognized. InvalidArgument: not UTF-8 (with the byte offset); ResourceExhausted: longer than the limit.
  absl::StatusOr<std::vector<int64_t>> Encode(std::string_view text, bool add_special_tokens = false) const;

  // For text from samples: tokens that the tokenizer marks as special ("<|im_start|>") are not recognized but
  // tokenized as their letters; other added tokens ("<tool_call>") are recognized. Errors as Encode.
  absl::StatusOr<EncodedText> EncodeUntrusted(std::string_view text,
                                              TextPlace place = TextPlace::kFirst) const;
  // The same ids, with their ends. Slower.
  absl::StatusOr<EncodedText> EncodeUntrustedWithEnds(std::string_view text,
                                                      TextPlace place = TextPlace::kFirst) const;

  // For text from a chat template, which may contain special tokens: the ids of Encode, with begins and ends.
  // Special tokens at the byte offsets `spelled` (ascending) come from the sample and are tokenized as
  // letters.
  absl::StatusOr<EncodedText> EncodeWritten(std::string_view text, std::span<const uint64_t> spelled,
                                            TextPlace place) const;

  // From the checkpoint's other files.
  std::vector<std::string> special_tokens() const;  // all special tokens
  std::string variables() const;                    // the named ones, as a JSON object: {"eos_token": "</s>"}
  std::string bos_token() const;                    // empty if there is none
  std::optional<int64_t> text_end() const;          // eos_token, else the first id that ends a generation
  std::optional<int64_t> pad() const;               // pad_token, else text_end
  std::string chat_template(std::string_view name) const;  // in tokenizer_config.json; empty if there is none

  // The id of a whole token, added or not; nullopt if it is unknown.
  std::optional<int64_t> TokenToId(std::string_view token) const;
  // The text of some ids, special tokens included; bytes that are not UTF-8 become U+FFFD. InvalidArgument: the tokenizer's decoder
  // refuses them.
  absl::StatusOr<std::string> Decode(std::span<const uint32_t> ids) const;
  uint32_t vocab_size() const;  // added tokens included

  // Digest of the bytes of tokenizer.json, the added tokens in order, and what other files add to them.
  const Digest& digest() const { return digest_; }

 private:
  struct Free {
    void operator()(EvenkeelTokenizer* handle) const;
  };
  Tokenizer(std::unique_ptr<EvenkeelTokenizer, Free> handle, uint64_t max_text_bytes, Digest digest);
  absl::StatusOr<EncodedText> EncodeWith(std::string_view text, uint32_t flags,
                                         std::span<const uint64_t> spelled = {}) const;

  // Immutable except for its internal cache, which is thread-safe.
  const std::unique_ptr<EvenkeelTokenizer, Free> handle_;
  const uint64_t max_text_bytes_;
  const Digest digest_;
};

}  // namespace evenkeel::preprocess
