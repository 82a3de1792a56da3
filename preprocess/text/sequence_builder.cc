#include "preprocess/text/sequence_builder.h"

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/scratch.h"
#include "core/status.h"
#include "preprocess/text/positions.h"
#include "preprocess/text/rendering.h"

namespace evenkeel::preprocess {
namespace {

constexpr int64_t kNoLoss = -100;
// Ends of a text, of which a tokenizer has one; the first that it has is meant. Gemma's has "</s>", too, for
// HTML.
constexpr const char* kTextEnds[] = {"<|endoftext|>", "<|end_of_text|>", "<eos>", "</s>"};
constexpr size_t kNumMedia = 4;

struct MediumMarks {
  bool known = false;
  bool mrope = false;
  bool wraps_runs = false;
  std::string before, after;
  std::optional<int64_t> begin, end, last_end, behind_all;
  int64_t placeholder = 0;
  std::vector<int64_t> tokens;  // that runs name
};

struct Marks {
  std::map<std::string, int64_t, std::less<>> of_style;
  std::optional<int64_t> text_begin;
  int64_t text_end = 0;
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
  std::vector<uint8_t> trained;
  std::vector<uint8_t> types;
  std::vector<Run> runs;
  uint64_t media_end = 0;  // behind the last mark of the last medium
  bool begun = false;      // something stands before the next text, the style's text_begin aside

  void Clear() {
    Emptied(ids);
    Emptied(trained);
    Emptied(types);
    Emptied(runs);
    media_end = 0;
    begun = false;
  }
  void Add(int64_t id, bool is_trained) {
    ids.push_back(id);
    trained.push_back(is_trained);
    types.push_back(static_cast<uint8_t>(Medium::kText));
  }
  void AddPlaceholders(int64_t id, uint64_t count, Medium medium) {
    ids.insert(ids.end(), count, id);
    trained.insert(trained.end(), count, 0);
    types.insert(types.end(), count, static_cast<uint8_t>(medium));
  }
  void Truncate(uint64_t length) {
    ids.resize(length);
    trained.resize(length);
    types.resize(length);
  }
};

// Adjacent text stretches: one text for the tokenizer.
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

  // Tokenises what was appended, adds it to `out`, and is empty again. A mark or an item follows, or the end.
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
  // Whether a token has a byte in a trained stretch, as the masks of apply_chat_template count it. Several
  // tokens of one character all end with it, and are where it is.
  bool TouchesTrained(uint64_t begin, uint64_t end) const {
    begin = std::min(begin, end == 0 ? 0 : end - 1);
    auto it = std::upper_bound(ends_.begin(), ends_.end(), begin,
                               [](uint64_t byte, const End& stretch) { return byte < stretch.end; });
    // Neighbours differ, so that of two stretches that a token lies in one is trained.
    return it != ends_.end() && (it->trained || it->end < end);
  }

  std::string text_;
  std::vector<End> ends_;  // ascending; neighbours differ in `trained`
};

// What a thread keeps from one conversation to the next.
struct Scratch {
  Rendering rendering;
  TextRun text;
  Tokens tokens;
  std::vector<GridSpan> grids;
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

// The id of a mark. It must be a special token, or a sample's text could spell it; and it must cut the text
// in two, or a sequence tokenised in pieces would differ from the same sequence tokenised as a whole.
absl::StatusOr<int64_t> MarkId(const Tokenizer& tokenizer, const std::string& folder,
                               const std::string& token) {
  std::optional<int64_t> id = tokenizer.TokenToId(token);
  if (!id.has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat(folder, "/tokenizer.json: has no token '", token,
                     "'; name it in processor.added_tokens of the job to add it"));
  }
  EVENKEEL_ASSIGN_OR_RETURN(std::vector<int64_t> spelt, IdsOfText(tokenizer, token, TextPlace::kFirst));
  if (std::find(spelt.begin(), spelt.end(), *id) != spelt.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat(folder, "/tokenizer.json: token '", token,
                     "' is not marked special, so that a sample's text could spell it; name it in "
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
        "' changes how its neighbours are tokenised (lstrip, rstrip, single_word); this is not implemented"));
  }
  return *id;
}

absl::StatusOr<MediumMarks> LoadMediumMarks(const Tokenizer& tokenizer, const std::string& folder,
                                            const MediumStyle& style) {
  MediumMarks out{.known = true,
                  .mrope = style.mrope,
                  .wraps_runs = style.wraps_runs,
                  .before = style.before,
                  .after = style.after};
  EVENKEEL_ASSIGN_OR_RETURN(out.placeholder, MarkId(tokenizer, folder, style.placeholder));
  const std::pair<std::optional<int64_t>&, const std::string&> marks[] = {
      {out.begin, style.begin},
      {out.end, style.end},
      {out.last_end, style.last_end.empty() ? style.end : style.last_end},
      {out.behind_all, style.behind_all}};
  for (const auto& [id, token] : marks) {
    if (token.empty()) continue;
    EVENKEEL_ASSIGN_OR_RETURN(id, MarkId(tokenizer, folder, token));
  }
  for (const std::string& token : style.tokens) {
    EVENKEEL_ASSIGN_OR_RETURN(const int64_t id, MarkId(tokenizer, folder, token));
    out.tokens.push_back(id);
  }
  return out;
}

