// Builds sequences: tokenizes the rendered text in pieces between special tokens and media, and keeps for
// every token whether it is trained. Pieces may be tokenized separately because special tokens split the text
// for the tokenizer in any case (MarkId checks that).
#include "preprocess/text/sequence_builder.h"

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "core/scratch.h"
#include "core/status.h"
#include "preprocess/text/positions.h"
#include "preprocess/text/rendering.h"
#include "preprocess/text/templated_chat.h"

namespace evenkeel::preprocess {
namespace {

constexpr int64_t kNoLoss = -100;
constexpr size_t kNumMedia = 4;

// The special tokens of one medium as ids, from its MediumStyle.
struct MediumMarks {
  bool known = false;
  bool mrope = false;
  bool wraps_runs = false;
  std::string before, after;
  std::optional<int64_t> begin, end, last_end, behind_all, item_begin, item_end;
  int64_t placeholder = 0;
  std::vector<int64_t> tokens;  // ids that runs refer to by index
  std::string in_template;
  bool template_has_ends = false;
};

struct Marks {
  std::map<std::string, int64_t, std::less<>> of_style;
  std::optional<int64_t> text_begin, text_end;
  int64_t pad = 0;
  // Tokens that the tokenizer adds around a text, for processors that rely on it.
  std::vector<int64_t> added_before, added_after;
  // What the processor puts before a template's text that does not begin with it; empty: nothing.
  std::string processor_begin;
  int64_t processor_begin_id = 0;
  std::array<MediumMarks, kNumMedia> media;  // by Medium

  const MediumMarks& of(Medium medium) const { return media[static_cast<size_t>(medium)]; }
};

// The tokens of a sequence while it grows.
struct Tokens {
  // One run of an item's placeholders.
  struct Run {
    uint64_t begin = 0;  // token
    Medium medium = Medium::kImage;
    const PlaceholderRun* of = nullptr;
  };
  std::vector<int64_t> ids;
  std::vector<float> weights;  // of their loss; 0: not trained
  std::vector<uint8_t> types;
  std::vector<Run> runs;
  uint64_t media_end = 0;  // one past the last token of the last medium
  bool begun = false;      // something precedes the next text, apart from the style's text_begin

  void Clear() {
    Emptied(ids);
    Emptied(weights);
    Emptied(types);
    Emptied(runs);
    media_end = 0;
    begun = false;
  }
  void Add(int64_t id, bool is_trained) {
    ids.push_back(id);
    weights.push_back(is_trained ? 1 : 0);
    types.push_back(static_cast<uint8_t>(Medium::kText));
  }
  void AddPlaceholders(int64_t id, uint64_t count, Medium medium) {
    ids.insert(ids.end(), count, id);
    weights.insert(weights.end(), count, 0);
    types.insert(types.end(), count, static_cast<uint8_t>(medium));
  }
  // The last `count` tokens are placeholders of a target.
  void MarkTarget(uint64_t count) {
    for (size_t i = types.size() - count; i < types.size(); ++i) types[i] += kTargetType;
  }
  void Truncate(uint64_t length) {
    ids.resize(length);
    weights.resize(length);
    types.resize(length);
  }
};

// Adjacent text segments: one text for the tokenizer.
class TextRun {
 public:
  void Clear() {
    Emptied(text_);
    Emptied(ends_);
  }
  void Append(std::string_view text, bool trained) {
    if (text.empty()) return;
    text_.append(text);
    if (!ends_.empty() && ends_.back().trained == trained) {
      ends_.back().end = text_.size();
    } else {
      ends_.push_back({text_.size(), trained});
    }
  }

  // Tokenizes the text, adds its tokens to `out`, and clears it. Called before a special token, an item, or
  // the end.
  absl::Status Flush(const Tokenizer& tokenizer, Tokens& out) {
    const TextPlace place = out.begun ? TextPlace::kBehindAMark : TextPlace::kFirst;
    out.begun = true;
    if (text_.empty()) return absl::OkStatus();
    if (ends_.size() == 1) {
      EVENKEEL_ASSIGN_OR_RETURN(EncodedText encoded, tokenizer.EncodeUntrusted(text_, place));
      for (uint32_t id : encoded.ids) out.Add(id, ends_[0].trained);
    } else {
      EVENKEEL_ASSIGN_OR_RETURN(EncodedText encoded, tokenizer.EncodeUntrustedWithEnds(text_, place));
      uint64_t begin = 0;
      for (size_t i = 0; i < encoded.ids.size(); ++i) {
        const uint64_t end = encoded.ends[i];
        out.Add(encoded.ids[i], TouchesTrained(begin, end));
        begin = end;
      }
    }
    Clear();
    return absl::OkStatus();
  }

 private:
  struct End {
    uint64_t end = 0;
    bool trained = false;
  };
  // True if the token has a byte in a trained segment, as the masks of apply_chat_template count it. If
  // several tokens share one character, all of them end with it and belong to its segment.
  bool TouchesTrained(uint64_t begin, uint64_t end) const {
    begin = std::min(begin, end == 0 ? 0 : end - 1);
    auto it = std::upper_bound(ends_.begin(), ends_.end(), begin,
                               [](uint64_t byte, const End& stretch) { return byte < stretch.end; });
    // Neighbouring segments differ in `trained`, so one of two that a token overlaps is trained.
    return it != ends_.end() && (it->trained || it->end < end);
  }

  std::string text_;
  std::vector<End> ends_;  // ascending; neighbours differ in `trained`
};

// Text from a template, or from a family between its items: one text for the tokenizer, with special tokens.
class WrittenRun {
 public:
  void Clear() {
    text_.clear();
    spelled_.clear();
    trained_.clear();
  }
  // The bytes [begin, end) of `of`.
  void Append(const TemplatedText& of, uint64_t begin, uint64_t end) {
    const uint64_t at = text_.size();
    text_.append(of.text, begin, end - begin);
    for (auto it = std::lower_bound(of.spelled.begin(), of.spelled.end(), begin);
         it != of.spelled.end() && *it < end; ++it)
      spelled_.push_back(*it - begin + at);
    for (const TrainedRange& range : of.trained) {
      // Keeps empty ranges, too: MarkAsTokenizerDoes treats them as transformers does.
      if (range.end < begin || range.begin > end) continue;
      trained_.push_back(
          {{std::max(range.begin, begin) - begin + at, std::min(range.end, end) - begin + at}, range.weight});
    }
  }
  void Append(std::string_view text) { text_ += text; }

