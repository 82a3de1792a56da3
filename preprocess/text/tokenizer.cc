// Calls the tokenizer of rust/ and translates its codes to statuses.
#include "preprocess/text/tokenizer.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/read_file.h"
#include "core/status.h"
#include "preprocess/text/foreign_call.h"
#include "rust/tokenizer.h"

namespace evenkeel::preprocess {
namespace {

constexpr uint64_t kMaxFileBytes = 256ull << 20;

EvenkeelText TextOf(std::string_view text) {
  return EvenkeelText{reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

uint32_t FlagsOfUntrusted(TextPlace place) {
  return EVENKEEL_TOKENIZER_UNTRUSTED | (place == TextPlace::kFirst ? 0 : EVENKEEL_TOKENIZER_CONTINUES);
}

absl::Status LastError(int32_t code, absl::string_view what) {
  EvenkeelText text = evenkeel_tokenizer_last_error();
  absl::string_view message(reinterpret_cast<const char*>(text.bytes), text.num_bytes);
  if (code == EVENKEEL_TOKENIZER_PANICKED) {
    return absl::InvalidArgumentError(absl::StrCat(what, ": the tokenizer failed: ", message));
  }
  return absl::InvalidArgumentError(absl::StrCat(what, ": ", message));
}

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  absl::StatusOr<std::string> bytes = ReadAtMost(path, kMaxFileBytes + 1);
  if (!bytes.ok()) return AddContext(bytes.status(), path);
  if (bytes->size() > kMaxFileBytes)
    return absl::InvalidArgumentError(absl::StrCat(path, ": larger than 256 MiB"));
  return bytes;
}

// The files next to tokenizer.json, in the order of EvenkeelTokenizerFiles.
constexpr const char* kOtherFiles[] = {"tokenizer_config.json", "special_tokens_map.json",
                                       "generation_config.json"};

absl::StatusOr<std::string> ReadIfThere(const std::string& path) {
  absl::StatusOr<std::string> text = ReadFile(path);
  if (absl::IsNotFound(text.status())) return std::string();
  return text;
}

std::string_view ViewOf(EvenkeelText text) {
  return {reinterpret_cast<const char*>(text.bytes), text.num_bytes};
}

void Add(std::string_view text, Digester& digester) {
  digester.UpdateU64(text.size());
  digester.Update(text);
}

}  // namespace

void Tokenizer::Free::operator()(EvenkeelTokenizer* handle) const {
  ForeignCall call;
  evenkeel_tokenizer_free(handle);
}

Tokenizer::Tokenizer(std::unique_ptr<EvenkeelTokenizer, Free> handle, uint64_t max_text_bytes, Digest digest)
    : handle_(std::move(handle)), max_text_bytes_(max_text_bytes), digest_(digest) {}

Tokenizer::~Tokenizer() = default;

absl::StatusOr<std::unique_ptr<Tokenizer>> Tokenizer::Load(const std::string& folder,
                                                           const std::vector<std::string>& added_tokens,
                                                           uint64_t max_text_bytes) {
  std::string path = absl::StrCat(folder, "/tokenizer.json");
  absl::StatusOr<std::string> json = ReadFile(path);
  if (absl::IsNotFound(json.status())) {
    return absl::NotFoundError(absl::StrCat(
        path, ": no such file; set processor.tokenizer to the checkpoint's folder with this file"));
  }
  EVENKEEL_RETURN_IF_ERROR(json.status());
  std::vector<EvenkeelText> added;
  added.reserve(added_tokens.size());
  for (const std::string& token : added_tokens) {
    if (token.empty()) return absl::InvalidArgumentError("processor.added_tokens: a token is empty");
    added.push_back(TextOf(token));
  }
  std::string others[3];
  for (size_t i = 0; i < 3; ++i) {
    EVENKEEL_ASSIGN_OR_RETURN(others[i], ReadIfThere(absl::StrCat(folder, "/", kOtherFiles[i])));
  }
  ForeignCall call;
  EvenkeelTokenizer* loaded = nullptr;
  const EvenkeelTokenizerFiles files{TextOf(others[0]), TextOf(others[1]), TextOf(others[2])};
  int32_t code = evenkeel_tokenizer_load(TextOf(*json), files, added.data(), added.size(), &loaded);
  std::unique_ptr<EvenkeelTokenizer, Free> handle(loaded);
  if (code != EVENKEEL_TOKENIZER_OK) return LastError(code, path);
  Digester digester;
  Add(*json, digester);
  for (const std::string& token : added_tokens) Add(token, digester);
  // From the other files only what has an effect, so that a file without effect does not change the digest.
  const std::string_view variables = ViewOf(evenkeel_tokenizer_variables(loaded));
  if (variables != "{}") Add(variables, digester);
  const size_t num_special = evenkeel_tokenizer_num_special_tokens(loaded);
  if (!others[0].empty() || !others[1].empty()) {
    for (size_t i = 0; i < num_special; ++i)
      Add(ViewOf(evenkeel_tokenizer_special_token(loaded, i)), digester);
  }
  digester.UpdateU64(static_cast<uint64_t>(evenkeel_tokenizer_text_end(loaded)));
  digester.UpdateU64(static_cast<uint64_t>(evenkeel_tokenizer_pad(loaded)));
  return std::unique_ptr<Tokenizer>(new Tokenizer(std::move(handle), max_text_bytes, digester.Finish()));
}

std::vector<std::string> Tokenizer::special_tokens() const {
  ForeignCall call;
  std::vector<std::string> out;
  const size_t count = evenkeel_tokenizer_num_special_tokens(handle_.get());
  for (size_t i = 0; i < count; ++i)
    out.emplace_back(ViewOf(evenkeel_tokenizer_special_token(handle_.get(), i)));
  return out;
}

std::string Tokenizer::variables() const {
  return std::string(ViewOf(evenkeel_tokenizer_variables(handle_.get())));
}

std::string Tokenizer::bos_token() const {
  return std::string(ViewOf(evenkeel_tokenizer_bos_token(handle_.get())));
}

std::optional<int64_t> Tokenizer::text_end() const {
  const int64_t id = evenkeel_tokenizer_text_end(handle_.get());
  return id < 0 ? std::nullopt : std::optional(id);
}

std::optional<int64_t> Tokenizer::pad() const {
  const int64_t id = evenkeel_tokenizer_pad(handle_.get());
  return id < 0 ? std::nullopt : std::optional(id);
}

std::string Tokenizer::chat_template(std::string_view name) const {
  return std::string(ViewOf(evenkeel_tokenizer_chat_template(handle_.get(), TextOf(name))));
}

absl::StatusOr<std::vector<int64_t>> Tokenizer::Encode(std::string_view text, bool add_special_tokens) const {
  EVENKEEL_ASSIGN_OR_RETURN(EncodedText encoded,
                            EncodeWith(text, add_special_tokens ? EVENKEEL_TOKENIZER_ADD_SPECIAL_TOKENS : 0));
  return std::vector<int64_t>(encoded.ids.begin(), encoded.ids.end());
}

absl::StatusOr<EncodedText> Tokenizer::EncodeUntrusted(std::string_view text, TextPlace place) const {
  return EncodeWith(text, FlagsOfUntrusted(place));
}

absl::StatusOr<EncodedText> Tokenizer::EncodeUntrustedWithEnds(std::string_view text, TextPlace place) const {
  return EncodeWith(text, FlagsOfUntrusted(place) | EVENKEEL_TOKENIZER_WITH_ENDS);
}

absl::StatusOr<EncodedText> Tokenizer::EncodeWritten(std::string_view text, std::span<const uint64_t> spelled,
                                                     TextPlace place) const {
  return EncodeWith(
      text, EVENKEEL_TOKENIZER_WITH_ENDS | (place == TextPlace::kFirst ? 0 : EVENKEEL_TOKENIZER_CONTINUES),
      spelled);
}

absl::StatusOr<EncodedText> Tokenizer::EncodeWith(std::string_view text, uint32_t flags,
                                                  std::span<const uint64_t> spelled) const {
  if (text.size() > max_text_bytes_) {
    return absl::ResourceExhaustedError(
        absl::StrCat("text of ", text.size(), " bytes; limits.max_text_bytes is ", max_text_bytes_));
  }
  EvenkeelIds found{};
  int32_t code;
  {
    ForeignCall call;
    code = evenkeel_tokenizer_encode_spelled(handle_.get(), TextOf(text), spelled.data(), spelled.size(),
                                             flags, &found);
  }
  if (code != EVENKEEL_TOKENIZER_OK) return LastError(code, "text");
  const size_t num_ends = found.ends != nullptr ? found.num_ids : 0;
  return EncodedText{
      .ids = {found.ids, found.num_ids}, .begins = {found.begins, num_ends}, .ends = {found.ends, num_ends}};
}

std::optional<int64_t> Tokenizer::TokenToId(std::string_view token) const {
  ForeignCall call;
  int64_t id = evenkeel_tokenizer_token_to_id(handle_.get(), TextOf(token));
  if (id < 0) return std::nullopt;
  return id;
}

absl::StatusOr<std::string> Tokenizer::Decode(std::span<const uint32_t> ids) const {
  EvenkeelText text{};
  int32_t code;
  {
    ForeignCall call;
    code = evenkeel_tokenizer_decode(handle_.get(), ids.data(), ids.size(), &text);
  }
  if (code != EVENKEEL_TOKENIZER_OK) return LastError(code, "ids");
  return std::string(reinterpret_cast<const char*>(text.bytes), text.num_bytes);
}

uint32_t Tokenizer::vocab_size() const {
  ForeignCall call;
  return static_cast<uint32_t>(evenkeel_tokenizer_vocab_size(handle_.get()));
}

}  // namespace evenkeel::preprocess
