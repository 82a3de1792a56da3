// The contents of a sample: members and text to a conversation, and the member of each item.
//
// Two steps, so that a worker needs the text member alone:
//   TextParser     text bytes -> turns and a list of references to media ("the next image", "the member
//                  0.jpg")
//   ResolveItems   references + members -> the member of each item, in the order of their placeholders
//
// All input is untrusted. docs/datasets.md describes the forms to users.
// Thread safety: the functions need none; a parser belongs to one thread.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "core/conversation.h"
#include "core/job.h"
#include "core/words.h"
#include "dataset/format/json.h"
#include "dataset/format/sample_places.h"

namespace evenkeel::dataset {

// The kind of a member, by the last component of its suffix. kOther is ignored.
enum class MemberKind : uint8_t { kOther = 0, kText = 1, kJson = 2, kMedia = 3 };

struct SampleMember {
  std::string suffix;   // lower case
  uint64_t offset = 0;  // in the shard, or an address of the format
  uint64_t size = 0;    // in the shard: of a compressed member see SampleScanner::SizeOf
};

MemberKind KindOf(std::string_view suffix);
// The medium of a member of kind kMedia.
Medium MediumOf(std::string_view suffix);
// Whether a reference to `reference` may mean a member of medium `member`: a video's sound track is an item of its own
// if the text names the video as audio.
bool MayBe(Medium reference, Medium member);
// Natural order: runs of digits compare as numbers, so 2.jpg comes before 10.jpg.
bool SuffixBefore(std::string_view a, std::string_view b);

// A placeholder in the text. Without a name it means the next unused member of its medium.
struct MediaReference {
  Medium medium = Medium::kImage;
  std::optional<std::string_view> name;
  // The name comes from a field next to the text (LLaVA's "image": "coco/train2017/000000033471.jpg"), often
  // an original path. If none of a medium's names is a member, only their number counts.
  bool from_field = false;
};

struct ParsedText {
  Conversation conversation;               // Span::item counts the references
  std::vector<MediaReference> references;  // in order
};

// Results are valid until the next call. They are views of the text and of the parser, which reuses its
// memory for the next text.
class TextParser {
 public:
  // Parses a chat in JSON: messages, conversations, a list of turns, or the preference pair `chosen` and `rejected`. The
  // latter without messages or a text alone: see is_pair(). NotFound: JSON without a chat, for
  // example a sample's metadata. InvalidArgument: the error and its place. ResourceExhausted: more than
  // limits.max_items items or max_text_bytes.
  absl::StatusOr<const ParsedText*> ParseChat(std::string_view json, const Limits& limits);
  // A plain sample: its media, then its text.
  absl::StatusOr<const ParsedText*> ParsePlain(std::string_view text, std::span<const Medium> media,
                                               const Limits& limits);
  // Parses a row, an object under the names of `fields`: a chat as ParseChat, a prompt with its answer, or a text.
  // Media of the latter two come first, images, audio, videos, unless the prompt has placeholders for them. NotFound:
  // neither is there; otherwise as ParseChat.
  absl::StatusOr<const ParsedText*> ParseRow(std::string_view json, const FieldNames& fields,
                                             const Limits& limits);
  // Whether the latest text is a preference pair, also where it is refused.
  bool is_pair() const { return is_pair_; }
  // Ids of tokens. InvalidArgument: not a whole number of ids, or one that is negative or does not fit 32 bits. NotFound: there
  // are none.
  absl::StatusOr<const ParsedText*> ParseTokens(std::string_view bytes, TextForm form);
  // Parses any form for a sample of the index. DataLoss: its media differ from the recorded ones.
  absl::StatusOr<const Conversation*> ParseRecorded(const SamplePlaces& places, std::string_view text,
                                                    const Limits& limits);

  // The columns of the latest text: see AppendColumns. Text that is not JSON has none of its own.
  absl::StatusOr<std::string_view> Columns(const Job& job, std::string_view key);

 private:
  class ChatParser;
  absl::StatusOr<const JsonValue*> ParseJson(std::string_view json, const Limits& limits);
  void Clear();
  Turn& AddTurn(Role role);
  std::string& AddWritten();

  JsonDocument json_;
  const JsonValue* root_ = nullptr;  // of the latest text; null if it is not JSON
  std::string columns_;
  ParsedText parsed_;
  std::vector<std::vector<Span>> spare_;                      // span lists of earlier texts, to be reused
  std::array<std::vector<std::string_view>, 3> field_names_;  // names in fields next to a chat, by medium
  std::deque<std::string> written_;                           // rewritten JSON, of which turns have views
  bool is_pair_ = false;
  size_t num_written_ = 0;        // for this text
  std::vector<Medium> media_;     // of a recorded sample
  std::vector<uint32_t> tokens_;  // of the latest text
};

// The position in `members` of each item. `key`: the sample's, for references by full name. InvalidArgument:
// a name without a member, or no member left.
absl::StatusOr<std::vector<size_t>> ResolveItems(std::span<const MediaReference> references,
                                                 std::string_view key,
                                                 const std::vector<SampleMember>& members);

// The members of all media in suffix order: the items of a plain sample.
std::vector<size_t> PlainItems(const std::vector<SampleMember>& members);

}  // namespace evenkeel::dataset