  // Tokenizes the text, adds its tokens to `out`, and clears it. `whole`: this is the complete text.
  absl::Status Flush(const Tokenizer& tokenizer, bool whole, Tokens& out) {
    const TextPlace place = out.begun ? TextPlace::kBehindAMark : TextPlace::kFirst;
    out.begun = true;
    if (text_.empty()) return absl::OkStatus();
    EVENKEEL_ASSIGN_OR_RETURN(EncodedText encoded, tokenizer.EncodeWritten(text_, spelled_, place));
    const size_t first = out.ids.size();
    for (uint32_t id : encoded.ids) out.Add(id, false);
    const std::span<float> weights = std::span(out.weights).subspan(first);
    for (const TrainedRange& range : trained_) {
      if (whole) {
        MarkAsTokenizerDoes(range, encoded, weights);
      } else {
        MarkAsProcessorDoes(range, encoded, weights);
      }
    }
    Clear();
    return absl::OkStatus();
  }

 private:
  // Marks every token that has a byte in the range, as `ProcessorMixin.apply_chat_template` does.
  static void MarkAsProcessorDoes(const TrainedRange& range, const EncodedText& encoded,
                                  std::span<float> weights) {
    for (size_t i = 0; i < weights.size(); ++i) {
      if (encoded.begins[i] < range.end && encoded.ends[i] > range.begin) weights[i] = range.weight;
    }
  }

  // Marks from the first token of the first byte to the first token of the last byte, as the tokenizers'
  // `apply_chat_template` does. This differs if several tokens share the last character. If no token has the
  // last byte (the normalizer dropped it), or the first token of all has it, everything that follows is
  // trained.
  static void MarkAsTokenizerDoes(const TrainedRange& range, const EncodedText& encoded,
                                  std::span<float> weights) {
    const auto token_of = [&](uint64_t byte) {
      size_t i = 0;
      while (i < weights.size() && !(encoded.begins[i] <= byte && byte < encoded.ends[i])) ++i;
      return i;
    };
    const size_t first = token_of(range.begin);
    if (first == weights.size()) return;
    size_t last = range.end == 0 ? weights.size() : token_of(range.end - 1);
    if (last == 0 || last == weights.size()) last = weights.size() - 1;
    for (size_t i = first; i <= last; ++i) weights[i] = range.weight;
  }

  std::string text_;
  std::vector<uint64_t> spelled_;
  std::vector<TrainedRange> trained_;
};

// Memory that a thread keeps from one conversation to the next.
struct Scratch {
  Rendering rendering;
  TemplatedText templated;
  WrittenRun written;
  TextRun text;
  Tokens tokens;
  Tokens prompt;
  std::vector<GridSpan> grids;
  Sequence rejected;
};

Scratch& ThreadScratch() {
  thread_local Scratch scratch;
  return scratch;
}

absl::StatusOr<std::vector<int64_t>> IdsOfText(const Tokenizer& tokenizer, std::string_view text,
                                               TextPlace place) {
  EVENKEEL_ASSIGN_OR_RETURN(EncodedText encoded, tokenizer.EncodeUntrusted(text, place));
  return std::vector<int64_t>(encoded.ids.begin(), encoded.ids.end());
}

// Turns [begin, end) of a sequence of a pair, and the items that they name, counted from its first.
struct PairPart {
  Conversation conversation;
  uint32_t num_items = 0;
};

PairPart CutTurns(const Conversation& pair, size_t begin, size_t end, uint32_t first_item) {
  PairPart out;
  out.conversation.plain = pair.plain;
  out.conversation.tools = pair.tools;
  out.conversation.documents = pair.documents;
  size_t call = 0;
  for (size_t i = 0; i < end; ++i) {
    const Turn& turn = pair.turns[i];
    if (i >= begin) {
      const auto from = pair.calls.begin() + static_cast<ptrdiff_t>(call);
      out.conversation.calls.insert(out.conversation.calls.end(), from, from + turn.calls);
      for (Span& span : out.conversation.turns.emplace_back(turn).spans) {
        if (span.medium == Medium::kText) continue;
        span.item -= first_item;
        ++out.num_items;
      }
    }
    call += turn.calls;
  }
  return out;
}

template <typename T>
void Append(const std::vector<T>& more, std::vector<T>& to) {
  to.insert(to.end(), more.begin(), more.end());
}

// Adds `more` to `to`, as another sequence after its own.
void AppendSequence(const Sequence& more, Sequence& to) {
  const auto length = static_cast<ptrdiff_t>(to.input_ids.size());
  for (ptrdiff_t axis = 2; axis >= 0; --axis) {
    const auto from = more.positions.begin() + axis * static_cast<ptrdiff_t>(more.input_ids.size());
    to.positions.insert(to.positions.begin() + (axis + 1) * length, from,
                        from + static_cast<ptrdiff_t>(more.input_ids.size()));
  }
  Append(more.input_ids, to.input_ids);
  Append(more.labels, to.labels);
  Append(more.loss_weights, to.loss_weights);
  Append(more.token_types, to.token_types);
}

// The id of a special token. It must be marked special in the tokenizer, else the text of a sample could
// spell it. It must also split the text: if a sequence tokenized in pieces differed from the same sequence
// tokenized as a whole, the ids would not be the processor's.
absl::StatusOr<int64_t> MarkId(const Tokenizer& tokenizer, const std::string& folder,
                               const std::string& token, absl::string_view advice) {
  std::optional<int64_t> id = tokenizer.TokenToId(token);
  if (!id.has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat(folder, "/tokenizer.json: has no token '", token, "'", advice));
  }
  EVENKEEL_ASSIGN_OR_RETURN(std::vector<int64_t> spelt, IdsOfText(tokenizer, token, TextPlace::kFirst));
  if (std::find(spelt.begin(), spelt.end(), *id) != spelt.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat(folder, "/tokenizer.json: token '", token,
                     "' is not marked special, so a sample's text could spell it; list it in "
                     "processor.added_tokens of the job to make it special"));
  }
  EVENKEEL_ASSIGN_OR_RETURN(std::vector<int64_t> before, IdsOfText(tokenizer, "a \n", TextPlace::kFirst));
  EVENKEEL_ASSIGN_OR_RETURN(std::vector<int64_t> after,
                            IdsOfText(tokenizer, " \nb", TextPlace::kBehindAMark));
  EVENKEEL_ASSIGN_OR_RETURN(std::vector<int64_t> whole,
                            tokenizer.Encode(absl::StrCat("a \n", token, " \nb")));
  before.push_back(*id);
  before.insert(before.end(), after.begin(), after.end());
  if (before != whole) {
    return absl::InvalidArgumentError(absl::StrCat(
        folder, "/tokenizer.json: token '", token,
        "' changes how its neighbours are tokenized (lstrip, rstrip, single_word); this is not implemented"));
  }
  return *id;
}

