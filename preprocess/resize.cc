#include "preprocess/resize.h"

namespace evenkeel {

void InterleavedRows::Take(const PlanarRow& row) {
  uint8_t* out = rgb_.data();
  for (uint32_t x = 0; x < row.width; ++x, out += 3) {
    for (int c = 0; c < 3; ++c) out[c] = row.plane[c][x];
  }
  rgb_ = rgb_.subspan(size_t{3} * row.width);
}

}  // namespace evenkeel
