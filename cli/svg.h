// Builds an SVG picture from rectangles, lines and labels in pixels; the top left corner is (0, 0).
// Thread safety: for one thread.
#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace evenkeel::cli {

enum class Anchor { kStart, kMiddle, kEnd };

class Svg {
 public:
  Svg(double width, double height, std::string_view title);

  // `title` is shown while the mouse is over the rectangle; empty: nothing.
  void Rectangle(double x, double y, double width, double height, std::string_view colour,
                 std::string_view title = "");
  void Line(double x1, double y1, double x2, double y2, std::string_view colour);
  void Label(double x, double y, std::string_view text, Anchor anchor = Anchor::kStart, int size = 12,
             std::string_view colour = "#333333");

  // Unavailable: the file cannot be written.
  absl::Status Write(const std::string& path) const;

 private:
  std::string body_;
};

// A legible colour for the n-th of several things.
std::string_view Colour(size_t n);

}  // namespace evenkeel::cli
