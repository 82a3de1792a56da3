// Classifies members by their suffixes, and matches references in a text with members.
#include "dataset/format/sample_parser.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "core/packing.h"
#include "core/scratch.h"
#include "core/status.h"
#include "core/utf8.h"
#include "dataset/format/sample_columns.h"
#include "dataset/source/little_endian.h"
#include "dataset/source/packed_member.h"

namespace evenkeel::dataset {
namespace {

struct Extension {
  std::string_view name;
  MemberKind kind;
  Medium medium;
};
// The extensions that WebDataset's own decoders know, and further files that ours decode (ac3, mka, oga). The
// processor decides which of them a stream promises to decode. The others are excluded with that reason
// instead of being ignored silently.
constexpr std::array kExtensions = {
    Extension{"txt", MemberKind::kText, Medium::kText},
    Extension{"text", MemberKind::kText, Medium::kText},
    Extension{"transcript", MemberKind::kText, Medium::kText},
    Extension{"json", MemberKind::kJson, Medium::kText},
    Extension{"jsn", MemberKind::kJson, Medium::kText},
    Extension{"jpg", MemberKind::kMedia, Medium::kImage},
    Extension{"jpeg", MemberKind::kMedia, Medium::kImage},
    Extension{"png", MemberKind::kMedia, Medium::kImage},
    Extension{"webp", MemberKind::kMedia, Medium::kImage},
    Extension{"ppm", MemberKind::kMedia, Medium::kImage},
    Extension{"pgm", MemberKind::kMedia, Medium::kImage},
    Extension{"pbm", MemberKind::kMedia, Medium::kImage},
    Extension{"pnm", MemberKind::kMedia, Medium::kImage},
    Extension{"tif", MemberKind::kMedia, Medium::kImage},
    Extension{"tiff", MemberKind::kMedia, Medium::kImage},
    Extension{"avif", MemberKind::kMedia, Medium::kImage},
    Extension{"heic", MemberKind::kMedia, Medium::kImage},
    Extension{"heif", MemberKind::kMedia, Medium::kImage},
    Extension{"bmp", MemberKind::kMedia, Medium::kImage},
    Extension{"gif", MemberKind::kMedia, Medium::kImage},
    Extension{"mp4", MemberKind::kMedia, Medium::kVideo},
    Extension{"ogv", MemberKind::kMedia, Medium::kVideo},
    Extension{"mjpeg", MemberKind::kMedia, Medium::kVideo},
    Extension{"avi", MemberKind::kMedia, Medium::kVideo},
    Extension{"mov", MemberKind::kMedia, Medium::kVideo},
    Extension{"h264", MemberKind::kMedia, Medium::kVideo},
    Extension{"mpg", MemberKind::kMedia, Medium::kVideo},
    Extension{"mpeg", MemberKind::kMedia, Medium::kVideo},
    Extension{"webm", MemberKind::kMedia, Medium::kVideo},
    Extension{"wmv", MemberKind::kMedia, Medium::kVideo},
    Extension{"mkv", MemberKind::kMedia, Medium::kVideo},
    Extension{"m4v", MemberKind::kMedia, Medium::kVideo},
    Extension{"flac", MemberKind::kMedia, Medium::kAudio},
    Extension{"mp3", MemberKind::kMedia, Medium::kAudio},
    Extension{"sox", MemberKind::kMedia, Medium::kAudio},
    Extension{"wav", MemberKind::kMedia, Medium::kAudio},
    Extension{"m4a", MemberKind::kMedia, Medium::kAudio},
    Extension{"ogg", MemberKind::kMedia, Medium::kAudio},
    Extension{"wma", MemberKind::kMedia, Medium::kAudio},
    Extension{"opus", MemberKind::kMedia, Medium::kAudio},
    Extension{"aac", MemberKind::kMedia, Medium::kAudio},
    Extension{"ac3", MemberKind::kMedia, Medium::kAudio},
    Extension{"mka", MemberKind::kMedia, Medium::kAudio},
    Extension{"oga", MemberKind::kMedia, Medium::kAudio},
    Extension{"aiff", MemberKind::kMedia, Medium::kAudio},
    Extension{"aif", MemberKind::kMedia, Medium::kAudio},
    Extension{"aifc", MemberKind::kMedia, Medium::kAudio},
};

const Extension* FindExtension(std::string_view suffix) {
  size_t dot = suffix.rfind('.');
  std::string_view last = dot == std::string_view::npos ? suffix : suffix.substr(dot + 1);
  for (const Extension& extension : kExtensions) {
    if (extension.name == last) return &extension;
  }
  return nullptr;
}

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

// Removes a run of digits from the front of `text` and returns it without leading zeros.
std::string_view TakeNumber(std::string_view& text) {
  size_t end = 0;
  while (end < text.size() && IsDigit(text[end])) ++end;
  std::string_view digits = text.substr(0, end);
  text.remove_prefix(end);
  digits.remove_prefix(std::min(digits.find_first_not_of('0'), digits.size()));
  return digits;
}

// Whether a reference means this member: by its suffix, its whole name, or its name without the folder.
bool Names(std::string_view reference, std::string_view key, std::string_view suffix) {
  std::string lower = absl::AsciiStrToLower(absl::string_view(reference.data(), reference.size()));
  if (lower == suffix) return true;
  if (reference.size() < suffix.size() + 1) return false;
  size_t dot = reference.size() - suffix.size() - 1;
  if (reference[dot] != '.' || std::string_view(lower).substr(dot + 1) != suffix) return false;
  std::string_view stem = reference.substr(0, dot);
  size_t folder = key.rfind('/');
  std::string_view base = folder == std::string_view::npos ? key : key.substr(folder + 1);
  return stem == key || stem == base;
}

// A compressed member is also named with the end of its compression.
bool NamesMember(std::string_view reference, std::string_view key, const SampleMember& member) {
  if (Names(reference, key, member.suffix)) return true;
  if (!IsPackedMember(member.offset)) return false;
  const std::string lower = absl::AsciiStrToLower(absl::string_view(reference.data(), reference.size()));
  return Names(reference.substr(0, WithoutPackedEnd(lower).size()), key, member.suffix);
}

absl::Status NoSuchMember(std::string_view name) {
  return absl::InvalidArgumentError(
      absl::StrCat("the text names '", Printable(name), "', which is not a medium of the sample"));
}

}  // namespace

MemberKind KindOf(std::string_view suffix) {
  const Extension* extension = FindExtension(suffix);
  return extension == nullptr ? MemberKind::kOther : extension->kind;
}

Medium MediumOf(std::string_view suffix) {
  const Extension* extension = FindExtension(suffix);
  return extension == nullptr ? Medium::kText : extension->medium;
}

bool MayBe(Medium reference, Medium member) {
  return reference == member || (reference == Medium::kAudio && member == Medium::kVideo);
}

bool SuffixBefore(std::string_view a, std::string_view b) {
  std::string_view x = a, y = b;
  while (!x.empty() && !y.empty()) {
    if (IsDigit(x[0]) && IsDigit(y[0])) {
      std::string_view n = TakeNumber(x), m = TakeNumber(y);
      if (n.size() != m.size()) return n.size() < m.size();
      if (n != m) return n < m;
      continue;
    }
    if (x[0] != y[0]) return static_cast<uint8_t>(x[0]) < static_cast<uint8_t>(y[0]);
    x.remove_prefix(1);
    y.remove_prefix(1);
  }
  if (x.empty() != y.empty()) return x.empty();
  return a < b;  // equal except for leading zeros
}

void TextParser::Clear() {
  root_ = nullptr;
  parsed_.conversation.plain = false;
  std::vector<Turn>& turns = parsed_.conversation.turns;
  for (; !turns.empty(); turns.pop_back()) spare_.push_back(std::move(turns.back().spans));
  Emptied(turns);
  Emptied(parsed_.conversation.tools);
  Emptied(parsed_.conversation.calls);
  parsed_.conversation.documents = {};
  parsed_.conversation.tokens = {};
  parsed_.conversation.rejected = parsed_.conversation.prompt = 0;
  is_pair_ = false;
  Emptied(parsed_.references);
  uint64_t written_bytes = 0;
  for (const std::string& text : written_) written_bytes += sizeof(std::string) + text.capacity();
  if (written_bytes > kKeptScratchBytes) written_.clear();
  num_written_ = 0;
  uint64_t kept_bytes = 0;
  for (const std::vector<Span>& spans : spare_) kept_bytes += spans.capacity() * sizeof(Span);
  if (kept_bytes > kKeptScratchBytes) spare_.clear();
}

Turn& TextParser::AddTurn(Role role) {
  Turn& turn = parsed_.conversation.turns.emplace_back();
  turn.role = role;
  if (!spare_.empty()) {
    turn.spans = std::move(spare_.back());
    turn.spans.clear();
    spare_.pop_back();
  }
  return turn;
}

std::string& TextParser::AddWritten() {
  if (num_written_ == written_.size()) written_.emplace_back();
  std::string& text = written_[num_written_++];
  text.clear();
  return text;
}

absl::StatusOr<const ParsedText*> TextParser::ParsePlain(std::string_view text, std::span<const Medium> media,
                                                         const Limits& limits) {
  if (size_t bad = ValidUtf8Prefix(text); bad != text.size()) {
    return absl::InvalidArgumentError(absl::StrCat("not UTF-8 at byte ", bad));
  }
  if (media.size() > limits.max_items) {
    return absl::ResourceExhaustedError(
        absl::StrCat(media.size(), " items; limits.max_items is ", limits.max_items));
  }
  Clear();
  parsed_.conversation.plain = true;
  Turn& turn = AddTurn(Role::kAssistant);
  for (Medium medium : media) {
    turn.spans.push_back({medium, "", static_cast<uint32_t>(parsed_.references.size())});
    parsed_.references.push_back({medium, std::nullopt});
  }
  turn.spans.push_back({Medium::kText, text, 0});
  return &parsed_;
}

absl::StatusOr<const ParsedText*> TextParser::ParseTokens(std::string_view bytes, TextForm form) {
  const int width = TokenBytes(form);
  const bool is_signed = form != TextForm::kU8Tokens && form != TextForm::kU16Tokens;
  Clear();
  Emptied(tokens_);
  if (bytes.empty()) return absl::NotFoundError("no tokens");
  if (bytes.size() % width != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(bytes.size(), " bytes are not a whole number of tokens of ", width, " bytes"));
  }
  tokens_.reserve(bytes.size() / width);
  for (size_t at = 0; at < bytes.size(); at += width) {
    const int64_t id = is_signed ? GetLittleSigned(bytes.data() + at, width)
                                 : static_cast<int64_t>(GetLittle(bytes.data() + at, width));
    if (id < 0 || id > std::numeric_limits<uint32_t>::max()) {
      return absl::InvalidArgumentError(
          absl::StrCat("token ", at / width, " has the id ", id, "; ids are from 0 to 2^32 - 1"));
    }
    tokens_.push_back(static_cast<uint32_t>(id));
  }
  parsed_.conversation.tokens = tokens_;
  return &parsed_;
}

