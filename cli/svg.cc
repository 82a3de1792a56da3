// Appends SVG elements to a string and writes the file.
#include "cli/svg.h"

#include <fstream>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"

namespace evenkeel::cli {
namespace {

std::string Escaped(std::string_view text) {
  return absl::StrReplaceAll(absl::string_view(text.data(), text.size()),
                             {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"\"", "&quot;"}});
}

}  // namespace

Svg::Svg(double width, double height, std::string_view title) {
  absl::StrAppendFormat(&body_,
                        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" "
                        "viewBox=\"0 0 %.0f %.0f\" font-family=\"sans-serif\">\n<title>%s</title>\n",
                        width, height, width, height, Escaped(title));
  Rectangle(0, 0, width, height, "#ffffff");
  Label(16, 24, title, Anchor::kStart, 16);
}

void Svg::Rectangle(double x, double y, double width, double height, std::string_view colour,
                    std::string_view title) {
  absl::StrAppendFormat(&body_, "<rect x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\" fill=\"%s\"", x,
                        y, width, height, std::string(colour));
  if (title.empty()) {
    body_ += "/>\n";
  } else {
    absl::StrAppendFormat(&body_, "><title>%s</title></rect>\n", Escaped(title));
  }
}

void Svg::Line(double x1, double y1, double x2, double y2, std::string_view colour) {
  absl::StrAppendFormat(&body_, "<line x1=\"%.2f\" y1=\"%.2f\" x2=\"%.2f\" y2=\"%.2f\" stroke=\"%s\"/>\n", x1,
                        y1, x2, y2, std::string(colour));
}

void Svg::Label(double x, double y, std::string_view text, Anchor anchor, int size, std::string_view colour) {
  const char* const anchors[] = {"start", "middle", "end"};
  absl::StrAppendFormat(
      &body_, "<text x=\"%.2f\" y=\"%.2f\" font-size=\"%d\" fill=\"%s\" text-anchor=\"%s\">%s</text>\n", x, y,
      size, std::string(colour), anchors[static_cast<int>(anchor)], Escaped(text));
}

absl::Status Svg::Write(const std::string& path) const {
  std::ofstream out(path, std::ios::binary);
  out << body_ << "</svg>\n";
  out.close();
  if (!out) return absl::UnavailableError(absl::StrCat(path, ": cannot be written"));
  return absl::OkStatus();
}

std::string_view Colour(size_t n) {
  static constexpr std::string_view kColours[] = {"#4477aa", "#ee6677", "#228833", "#ccbb44",
                                                  "#66ccee", "#aa3377", "#997700", "#777777"};
  return kColours[n % std::size(kColours)];
}

}  // namespace evenkeel::cli