absl::StatusOr<MediumMarks> LoadMediumMarks(const Tokenizer& tokenizer, const std::string& folder,
                                            const MediumStyle& style) {
  MediumMarks out{.known = true,
                  .mrope = style.mrope,
                  .wraps_runs = style.wraps_runs,
                  .before = style.before,
                  .after = style.after,
                  .in_template = style.in_template.empty() ? style.placeholder : style.in_template,
                  .template_has_ends = style.template_has_ends};
  constexpr char kAdvice[] =
      ", which the processor's media need; if the model has it under another id, list it in "
      "processor.added_tokens";
  EVENKEEL_ASSIGN_OR_RETURN(out.placeholder, MarkId(tokenizer, folder, style.placeholder, kAdvice));
  const std::pair<std::optional<int64_t>&, const std::string&> marks[] = {
      {out.begin, style.begin},
      {out.end, style.end},
      {out.last_end, style.last_end.empty() ? style.end : style.last_end},
      {out.behind_all, style.behind_all},
      {out.item_begin, style.item_begin},
      {out.item_end, style.item_end}};
  for (const auto& [id, token] : marks) {
    if (token.empty()) continue;
    EVENKEEL_ASSIGN_OR_RETURN(id, MarkId(tokenizer, folder, token, kAdvice));
  }
  for (const std::string& token : style.tokens) {
    EVENKEEL_ASSIGN_OR_RETURN(const int64_t id, MarkId(tokenizer, folder, token, kAdvice));
    out.tokens.push_back(id);
  }
  return out;
}

// The ids that the tokenizer adds before and after a text, found by encoding a text with and without them.
absl::Status ReadAdded(const Tokenizer& tokenizer, Marks& out) {
  EVENKEEL_ASSIGN_OR_RETURN(const std::vector<int64_t> plain,
                            tokenizer.Encode("a", /*add_special_tokens=*/false));
  EVENKEEL_ASSIGN_OR_RETURN(const std::vector<int64_t> added,
                            tokenizer.Encode("a", /*add_special_tokens=*/true));
  const auto at = std::search(added.begin(), added.end(), plain.begin(), plain.end());
  if (at == added.end()) return absl::OkStatus();
  out.added_before.assign(added.begin(), at);
  out.added_after.assign(at + static_cast<ptrdiff_t>(plain.size()), added.end());
  return absl::OkStatus();
}

// The token of MediumStyle::begins_text.
absl::Status ReadProcessorBegin(const Tokenizer& tokenizer, const std::string& folder, Marks& out) {
  out.processor_begin = tokenizer.bos_token();
  if (out.processor_begin.empty()) {
    const auto named = nlohmann::json::parse(tokenizer.variables(), nullptr, /*allow_exceptions=*/false);
    const auto eos = named.find("eos_token");
    if (eos != named.end() && eos->is_string()) out.processor_begin = eos->get<std::string>();
  }
  const std::optional<int64_t> id =
      out.processor_begin.empty() ? std::nullopt : tokenizer.TokenToId(out.processor_begin);
  if (!id.has_value()) {
    return absl::InvalidArgumentError(absl::StrCat(
        folder,
        "/tokenizer_config.json: names neither a bos_token nor an eos_token of the tokenizer, one of "
        "which the processor puts before a text"));
  }
  out.processor_begin_id = *id;
  return absl::OkStatus();
}

absl::StatusOr<Marks> LoadMarks(const Tokenizer& tokenizer, const ProcessorSpec& spec, const ChatStyle& chat,
                                const SequenceStyle& style) {
  const std::string& folder = spec.tokenizer;
  const std::string advice =
      absl::StrCat(", which chats of style ", std::string(chat.name),
                   " need; with processor.chat: template they are written by the checkpoint's own template");
  Marks out;
  for (std::string_view mark : chat.marks) {
    EVENKEEL_ASSIGN_OR_RETURN(out.of_style[std::string(mark)],
                              MarkId(tokenizer, folder, std::string(mark), advice));
  }
  if (!chat.text_begin.empty()) {
    EVENKEEL_ASSIGN_OR_RETURN(out.text_begin,
                              MarkId(tokenizer, folder, std::string(chat.text_begin), advice));
  }
  out.text_end = tokenizer.text_end();
  if (!tokenizer.pad().has_value()) {
    return absl::InvalidArgumentError(absl::StrCat(
        folder,
        ": no file names the token that ends or pads a text; transformers has it in tokenizer_config.json as "
        "'eos_token' and 'pad_token', generation_config.json as 'eos_token_id'"));
  }
  out.pad = *tokenizer.pad();
  if (!style.media.empty()) EVENKEEL_RETURN_IF_ERROR(ReadAdded(tokenizer, out));
  for (const MediumStyle& medium : style.media) {
    MediumMarks& of = out.media[static_cast<size_t>(medium.medium)];
    if (medium.medium == Medium::kText || of.known) {
      return absl::InternalError(absl::StrCat("two styles for ", MediumName(medium.medium).data()));
    }
    EVENKEEL_ASSIGN_OR_RETURN(of, LoadMediumMarks(tokenizer, folder, medium));
    if (medium.begins_text) EVENKEEL_RETURN_IF_ERROR(ReadProcessorBegin(tokenizer, folder, out));
  }
  return out;
}

// One more than the highest id: special tokens may be above the number of all tokens, with unused ids between.
uint64_t VocabularyOf(const Tokenizer& tokenizer) {
  uint64_t above = tokenizer.vocab_size();
  for (const std::string& token : tokenizer.special_tokens()) {
    const std::optional<int64_t> id = tokenizer.TokenToId(token);
    if (id.has_value() && *id >= 0) above = std::max(above, static_cast<uint64_t>(*id) + 1);
  }
  return above;
}

