#include "transport/copy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace evenkeel::transport {
namespace {

TEST(CopyPastCaches, CopiesWhatMemcpyCopiesAndNothingElse) {
  std::vector<std::byte> source(1024);
  for (size_t i = 0; i < source.size(); ++i) source[i] = static_cast<std::byte>(i * 37 + i / 256);
  for (size_t from : {0, 1, 16, 63}) {
    for (size_t to = 0; to < 66; ++to) {
      for (size_t bytes : {0, 1, 15, 63, 64, 65, 127, 128, 300, 513}) {
        std::vector<std::byte> copied(1024, std::byte{0x5a}), expected = copied;
        CopyPastCaches(std::span(copied).subspan(to, bytes), std::span(source).subspan(from, bytes));
        std::copy_n(source.begin() + from, bytes, expected.begin() + to);
        ASSERT_TRUE(copied == expected) << from << " " << to << " " << bytes;
      }
    }
  }
}

}  // namespace
}  // namespace evenkeel::transport