std::vector<size_t> PlainItems(const std::vector<SampleMember>& members) {
  std::vector<size_t> items;
  for (size_t i = 0; i < members.size(); ++i) {
    if (KindOf(members[i].suffix) == MemberKind::kMedia) items.push_back(i);
  }
  std::sort(items.begin(), items.end(),
            [&](size_t a, size_t b) { return SuffixBefore(members[a].suffix, members[b].suffix); });
  return items;
}

absl::StatusOr<std::vector<size_t>> ResolveItems(std::span<const MediaReference> references,
                                                 std::string_view key,
                                                 const std::vector<SampleMember>& members) {
  const std::vector<size_t> media = PlainItems(members);
  std::vector<bool> used(members.size());
  std::vector<size_t> items(references.size());
  // A member that is named anywhere in the text is not "the next one" for a reference without a name.
  std::array<size_t, 4> matched{}, strangers{};
  for (size_t i = 0; i < references.size(); ++i) {
    const MediaReference& reference = references[i];
    items[i] = members.size();
    if (!reference.name) continue;
    auto found = std::find_if(media.begin(), media.end(),
                              [&](size_t m) { return NamesMember(*reference.name, key, members[m]); });
    if (found == media.end() && reference.from_field) {
      ++strangers[static_cast<size_t>(reference.medium)];
      continue;
    }
    if (found == media.end()) return NoSuchMember(*reference.name);
    if (!MayBe(reference.medium, MediumOf(members[*found].suffix))) {
      return absl::InvalidArgumentError(absl::StrCat("the text names '", Printable(*reference.name),
                                                     "' as a medium that does not fit its suffix"));
    }
    used[*found] = true;
    items[i] = *found;
    ++matched[static_cast<size_t>(reference.medium)];
  }
  std::array<size_t, 4> next{};
  for (size_t i = 0; i < references.size(); ++i) {
    if (items[i] != members.size()) continue;
    size_t medium_number = static_cast<size_t>(references[i].medium);
    if (strangers[medium_number] > 0 && matched[medium_number] > 0)
      return NoSuchMember(references[i].name.value_or(""));
    size_t& at = next[medium_number];
    while (at < media.size() &&
           (used[media[at]] || MediumOf(members[media[at]].suffix) != references[i].medium))
      ++at;
    if (at == media.size()) {
      std::string_view medium = MediumName(references[i].medium);
      return absl::InvalidArgumentError(absl::StrCat("the text has more placeholders for ",
                                                     std::string(medium), " than the sample has members"));
    }
    used[media[at]] = true;
    items[i] = media[at];
  }
  return items;
}