absl::StatusOr<int64_t> TextEndId(const Tokenizer& tokenizer, const std::string& folder) {
  for (const char* token : kTextEnds) {
    if (tokenizer.TokenToId(token).has_value()) return MarkId(tokenizer, folder, token);
  }
  return MarkId(tokenizer, folder, kTextEnds[0]);  // says that it is missing
}

absl::StatusOr<Marks> LoadMarks(const Tokenizer& tokenizer, const std::string& folder, const ChatStyle& chat,
                                const SequenceStyle& style) {
  Marks out;
  for (std::string_view mark : chat.marks) {
    EVENKEEL_ASSIGN_OR_RETURN(out.of_style[std::string(mark)], MarkId(tokenizer, folder, std::string(mark)));
  }
  if (!chat.text_begin.empty()) {
    EVENKEEL_ASSIGN_OR_RETURN(out.text_begin, MarkId(tokenizer, folder, std::string(chat.text_begin)));
  }
  EVENKEEL_ASSIGN_OR_RETURN(out.text_end, TextEndId(tokenizer, folder));
  for (const MediumStyle& medium : style.media) {
    MediumMarks& of = out.media[static_cast<size_t>(medium.medium)];
    if (medium.medium == Medium::kText || of.known) {
      return absl::InternalError(absl::StrCat("two styles for ", MediumName(medium.medium).data()));
    }
    EVENKEEL_ASSIGN_OR_RETURN(of, LoadMediumMarks(tokenizer, folder, medium));
  }
  return out;
}

class ChatSequenceBuilder : public SequenceBuilder {
 public:
  ChatSequenceBuilder(std::unique_ptr<Tokenizer> tokenizer, Marks marks, const ChatStyle& chat,
                      const ProcessorSpec& spec, const Limits& limits, SequenceStyle style)
      : tokenizer_(std::move(tokenizer)),
        marks_(std::move(marks)),
        chat_(chat),
        system_(spec.system),
        truncates_(spec.truncate == "text"),
        max_text_bytes_(limits.max_text_bytes),
        max_llm_length_(limits.max_llm_length),
        style_(std::move(style)) {}

  absl::StatusOr<SequenceLengths> Measure(const Conversation& conversation, std::span<const SampleItem> items,
                                          std::span<const ItemPlaceholders> placeholders) const override {
    Tokens& tokens = ThreadScratch().tokens;
    EVENKEEL_RETURN_IF_ERROR(Tokenise(conversation, items, placeholders, tokens));
    SequenceLengths out;
    out.llm_length = static_cast<uint32_t>(tokens.ids.size());
    for (size_t i = 1; i < tokens.trained.size(); ++i) out.loss_tokens += tokens.trained[i];
    return out;
  }

  absl::Status Build(const Conversation& conversation, std::span<const SampleItem> items,
                     std::span<const ItemPlaceholders> placeholders, Sequence& out) const override {
    Tokens& tokens = ThreadScratch().tokens;
    EVENKEEL_RETURN_IF_ERROR(Tokenise(conversation, items, placeholders, tokens));
    EVENKEEL_RETURN_IF_ERROR(Positions(tokens, out.positions));
    out.input_ids.assign(tokens.ids.begin(), tokens.ids.end());
    out.token_types.assign(tokens.types.begin(), tokens.types.end());
    out.labels.assign(tokens.ids.size(), kNoLoss);
    for (size_t i = 1; i < tokens.ids.size(); ++i) {
      if (tokens.trained[i]) out.labels[i] = tokens.ids[i];
    }
    return absl::OkStatus();
  }

  int64_t pad_token() const override { return marks_.text_end; }
  bool has_grid_positions(Medium medium) const override { return marks_.of(medium).mrope; }
  const Tokenizer& tokenizer() const override { return *tokenizer_; }