class ChatSequenceBuilder : public SequenceBuilder {
 public:
  // `templated`: null if chats are of the style `chat`; else `chat` is for texts without turns.
  ChatSequenceBuilder(std::unique_ptr<Tokenizer> tokenizer, Marks marks, const ChatStyle& chat,
                      std::unique_ptr<TemplatedChat> templated, const ProcessorSpec& spec,
                      const Limits& limits, SequenceStyle style)
      : tokenizer_(std::move(tokenizer)),
        marks_(std::move(marks)),
        chat_(chat),
        templated_(std::move(templated)),
        chat_words_(spec.chat),
        bos_token_(tokenizer_->bos_token()),
        system_(spec.system),
        truncates_(spec.truncate == "text"),
        has_loss_weights_(spec.loss_weights),
        trains_all_(spec.labels == "all"),
        max_text_bytes_(limits.max_text_bytes),
        max_llm_length_(limits.max_llm_length),
        vocabulary_(VocabularyOf(*tokenizer_)),
        style_(std::move(style)) {}

  absl::StatusOr<SequenceLengths> Measure(const Conversation& conversation, std::span<const SampleItem> items,
                                          std::span<const ItemPlaceholders> placeholders) const override {
    Tokens& tokens = ThreadScratch().tokens;
    SequenceLengths out;
    EVENKEEL_RETURN_IF_ERROR(EachSequence(conversation, items, placeholders, tokens, [&](bool is_chosen) {
      out.llm_length += static_cast<uint32_t>(tokens.ids.size());
      if (is_chosen) out.chosen_length = out.llm_length;
      // From 1: the model predicts a token from the ones before it, so the first token has no loss.
      for (size_t i = 1; i < tokens.weights.size(); ++i) out.loss_tokens += tokens.weights[i] != 0;
      return absl::OkStatus();
    }));
    return out;
  }

  absl::Status Build(const Conversation& conversation, std::span<const SampleItem> items,
                     std::span<const ItemPlaceholders> placeholders, Sequence& out) const override {
    Tokens& tokens = ThreadScratch().tokens;
    out.chosen_length = 0;
    return EachSequence(conversation, items, placeholders, tokens, [&](bool is_chosen) -> absl::Status {
      if (out.chosen_length == 0) {
        EVENKEEL_RETURN_IF_ERROR(WriteSequence(tokens, out));
        if (is_chosen) out.chosen_length = static_cast<uint32_t>(tokens.ids.size());
        return absl::OkStatus();
      }
      Sequence& rejected = ThreadScratch().rejected;
      EVENKEEL_RETURN_IF_ERROR(WriteSequence(tokens, rejected));
      AppendSequence(rejected, out);
      return absl::OkStatus();
    });
  }

  absl::Status WriteSequence(const Tokens& tokens, Sequence& out) const {
    EVENKEEL_RETURN_IF_ERROR(Positions(tokens, out.positions));
    out.input_ids.assign(tokens.ids.begin(), tokens.ids.end());
    out.token_types.assign(tokens.types.begin(), tokens.types.end());
    out.labels.assign(tokens.ids.size(), kNoLoss);
    for (size_t i = 1; i < tokens.ids.size(); ++i) {
      if (tokens.weights[i] != 0) out.labels[i] = tokens.ids[i];
    }
    out.loss_weights.clear();
    if (has_loss_weights_) {
      out.loss_weights = tokens.weights;
      if (!out.loss_weights.empty()) out.loss_weights[0] = 0;
    }
    return absl::OkStatus();
  }

  int64_t pad_token() const override { return marks_.pad; }
  bool has_grid_positions(Medium medium) const override { return marks_.of(medium).mrope; }
  const Tokenizer& tokenizer() const override { return *tokenizer_; }

  void AddTo(CanonicalText& text) const override {
    text.Add("tokenizer", tokenizer_->digest().Hex());
    text.Add("chat", chat_words_);
    text.Add("system", system_);
    if (templated_ != nullptr) templated_->AddTo(text);
    if (truncates_) text.Add("truncate", std::string_view("text"));
    for (const MediumStyle& medium : style_.media) {
      text.Add(absl::StrCat(MediumName(medium.medium).data(), ".begin"), medium.begin);
      text.Add(absl::StrCat(MediumName(medium.medium).data(), ".placeholder"), medium.placeholder);
      text.Add(absl::StrCat(MediumName(medium.medium).data(), ".end"), medium.end);
      text.Add(absl::StrCat(MediumName(medium.medium).data(), ".mrope"), uint64_t{medium.mrope});
      if (medium.wraps_runs)
        text.Add(absl::StrCat(MediumName(medium.medium).data(), ".wraps_runs"), uint64_t{1});
      if (medium.begins_text)
        text.Add(absl::StrCat(MediumName(medium.medium).data(), ".begins_text"), uint64_t{1});
      for (const auto& [key, value] : {std::pair(".before", &medium.before),
                                       {".after", &medium.after},
                                       {".last_end", &medium.last_end},
                                       {".behind_all", &medium.behind_all},
                                       {".item_begin", &medium.item_begin},
                                       {".item_end", &medium.item_end}}) {
        if (!value->empty()) text.Add(absl::StrCat(MediumName(medium.medium).data(), key), *value);
      }
      for (const std::string& token : medium.tokens) {
        text.Add(absl::StrCat(MediumName(medium.medium).data(), ".token"), token);
      }
    }
    text.Add("merge_size", uint64_t{style_.merge_size});
    text.Add("tokens_per_second", uint64_t{style_.tokens_per_second});
    if (style_.after_time) text.Add("after_time", uint64_t{1});
    if (style_.shares_end_positions) text.Add("shares_end_positions", uint64_t{1});
  }

