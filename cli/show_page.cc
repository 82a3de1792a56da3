// Writes samples as HTML. Pictures are the files of the data where a browser shows them, else bitmaps, both inside the page.
#include "cli/show_page.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "cli/show_terminal.h"

namespace evenkeel::cli {
namespace {

constexpr char kHead[] =
    R"(<meta http-equiv="Content-Security-Policy" content="default-src 'none'; img-src data:; style-src 'unsafe-inline'">
<style>
body { font: 14px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 70em; padding: 0 1em; color: #1a1a1a; background: #fff }
section { border-top: 1px solid #ccc; padding: 1em 0 }
h2 { font-size: 16px; overflow-wrap: anywhere }
img { max-width: 320px; max-height: 320px; margin: 4px; vertical-align: top; image-orientation: none }
.text { font: 13px/1.7 ui-monospace, monospace; white-space: pre-wrap; overflow-wrap: anywhere }
.text span { border-radius: 2px; background: #f0f0f0 }
.text span:nth-child(even) { background: #dedede }
.text .l { background: #c8f0c8 }
.text .l:nth-child(even) { background: #a4dca4 }
.text .m { background: #cfe8f5 }
.error { color: #b00020 }
td { padding: 0 1em 0 0 }
@media (prefers-color-scheme: dark) { body { color: #eee; background: #181818 } .text span { color: #111 } .error { color: #ff8a80 } }
</style>
)";
constexpr size_t kMaxTokens = 20000;  // of a run

// Visible text, safe between tags and inside quoted attributes.
std::string Escaped(std::string_view text) {
  return absl::StrReplaceAll(
      Visible(text), {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"\"", "&quot;"}, {"'", "&#39;"}});
}

void AppendNumber(uint32_t value, size_t bytes, std::string& out) {
  for (size_t i = 0; i < bytes; ++i) out += static_cast<char>(value >> (8 * i) & 0xff);
}

// A bitmap of 24 bits, which browsers read and which needs no library.
std::string Bitmap(const Thumbnail& picture) {
  const uint32_t stride = (3 * picture.width + 3) / 4 * 4, size = stride * picture.height;
  std::string out = "BM";
  for (const uint32_t value : {54 + size, 0u, 54u, 40u, picture.width, picture.height})
    AppendNumber(value, 4, out);
  AppendNumber(1, 2, out);
  AppendNumber(24, 2, out);
  for (const uint32_t value : {0u, size, 2835u, 2835u, 0u, 0u}) AppendNumber(value, 4, out);
  for (uint32_t y = picture.height; y-- > 0;) {
    for (uint32_t x = 0; x < picture.width; ++x) {
      const uint8_t* pixel = &picture.rgb[size_t{3} * (size_t{y} * picture.width + x)];
      for (const size_t channel : {2, 1, 0}) out += static_cast<char>(pixel[channel]);
    }
    out.append(stride - 3 * picture.width, '\0');
  }
  return out;
}

std::string Image(std::string_view type, std::string_view bytes) {
  return absl::StrCat("<img alt=\"\" src=\"data:image/", std::string(type), ";base64,",
                      absl::Base64Escape(absl::string_view(bytes.data(), bytes.size())), "\">");
}

// The type of a still by its first bytes; empty: none that browsers show.
std::string_view TypeOf(std::string_view bytes) {
  if (bytes.substr(0, 2) == "\xff\xd8") return "jpeg";
  if (bytes.substr(0, 4) == "\x89PNG") return "png";
  if (bytes.size() > 12 && bytes.substr(0, 4) == "RIFF" && bytes.substr(8, 4) == "WEBP") return "webp";
  return "";
}

std::string Waveform(std::span<const Swing> swings) {
  std::string path;
  for (size_t i = 0; i < swings.size(); ++i) {
    absl::StrAppendFormat(&path, "M%d %.1fV%.1f", i, 50 - 50 * std::clamp(swings[i].high, -1.0f, 1.0f),
                          50 - 50 * std::clamp(swings[i].low, -1.0f, 1.0f) + 0.2);
  }
  return absl::StrFormat(R"(<svg width="%d" height="100" role="img"><path d="%s" stroke="#2878a8"/></svg>)",
                         swings.size(), path);
}

void AppendItem(const ShownItem& item, size_t number, std::string& out) {
  absl::StrAppend(&out, "<p>item ", number, ": ", Escaped(DescribeItem(item)), "</p>\n<ul>");
  for (const ShownPlace& place : item.places) {
    absl::StrAppendFormat(&out, "<li>%s; %d rows in, %d rows out</li>", Escaped(DescribePlace(place)),
                          place.lengths.input_rows, place.lengths.output_rows);
  }
  out += "</ul>\n";
  if (!item.error.empty())
    absl::StrAppend(&out, "<p class=\"error\">cannot be decoded: ", Escaped(item.error), "</p>\n");
  const std::string_view source(reinterpret_cast<const char*>(item.source.data()), item.source.size());
  if (const std::string_view type = TypeOf(source); !type.empty()) {
    out += Image(type, source);
  } else {
    for (const Thumbnail& picture : item.pictures) out += Image("bmp", Bitmap(picture));
  }
  if (!item.waveform.empty()) out += Waveform(item.waveform);
  out += "\n";
}

void AppendRun(const ShownRun& run, std::string& out) {
  if (run.medium != Medium::kText) {
    absl::StrAppend(&out, "<span class=\"m\" title=\"", run.num_tokens, " placeholders of ",
                    std::string(MediumName(run.medium)), "\">",
                    run.tokens.empty() ? "" : Escaped(run.tokens.front().text), " x ", run.num_tokens,
                    "</span>");
    return;
  }
  for (size_t i = 0; i < std::min(run.tokens.size(), kMaxTokens); ++i) {
    const ShownToken& token = run.tokens[i];
    absl::StrAppend(&out, "<span", run.trained ? " class=\"l\"" : "", " title=\"",
                    absl::StrJoin(token.ids, " "), "\">", Escaped(token.text), "</span>");
    if (absl::StrContains(token.text, "\n")) out += "\n";
  }
  if (run.tokens.size() > kMaxTokens) absl::StrAppend(&out, " ... ", run.tokens.size() - kMaxTokens, " more");
}

}  // namespace

std::string ShowPage(const std::string& title, const std::string& note,
                     std::span<const ShownSample> samples) {
  std::string out =
      absl::StrCat("<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>", Escaped(title),
                   "</title>\n", kHead, "</head><body>\n<h1>", Escaped(title), "</h1>\n<p>", Escaped(note),
                   "</p>\n<p class=\"text\"><span class=\"l\">trained</span> <span>no loss</span> "
                   "<span class=\"m\">placeholders</span></p>\n");
  for (const ShownSample& sample : samples) {
    absl::StrAppend(&out, "<section>\n<h2>sample ", sample.number, ": ", Escaped(sample.name), "</h2>\n<p>");
    absl::StrAppendFormat(&out, "%s; %d tokens (%d with padding), %d with loss</p>\n",
                          Escaped(DescribePlace(sample.place)), sample.tokens, sample.llm_length,
                          sample.loss_tokens);
    if (!sample.error.empty()) {
      absl::StrAppend(&out, "<p class=\"error\">text cannot be delivered: ", Escaped(sample.error), "</p>\n");
    }
    if (!sample.columns.empty())
      absl::StrAppend(&out, "<p>columns <code>", Escaped(sample.columns), "</code></p>\n");
    for (size_t i = 0; i < sample.items.size(); ++i) AppendItem(sample.items[i], i, out);
    out += "<p class=\"text\">";
    for (const ShownRun& run : sample.runs) AppendRun(run, out);
    out += "</p>\n</section>\n";
  }
  return out + "</body></html>\n";
}

}  // namespace evenkeel::cli
