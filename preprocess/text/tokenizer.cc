#include "preprocess/text/tokenizer.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/read_file.h"
#include "core/status.h"
#include "rust/tokenizer.h"

#if defined(__SANITIZE_THREAD__)
#define EVENKEEL_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define EVENKEEL_TSAN 1
#endif
#endif

#ifdef EVENKEEL_TSAN
extern "C" {
void AnnotateIgnoreReadsBegin(const char* file, int line);
void AnnotateIgnoreReadsEnd(const char* file, int line);
void AnnotateIgnoreWritesBegin(const char* file, int line);
void AnnotateIgnoreWritesEnd(const char* file, int line);
}
#endif

namespace evenkeel::preprocess {
namespace {

constexpr uint64_t kMaxFileBytes = 256ull << 20;

// ThreadSanitizer sees the library's memory copies but not the locks that order them, as the Rust side is not
// instrumented; inside a call it must not look.
class ForeignCall {
 public:
#ifdef EVENKEEL_TSAN
  ForeignCall() {
    AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
    AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
  }
  ~ForeignCall() {
    AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
    AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
  }
#else
  ForeignCall() {}  // not defaulted: an unused variable otherwise
#endif
  ForeignCall(const ForeignCall&) = delete;
  ForeignCall& operator=(const ForeignCall&) = delete;
};

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
    return absl::InvalidArgumentError(absl::StrCat(what, ": the tokenizer gave up: ", message));
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

Digest DigestOfTokenizer(std::string_view json, const std::vector<std::string>& added_tokens) {
  Digester digester;
  digester.UpdateU64(json.size());
  digester.Update(json);
  for (const std::string& token : added_tokens) {
    digester.UpdateU64(token.size());
    digester.Update(token);
  }
  return digester.Finish();
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
        path, ": no such file; set processor.tokenizer to the folder of the checkpoint that has it"));
  }
  EVENKEEL_RETURN_IF_ERROR(json.status());
  std::vector<EvenkeelText> added;
  added.reserve(added_tokens.size());
  for (const std::string& token : added_tokens) {
    if (token.empty()) return absl::InvalidArgumentError("processor.added_tokens: an empty token");
    added.push_back(TextOf(token));
  }
  ForeignCall call;
  EvenkeelTokenizer* loaded = nullptr;
  int32_t code = evenkeel_tokenizer_load(TextOf(*json), added.data(), added.size(), &loaded);
  std::unique_ptr<EvenkeelTokenizer, Free> handle(loaded);
  if (code != EVENKEEL_TOKENIZER_OK) return LastError(code, path);
  return std::unique_ptr<Tokenizer>(
      new Tokenizer(std::move(handle), max_text_bytes, DigestOfTokenizer(*json, added_tokens)));
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

absl::StatusOr<EncodedText> Tokenizer::EncodeWith(std::string_view text, uint32_t flags) const {
  if (text.size() > max_text_bytes_) {
    return absl::ResourceExhaustedError(
        absl::StrCat("text of ", text.size(), " bytes; limits.max_text_bytes is ", max_text_bytes_));
  }
  EvenkeelIds found{};
  int32_t code;
  {
    ForeignCall call;
    code = evenkeel_tokenizer_encode(handle_.get(), TextOf(text), flags, &found);
  }
  if (code != EVENKEEL_TOKENIZER_OK) return LastError(code, "text");
  return EncodedText{.ids = {found.ids, found.num_ids},
                     .ends = {found.ends, found.ends != nullptr ? found.num_ids : 0}};
}

std::optional<int64_t> Tokenizer::TokenToId(std::string_view token) const {
  ForeignCall call;
  int64_t id = evenkeel_tokenizer_token_to_id(handle_.get(), TextOf(token));
  if (id < 0) return std::nullopt;
  return id;
}

uint32_t Tokenizer::vocab_size() const {
  ForeignCall call;
  return static_cast<uint32_t>(evenkeel_tokenizer_vocab_size(handle_.get()));
}

}  // namespace evenkeel::preprocess