 private:
  // Checks that every item occurs exactly once, in order and with its medium, and that text and items fit the
  // limits.
  absl::Status Check(std::span<const Stretch> stretches, std::span<const SampleItem> items) const {
    uint64_t text_bytes = 0;
    uint64_t rows = 0;
    uint32_t next_item = 0;
    for (const Stretch& stretch : stretches) {
      if (stretch.kind == Stretch::Kind::kText) text_bytes += stretch.text.size();
      if (stretch.kind != Stretch::Kind::kItem) continue;
      if (stretch.item != next_item || stretch.item >= items.size()) {
        return absl::InvalidArgumentError(absl::StrCat("the conversation has item ", stretch.item, " of ",
                                                       items.size(), ", expected item ", next_item));
      }
      const SampleItem& item = items[next_item++];
      if (item.medium != stretch.medium || !marks_.of(item.medium).known) {
        return absl::InvalidArgumentError(
            absl::StrCat("item ", stretch.item, " is ", MediumName(item.medium).data(),
                         "; the conversation has ", MediumName(stretch.medium).data(),
                         marks_.of(item.medium).known ? "" : "; the processor has no such medium"));
      }
      rows += item.lengths.output_rows;
    }
    if (next_item != items.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("the conversation has ", next_item, " of ", items.size(), " items"));
    }
    if (text_bytes > max_text_bytes_) {
      return absl::ResourceExhaustedError(absl::StrCat("rendered text of ", text_bytes,
                                                       " bytes; limits.max_text_bytes is ", max_text_bytes_));
    }
    return CheckLength(rows);
  }

  // Refuses turns that the style's own template fails on.
  absl::Status CheckTurns(const Conversation& conversation) const {
    if (chat_.refusal == nullptr || conversation.plain) return absl::OkStatus();
    for (size_t i = 0; i < conversation.turns.size(); ++i) {
      const std::string_view why = chat_.refusal(conversation.turns, i);
      if (why.empty()) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("turn ", i, " ", std::string(why), ", and chats of style ", std::string(chat_.name),
                       " do not allow that: the model's own template fails on it"));
    }
    return absl::OkStatus();
  }

  // Refuses tools if the style cannot write them: leaving them out would train on an incomplete text.
  absl::Status CheckTools(const Conversation& conversation) const {
    for (size_t i = 0; i < conversation.turns.size(); ++i) {
      const std::string_view member = conversation.turns[i].unwritten;
      if (member.empty()) continue;
      return absl::InvalidArgumentError(absl::StrCat(
          "turn ", i, " has '", std::string(member), "', which chats of style ", std::string(chat_.name),
          " do not write; write what the model's template makes of it into 'content', leave it out, or use "
          "processor.chat: template"));
    }
    for (size_t i = 0; i < conversation.calls.size(); ++i) {
      if (!conversation.calls[i].arguments.empty()) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("call ", i, " of a tool has 'arguments' in a text, which chats of style ",
                       std::string(chat_.name), " do not write; write the object itself"));
    }
    if (chat_.has_tools || (conversation.tools.empty() && conversation.calls.empty()))
      return absl::OkStatus();
    const auto calling = std::find_if(conversation.turns.begin(), conversation.turns.end(),
                                      [](const Turn& turn) { return turn.calls != 0; });
    return absl::InvalidArgumentError(absl::StrCat(
        conversation.tools.empty()
            ? absl::StrCat("turn ", calling - conversation.turns.begin(), " has 'tool_calls'")
            : "the chat has 'tools'",
        ", which chats of style ", std::string(chat_.name),
        " do not write; write what the model's template makes of them into 'content', leave them out, or use "
        "processor.chat: template"));
  }

  // Checks, before memory is allocated, that every item's runs are what was planned for it.
  absl::Status CheckRuns(std::span<const SampleItem> items,
                         std::span<const ItemPlaceholders> placeholders) const {
    if (placeholders.size() != items.size()) {
      return absl::InternalError(
          absl::StrCat("expected placeholders of ", items.size(), " items, got ", placeholders.size()));
    }
    for (size_t i = 0; i < items.size(); ++i) {
      uint64_t rows = 0;
      for (const PlaceholderRun& run : placeholders[i]) {
        rows += run.rows;
        if (!run.token.has_value()) continue;
        if (run.rows != 0 || *run.token >= marks_.of(items[i].medium).tokens.size()) {
          return absl::InternalError(
              absl::StrCat("item ", i, " has a piece whose token is not in its style"));
        }
      }
      if (rows != items[i].lengths.output_rows) {
        return absl::InternalError(absl::StrCat("item ", i, " has runs of ", rows, " placeholders and ",
                                                items[i].lengths.output_rows, " rows"));
      }
    }
    return absl::OkStatus();
  }

  absl::Status CheckLength(uint64_t tokens) const {
    if (tokens <= max_llm_length_) return absl::OkStatus();
    return absl::ResourceExhaustedError(
        absl::StrCat("sequence of at least ", tokens, " tokens; limits.max_llm_length is ", max_llm_length_));
  }

  static bool IsTextAlone(const PlaceholderRun& run) {
    return run.rows == 0 && !run.token.has_value() && run.ids.empty();
  }
  // Adds the tokens that a run names. True: it has no rows.
  static bool AddTokens(const PlaceholderRun& run, const MediumMarks& marks, Tokens& out) {
    for (int64_t id : run.ids) out.Add(id, false);
    if (run.token.has_value()) out.Add(marks.tokens[*run.token], false);
    return run.rows == 0;
  }

  void AddRun(const SampleItem& item, const PlaceholderRun& run, Tokens& out) const {
    const Medium medium = run.of == PlaceholderRun::Of::kAudio ? Medium::kAudio : item.medium;
    out.runs.push_back({out.ids.size(), medium, &run});
    out.AddPlaceholders(marks_.of(medium).placeholder, run.rows, medium);
    if (item.tower == kTargetTower) out.MarkTarget(run.rows);
  }

  // True for a video with its audio: begin and end stand around all of it, and not around its runs.
  static bool HasAudio(const ItemPlaceholders& placeholders) {
    return std::any_of(placeholders.begin(), placeholders.end(),
                       [](const PlaceholderRun& run) { return run.of != PlaceholderRun::Of::kItem; });
  }

  // Text that stands before a run belongs to the text before the item, what stands behind all of them to the
  // text behind it.
  absl::Status AddItem(const SampleItem& item, const ItemPlaceholders& placeholders, bool last_item,
                       TextRun& text, Tokens& out) const {
    const MediumMarks& marks = marks_.of(item.medium);
    auto mark = [&](const std::optional<int64_t>& id) {
      if (id.has_value()) out.Add(*id, false);
    };
    const bool has_audio = HasAudio(placeholders);
    text.Append(marks.before, /*trained=*/false);
    if (marks.wraps_runs || has_audio) {
      EVENKEEL_RETURN_IF_ERROR(text.Flush(*tokenizer_, out));
      mark(marks.begin);
    }
    if (marks.item_begin.has_value()) {
      EVENKEEL_RETURN_IF_ERROR(text.Flush(*tokenizer_, out));
      mark(marks.item_begin);
    }
    for (const PlaceholderRun& run : placeholders) {
      text.Append(run.text, /*trained=*/false);
      if (IsTextAlone(run)) continue;  // it joins what follows
      EVENKEEL_RETURN_IF_ERROR(text.Flush(*tokenizer_, out));
      if (AddTokens(run, marks, out)) continue;
      if (!has_audio) mark(marks.begin);
      AddRun(item, run, out);
      if (!has_audio) mark(&run == &placeholders.back() ? marks.last_end : marks.end);
    }
    if (marks.wraps_runs || has_audio) mark(marks.end);
    if (marks.item_end.has_value()) {
      EVENKEEL_RETURN_IF_ERROR(text.Flush(*tokenizer_, out));
      mark(marks.item_end);
    }
    if (last_item) mark(marks.behind_all);
    out.media_end = out.ids.size();
    text.Append(marks.after, /*trained=*/false);
    return absl::OkStatus();
  }

  // Ids that are in the data already, as they are.
  absl::Status TakeTokens(std::span<const uint32_t> ids, std::span<const SampleItem> items,
                          Tokens& out) const {
    if (!items.empty()) return absl::InvalidArgumentError("a sample of tokens has no media");
    out.Clear();
    for (size_t i = 0; i < ids.size(); ++i) {
      if (ids[i] >= vocabulary_) {
        return absl::InvalidArgumentError(absl::StrCat("token ", i, " has the id ", ids[i],
                                                       "; the tokenizer's are below ", vocabulary_,
                                                       ". Is it the tokenizer that made the tokens?"));
      }
      for (const MediumMarks& marks : marks_.media) {
        if (!marks.known || ids[i] != marks.placeholder) continue;
        return absl::InvalidArgumentError(
            absl::StrCat("token ", i, " has the id ", ids[i], ", the placeholder of a medium"));
      }
      out.Add(ids[i], true);
    }
    return Cut(out);
  }

  absl::Status Tokenise(const Conversation& conversation, std::span<const SampleItem> items,
                        std::span<const ItemPlaceholders> placeholders, Tokens& out) const {
    if (!conversation.tokens.empty()) return TakeTokens(conversation.tokens, items, out);
    if (templated_ != nullptr && !conversation.plain)
      return TokeniseTemplated(conversation, items, placeholders, out);
    EVENKEEL_RETURN_IF_ERROR(CheckTools(conversation));
    EVENKEEL_RETURN_IF_ERROR(CheckTurns(conversation));
    Rendering& rendering = ThreadScratch().rendering;
    Render(conversation, chat_, system_, rendering);
    EVENKEEL_RETURN_IF_ERROR(Check(rendering.stretches(), items));
    EVENKEEL_RETURN_IF_ERROR(CheckRuns(items, placeholders));
    out.Clear();
    TextRun& text = ThreadScratch().text;
    text.Clear();
    if (marks_.text_begin.has_value()) out.Add(*marks_.text_begin, false);
    for (const Stretch& stretch : rendering.stretches()) {
      if (stretch.kind == Stretch::Kind::kText) {
        text.Append(stretch.text, stretch.trained);
        continue;
      }
      if (stretch.kind == Stretch::Kind::kItem) {
        EVENKEEL_RETURN_IF_ERROR(AddItem(items[stretch.item], placeholders[stretch.item],
                                         stretch.item + 1 == items.size(), text, out));
        continue;
      }
      EVENKEEL_RETURN_IF_ERROR(text.Flush(*tokenizer_, out));
      const bool is_mark = stretch.kind == Stretch::Kind::kMark;
      if (!is_mark && !marks_.text_end.has_value()) {
        return absl::InvalidArgumentError(
            "a text without turns ends with the tokenizer's 'eos_token', which no file of the checkpoint "
            "names");
      }
      out.Add(is_mark ? marks_.of_style.find(stretch.text)->second : *marks_.text_end, stretch.trained);
    }
    EVENKEEL_RETURN_IF_ERROR(text.Flush(*tokenizer_, out));
    EVENKEEL_RETURN_IF_ERROR(Cut(out));
    return CheckPlaceholders(out);
  }

  // Calls `use` with the sample's sequence in `tokens`; of a pair twice, with true for the chosen one and then false.
  absl::Status EachSequence(const Conversation& conversation, std::span<const SampleItem> items,
                            std::span<const ItemPlaceholders> placeholders, Tokens& tokens,
                            absl::FunctionRef<absl::Status(bool is_chosen)> use) const {
    if (conversation.rejected == 0) {
      EVENKEEL_RETURN_IF_ERROR(Tokenise(conversation, items, placeholders, tokens));
      return use(false);
    }
    if (placeholders.size() != items.size() || items.size() % 2 != 0)
      return absl::InternalError(absl::StrCat("a pair with ", items.size(), " items"));
    const size_t half = items.size() / 2;
    for (const bool is_chosen : {true, false}) {
      const size_t begin = is_chosen ? 0 : conversation.rejected, first_item = is_chosen ? 0 : half;
      const size_t end = is_chosen ? conversation.rejected : conversation.turns.size();
      const absl::Status built =
          TokenisePairPart(conversation, begin, end, static_cast<uint32_t>(first_item),
                           items.subspan(first_item, half), placeholders.subspan(first_item, half), tokens);
      if (!built.ok()) return AddContext(built, is_chosen ? "chosen" : "rejected");
      if (tokens.ids.empty()) return absl::InvalidArgumentError("a sequence of the pair has no tokens");
      EVENKEEL_RETURN_IF_ERROR(use(is_chosen));
    }
    return absl::OkStatus();
  }

  // The sequence of turns [begin, end) of a pair, without loss for its prompt.
  absl::Status TokenisePairPart(const Conversation& pair, size_t begin, size_t end, uint32_t first_item,
                                std::span<const SampleItem> items,
                                std::span<const ItemPlaceholders> placeholders, Tokens& out) const {
    const PairPart whole = CutTurns(pair, begin, end, first_item);
    const std::span<const Turn> prompt_turns = std::span(pair.turns).subspan(begin, pair.prompt);
    const bool has_trained_prompt =
        !prompt_turns.empty() && (pair.plain || trains_all_ ||
                                  std::any_of(prompt_turns.begin(), prompt_turns.end(), [](const Turn& turn) {
                                    return turn.role == Role::kAssistant;
                                  }));
    Tokens& prompt = ThreadScratch().prompt;
    if (has_trained_prompt) {
      const PairPart part = CutTurns(pair, begin, begin + pair.prompt, first_item);
      EVENKEEL_RETURN_IF_ERROR(Tokenise(part.conversation, items.first(part.num_items),
                                        placeholders.first(part.num_items), prompt));
    }
    EVENKEEL_RETURN_IF_ERROR(Tokenise(whole.conversation, items, placeholders, out));
    if (has_trained_prompt) EVENKEEL_RETURN_IF_ERROR(MaskPrompt(prompt, pair.plain, out));
    if (!truncates_ || out.ids.size() <= max_llm_length_ / 2) return absl::OkStatus();
    if (out.media_end > max_llm_length_ / 2) {
      return absl::ResourceExhaustedError(
          absl::StrCat("the last medium ends at token ", out.media_end,
                       "; half of limits.max_llm_length, which a sequence of a ", "pair may have, is ",
                       max_llm_length_ / 2, ", and media are never cut"));
    }
    out.Truncate(max_llm_length_ / 2);
    return absl::OkStatus();
  }

  // The tokens that the prompt alone has, too, are not trained. A text ends with a token of its own; and its last letters
  // may be in one token with the answer's first.
  absl::Status MaskPrompt(const Tokens& prompt, bool is_text, Tokens& tokens) const {
    const auto differs =
        std::mismatch(prompt.ids.begin(), prompt.ids.end(), tokens.ids.begin(), tokens.ids.end());
    const auto same = differs.second - tokens.ids.begin();
    const auto rest = static_cast<size_t>(prompt.ids.end() - differs.first);
    if (!is_text && rest > marks_.added_after.size() && tokens.ids.size() < max_llm_length_) {
      return absl::InvalidArgumentError(
          absl::StrCat("the chat writes token ", same,
                       " of the prompt otherwise where an answer follows, so it is not known which "
                       "tokens are the answer's; leave turns of the assistant out of the prompt, or use "
                       "another template"));
    }
    std::fill(tokens.weights.begin(), tokens.weights.begin() + same, 0.0f);
    return absl::OkStatus();
  }

  // Adds an item to a text from the template, in place of the token that its processor replaces.
  absl::Status AddWrittenItem(const SampleItem& item, const ItemPlaceholders& placeholders, bool last_item,
                              WrittenRun& text, Tokens& out) const {
    const MediumMarks& marks = marks_.of(item.medium);
    const auto mark = [&](const std::optional<int64_t>& id) {
      if (id.has_value()) out.Add(*id, false);
    };
    // If the template writes begin and end around the item, an item of one run has them already.
    const bool has_ends = marks.template_has_ends;
    const bool has_audio = HasAudio(placeholders);
    const bool runs_have_ends = !has_audio && (!has_ends || marks.wraps_runs);
    const bool wraps = !has_ends && (marks.wraps_runs || has_audio);
    text.Append(marks.before);
    if (wraps) {
      EVENKEEL_RETURN_IF_ERROR(text.Flush(*tokenizer_, /*whole=*/false, out));
      mark(marks.begin);
    }
    for (const PlaceholderRun& run : placeholders) {
      text.Append(run.text);
      if (IsTextAlone(run)) continue;
      EVENKEEL_RETURN_IF_ERROR(text.Flush(*tokenizer_, /*whole=*/false, out));
      if (AddTokens(run, marks, out)) continue;
      if (runs_have_ends) mark(marks.begin);
      AddRun(item, run, out);
      if (runs_have_ends) mark(&run == &placeholders.back() ? marks.last_end : marks.end);
    }
    if (wraps) mark(marks.end);
    if (last_item) mark(marks.behind_all);
    out.media_end = out.ids.size();
    text.Append(marks.after);
    return absl::OkStatus();
  }

  // The position and medium of the next media token at or after `at`, ignoring those that the sample's text
  // spells.
  std::pair<size_t, Medium> NextMedium(const TemplatedText& of, size_t at) const {
    std::pair<size_t, Medium> next = {std::string::npos, Medium::kText};
    for (size_t i = 0; i < kNumMedia; ++i) {
      const MediumMarks& marks = marks_.media[i];
      if (!marks.known) continue;
      size_t found = of.text.find(marks.in_template, at);
      while (found != std::string::npos && std::binary_search(of.spelled.begin(), of.spelled.end(), found))
        found = of.text.find(marks.in_template, found + 1);
      if (found < next.first) next = {found, static_cast<Medium>(i)};
    }
    return next;
  }

  absl::Status TokeniseTemplated(const Conversation& conversation, std::span<const SampleItem> items,
                                 std::span<const ItemPlaceholders> placeholders, Tokens& out) const {
    EVENKEEL_RETURN_IF_ERROR(CheckRuns(items, placeholders));
    EVENKEEL_RETURN_IF_ERROR(CheckMedia(items));
    TemplatedText& templated = ThreadScratch().templated;
    EVENKEEL_RETURN_IF_ERROR(templated_->Write(conversation, templated));
    if (templated.text.size() > max_text_bytes_) {
      return absl::ResourceExhaustedError(absl::StrCat("rendered text of ", templated.text.size(),
                                                       " bytes; limits.max_text_bytes is ", max_text_bytes_));
    }
    out.Clear();
    WrittenRun& text = ThreadScratch().written;
    text.Clear();
    // A processor lets the tokenizer add BOS unless the template wrote it; a tokenizer alone never adds it to
    // a chat.
    const bool adds =
        !style_.media.empty() && (bos_token_.empty() || !templated.text.starts_with(bos_token_));
    if (adds) {
      for (int64_t id : marks_.added_before) out.Add(id, false);
    }
    if (!templated.text.starts_with(marks_.processor_begin)) out.Add(marks_.processor_begin_id, false);
    size_t done = 0, next_item = 0;
    for (;;) {
      const auto [at, medium] = NextMedium(templated, done);
      if (at == std::string::npos) break;
      if (next_item == items.size() || items[next_item].medium != medium) {
        return absl::InvalidArgumentError(absl::StrCat(
            "the chat template writes ", MediumName(medium).data(), " as medium ", next_item,
            ", but the sample has ", next_item < items.size() ? "another medium there" : "no more media"));
      }
      text.Append(templated, done, at);
      EVENKEEL_RETURN_IF_ERROR(AddWrittenItem(items[next_item], placeholders[next_item],
                                              next_item + 1 == items.size(), text, out));
      ++next_item;
      done = at + marks_.of(medium).in_template.size();
    }
    if (next_item != items.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("the chat template writes ", next_item, " of the sample's ", items.size(), " media"));
    }
    text.Append(templated, done, templated.text.size());
    const bool whole = templated.by_blocks && style_.media.empty() && templated.spelled.empty();
    EVENKEEL_RETURN_IF_ERROR(text.Flush(*tokenizer_, whole, out));
    if (adds) {
      for (int64_t id : marks_.added_after) out.Add(id, false);
    }
    EVENKEEL_RETURN_IF_ERROR(Cut(out));
    return CheckPlaceholders(out);
  }

  absl::Status CheckMedia(std::span<const SampleItem> items) const {
    uint64_t rows = 0;
    for (size_t i = 0; i < items.size(); ++i) {
      if (!marks_.of(items[i].medium).known) {
        return absl::InvalidArgumentError(absl::StrCat("item ", i, " is ", MediumName(items[i].medium).data(),
                                                       "; the processor has no such medium"));
      }
      rows += items[i].lengths.output_rows;
    }
    return CheckLength(rows);
  }

  // Cuts the sequence to the limit if the job allows it and no medium would lose a token.
  absl::Status Cut(Tokens& tokens) const {
    if (!truncates_ || tokens.ids.size() <= max_llm_length_) return CheckLength(tokens.ids.size());
    if (tokens.media_end > max_llm_length_) {
      return absl::ResourceExhaustedError(absl::StrCat("the last medium ends at token ", tokens.media_end,
                                                       "; limits.max_llm_length is ", max_llm_length_,
                                                       " and media are never cut"));
    }
    tokens.Truncate(max_llm_length_);
    return absl::OkStatus();
  }

  // Checks that no text token is a placeholder: the model would take it for a row of an item.
  absl::Status CheckPlaceholders(const Tokens& tokens) const {
    for (size_t i = 0; i < tokens.ids.size(); ++i) {
      Medium medium = static_cast<Medium>(tokens.types[i]);
      if (medium != Medium::kText) continue;
      for (const MediumMarks& marks : marks_.media) {
        if (marks.known && tokens.ids[i] == marks.placeholder) {
          return absl::InternalError(absl::StrCat("token ", i, " is a placeholder that belongs to no item"));
        }
      }
    }
    return absl::OkStatus();
  }

  // Each run on a grid must have as many placeholders as its merged grid has cells; of a video with its audio, all of its
  // runs together.
  absl::Status Positions(const Tokens& tokens, std::vector<int64_t>& out) const {
    std::vector<GridSpan>& spans = Emptied(ThreadScratch().grids);
    for (const Tokens::Run& run : tokens.runs) {
      const bool is_audio = run.of->of == PlaceholderRun::Of::kAudio;
      const bool alternates = run.of->of != PlaceholderRun::Of::kItem;
      if (!marks_.of(alternates ? Medium::kVideo : run.medium).mrope) continue;
      // Of an item that alternates the first run has the grid.
      if (!is_audio && run.of->grid.t != 0) {
        EVENKEEL_ASSIGN_OR_RETURN(uint64_t merged, MergedTokens(run.of->grid, style_.merge_size));
        spans.push_back({run.begin, merged, run.medium, run.of->grid});
        if (!alternates && merged != run.of->rows) {
          return absl::InternalError(
              absl::StrCat("a grid of ", merged, " tokens and ", run.of->rows, " placeholders"));
        }
      }
      if (alternates) spans.back().runs.push_back({run.of->rows, is_audio});
    }
    for (const GridSpan& span : spans) EVENKEEL_RETURN_IF_ERROR(CheckAlternating(span));
    out.resize(3 * tokens.ids.size());
    WritePositions(spans,
                   {.merge_size = style_.merge_size,
                    .tokens_per_second = style_.tokens_per_second,
                    .after_time = style_.after_time,
                    .shares_end_positions = style_.shares_end_positions},
                   out);
    return absl::OkStatus();
  }

  static absl::Status CheckAlternating(const GridSpan& span) {
    uint64_t tokens = span.runs.empty() ? span.tokens : 0;
    for (const AlternatingRun& run : span.runs) tokens += run.is_audio ? 0 : run.tokens;
    if (tokens == span.tokens) return absl::OkStatus();
    return absl::InternalError(
        absl::StrCat("a grid of ", span.tokens, " tokens and ", tokens, " placeholders of its video"));
  }

  const std::unique_ptr<Tokenizer> tokenizer_;
  const Marks marks_;
  const ChatStyle& chat_;
  const std::unique_ptr<TemplatedChat> templated_;
  const std::string chat_words_;
  const std::string bos_token_;
  const std::string system_;
  const bool truncates_, has_loss_weights_, trains_all_;
  const uint64_t max_text_bytes_;
  const uint64_t max_llm_length_;
  const uint64_t vocabulary_;  // above every id
  const SequenceStyle style_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<SequenceBuilder>> SequenceBuilder::Load(
    const ProcessorSpec& spec, const Limits& limits, const SequenceStyle& style,
    std::shared_ptr<PythonProcesses> python) {
  const bool is_templated = spec.chat == kTemplateChat;
  EVENKEEL_ASSIGN_OR_RETURN(const ChatStyle* chat, ChatStyleFromName(is_templated ? kPlain.name : spec.chat));
  if (!is_templated && !chat->has_system && !spec.system.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("processor.system: a chat of style ",
                                                   std::string(chat->name),
                                                   " has no system prompt; leave it out"));
  }
  EVENKEEL_ASSIGN_OR_RETURN(std::unique_ptr<Tokenizer> tokenizer,
                            Tokenizer::Load(spec.tokenizer, spec.added_tokens, limits.max_text_bytes));
  EVENKEEL_ASSIGN_OR_RETURN(Marks marks, LoadMarks(*tokenizer, spec, *chat, style));
  std::unique_ptr<TemplatedChat> templated;
  if (is_templated) {
    EVENKEEL_ASSIGN_OR_RETURN(templated,
                              TemplatedChat::Load(spec, *tokenizer, style.media, limits, std::move(python)));
  }
  return std::unique_ptr<SequenceBuilder>(new ChatSequenceBuilder(
      std::move(tokenizer), std::move(marks), *chat, std::move(templated), spec, limits, style));
}

}  // namespace evenkeel::preprocess