  void AddTo(CanonicalText& text) const override {
    text.Add("tokenizer", tokenizer_->digest().Hex());
    text.Add("chat", chat_.name);
    text.Add("system", system_);
    if (truncates_) text.Add("truncate", std::string_view("text"));
    for (const MediumStyle& medium : style_.media) {
      text.Add(absl::StrCat(MediumName(medium.medium).data(), ".begin"), medium.begin);
      text.Add(absl::StrCat(MediumName(medium.medium).data(), ".placeholder"), medium.placeholder);
      text.Add(absl::StrCat(MediumName(medium.medium).data(), ".end"), medium.end);
      text.Add(absl::StrCat(MediumName(medium.medium).data(), ".mrope"), uint64_t{medium.mrope});
      if (medium.wraps_runs)
        text.Add(absl::StrCat(MediumName(medium.medium).data(), ".wraps_runs"), uint64_t{1});
      for (const auto& [key, value] : {std::pair(".before", &medium.before),
                                       {".after", &medium.after},
                                       {".last_end", &medium.last_end},
                                       {".behind_all", &medium.behind_all}}) {
        if (!value->empty()) text.Add(absl::StrCat(MediumName(medium.medium).data(), key), *value);
      }
      for (const std::string& token : medium.tokens) {
        text.Add(absl::StrCat(MediumName(medium.medium).data(), ".token"), token);
      }
    }
    text.Add("merge_size", uint64_t{style_.merge_size});
    text.Add("tokens_per_second", uint64_t{style_.tokens_per_second});
    if (style_.after_time) text.Add("after_time", uint64_t{1});
  }

 private:
  // Every item exactly once and in order, as it was declared; and what they alone would make of the limits.
  absl::Status Check(std::span<const Stretch> stretches, std::span<const SampleItem> items) const {
    uint64_t text_bytes = 0;
    uint64_t rows = 0;
    uint32_t next_item = 0;
    for (const Stretch& stretch : stretches) {
      if (stretch.kind == Stretch::Kind::kText) text_bytes += stretch.text.size();
      if (stretch.kind != Stretch::Kind::kItem) continue;
      if (stretch.item != next_item || stretch.item >= items.size()) {
        return absl::InvalidArgumentError(absl::StrCat("the conversation names item ", stretch.item, " of ",
                                                       items.size(), " where item ", next_item, " is next"));
      }
      const SampleItem& item = items[next_item++];
      if (item.medium != stretch.medium || !marks_.of(item.medium).known) {
        return absl::InvalidArgumentError(
            absl::StrCat("item ", stretch.item, " is ", MediumName(item.medium).data(),
                         "; the conversation says ", MediumName(stretch.medium).data(),
                         marks_.of(item.medium).known ? "" : "; the processor has no such medium"));
      }
      rows += item.lengths.output_rows;
    }
    if (next_item != items.size()) {
      return absl::InvalidArgumentError(
          absl::StrCat("the conversation names ", next_item, " of ", items.size(), " items"));
    }
    if (text_bytes > max_text_bytes_) {
      return absl::ResourceExhaustedError(absl::StrCat("rendered text of ", text_bytes,
                                                       " bytes; limits.max_text_bytes is ", max_text_bytes_));
    }
    return CheckLength(rows);
  }