absl::StatusOr<std::string_view> TextParser::Columns(const Job& job, std::string_view key) {
  Emptied(columns_);
  EVENKEEL_RETURN_IF_ERROR(AppendColumns(root_, job, key, columns_));
  return columns_;
}

absl::StatusOr<const Conversation*> TextParser::ParseRecorded(const SamplePlaces& places,
                                                              std::string_view text, const Limits& limits) {
  Emptied(media_);
  for (const ItemPlace& item : places.items) media_.push_back(item.facts.medium);
  if (places.text_form == TextForm::kPlain) {
    EVENKEEL_RETURN_IF_ERROR(ParsePlain(text, media_, limits).status());
  } else if (AreTokens(places.text_form)) {
    EVENKEEL_RETURN_IF_ERROR(ParseTokens(text, places.text_form).status());
  } else if (places.text_form == TextForm::kRow || places.text_form == TextForm::kRowPair) {
    const FieldNames defaults;
    EVENKEEL_RETURN_IF_ERROR(
        ParseRow(text, places.fields == nullptr ? defaults : *places.fields, limits).status());
  } else {
    EVENKEEL_RETURN_IF_ERROR(ParseChat(text, limits).status());
  }
  const bool same =
      std::equal(parsed_.references.begin(), parsed_.references.end(), media_.begin(), media_.end(),
                 [](const MediaReference& reference, Medium medium) { return reference.medium == medium; });
  if (!same) return absl::DataLossError("the text does not refer to the media that the index recorded");
  if (is_pair_ != IsPair(places.text_form))
    return absl::DataLossError("the text is a preference pair, or the index recorded that it is one");
  return &parsed_.conversation;
}

}  // namespace evenkeel::dataset