  // Turns that the style's template fails on.
  absl::Status CheckTurns(const Conversation& conversation) const {
    if (chat_.refusal == nullptr || conversation.plain) return absl::OkStatus();
    for (size_t i = 0; i < conversation.turns.size(); ++i) {
      const std::string_view why = chat_.refusal(conversation.turns, i);
      if (why.empty()) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("turn ", i, " ", std::string(why), ", and chats of style ", std::string(chat_.name),
                       " cannot be written so: the model's own template fails on it"));
    }
    return absl::OkStatus();
  }

  // What templates write into the text is never left out of it without a word.
  absl::Status CheckTools(const Conversation& conversation) const {
    if (chat_.has_tools || (conversation.tools.empty() && conversation.calls.empty()))
      return absl::OkStatus();
    const auto calling = std::find_if(conversation.turns.begin(), conversation.turns.end(),
                                      [](const Turn& turn) { return turn.calls != 0; });
    return absl::InvalidArgumentError(absl::StrCat(
        conversation.tools.empty()
            ? absl::StrCat("turn ", calling - conversation.turns.begin(), " has 'tool_calls'")
            : "the chat has 'tools'",
        ", which chats of style ", std::string(chat_.name),
        " do not write; write what the model's template makes of them into 'content', or leave them out"));
  }

  // Before any memory is taken: the runs of every item are what was planned for it.
  absl::Status CheckRuns(std::span<const SampleItem> items,
                         std::span<const ItemPlaceholders> placeholders) const {
    if (placeholders.size() != items.size()) {
      return absl::InternalError(
          absl::StrCat("placeholders of ", placeholders.size(), " items for ", items.size(), " items"));
    }
    for (size_t i = 0; i < items.size(); ++i) {
      uint64_t rows = 0;
      for (const PlaceholderRun& run : placeholders[i]) {
        rows += run.rows;
        if (!run.token.has_value()) continue;
        if (run.rows != 0 || *run.token >= marks_.of(items[i].medium).tokens.size()) {
          return absl::InternalError(
              absl::StrCat("item ", i, " has a piece that names no token of its style"));
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

  // Text that stands before a run belongs to the text before the item, what stands behind all of them to the
  // text behind it.
  absl::Status AddItem(Medium medium, const ItemPlaceholders& placeholders, bool last_item, TextRun& text,
                       Tokens& out) const {
    const MediumMarks& marks = marks_.of(medium);
    auto mark = [&](const std::optional<int64_t>& id) {
      if (id.has_value()) out.Add(*id, false);
    };
    text.Append(marks.before, /*trained=*/false);
    if (marks.wraps_runs) {
      EVENKEEL_RETURN_IF_ERROR(text.Flush(*tokenizer_, out));
      mark(marks.begin);
    }
    for (const PlaceholderRun& run : placeholders) {
      text.Append(run.text, /*trained=*/false);
      if (run.rows == 0 && !run.token.has_value()) continue;  // text alone, which joins what follows
      EVENKEEL_RETURN_IF_ERROR(text.Flush(*tokenizer_, out));
      if (run.token.has_value()) {
        out.Add(marks.tokens[*run.token], false);
        continue;
      }
      mark(marks.begin);
      out.runs.push_back({out.ids.size(), medium, &run});
      out.AddPlaceholders(marks.placeholder, run.rows, medium);
      mark(&run == &placeholders.back() ? marks.last_end : marks.end);
    }
    if (marks.wraps_runs) mark(marks.end);
    if (last_item) mark(marks.behind_all);
    out.media_end = out.ids.size();
    text.Append(marks.after, /*trained=*/false);
    return absl::OkStatus();
  }

  absl::Status Tokenise(const Conversation& conversation, std::span<const SampleItem> items,
                        std::span<const ItemPlaceholders> placeholders, Tokens& out) const {
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
        EVENKEEL_RETURN_IF_ERROR(
            AddItem(stretch.medium, placeholders[stretch.item], stretch.item + 1 == items.size(), text, out));
        continue;
      }
      EVENKEEL_RETURN_IF_ERROR(text.Flush(*tokenizer_, out));
      const bool is_mark = stretch.kind == Stretch::Kind::kMark;
      out.Add(is_mark ? marks_.of_style.find(stretch.text)->second : marks_.text_end, stretch.trained);
    }
    EVENKEEL_RETURN_IF_ERROR(text.Flush(*tokenizer_, out));
    EVENKEEL_RETURN_IF_ERROR(Cut(out));
    return CheckPlaceholders(out);
  }

  // To the limit, where the job wants that and no medium stands beyond it.
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

  // Placeholders stand where items are and nowhere else.
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

  absl::Status Positions(const Tokens& tokens, std::vector<int64_t>& out) const {
    std::vector<GridSpan>& spans = Emptied(ThreadScratch().grids);
    for (const Tokens::Run& run : tokens.runs) {
      if (!marks_.of(run.medium).mrope) continue;
      EVENKEEL_ASSIGN_OR_RETURN(uint64_t merged, MergedTokens(run.of->grid, style_.merge_size));
      if (merged != run.of->rows) {
        return absl::InternalError(
            absl::StrCat("a grid of ", merged, " tokens and ", run.of->rows, " placeholders"));
      }
      spans.push_back({run.begin, merged, run.medium, run.of->grid});
    }
    out.resize(3 * tokens.ids.size());
    WritePositions(spans, style_.merge_size, style_.tokens_per_second, out, style_.after_time);
    return absl::OkStatus();
  }

  const std::unique_ptr<Tokenizer> tokenizer_;
  const Marks marks_;
  const ChatStyle& chat_;
  const std::string system_;
  const bool truncates_;
  const uint64_t max_text_bytes_;
  const uint64_t max_llm_length_;
  const SequenceStyle style_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<SequenceBuilder>> SequenceBuilder::Load(const ProcessorSpec& spec,
                                                                       const Limits& limits,
                                                                       const SequenceStyle& style) {
  EVENKEEL_ASSIGN_OR_RETURN(const ChatStyle* chat, ChatStyleFromName(spec.chat));
  if (!chat->has_system && !spec.system.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "processor.system: a chat of style ", std::string(chat->name), " has no system prompt; use chatml"));
  }
  EVENKEEL_ASSIGN_OR_RETURN(std::unique_ptr<Tokenizer> tokenizer,
                            Tokenizer::Load(spec.tokenizer, spec.added_tokens, limits.max_text_bytes));
  EVENKEEL_ASSIGN_OR_RETURN(Marks marks, LoadMarks(*tokenizer, spec.tokenizer, *chat, style));
  return std::unique_ptr<SequenceBuilder>(
      new ChatSequenceBuilder(std::move(tokenizer), std::move(marks), *chat, spec, limits, style));
}

}  // namespace evenkeel::preprocess
