// Little-endian numbers and varints for the index's files. Pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace evenkeel::dataset {

// `size` low bytes of `value`.
inline void PutLittle(uint64_t value, int size, std::string& out) {
  for (int i = 0; i < size; ++i) out.push_back(static_cast<char>(value >> (8 * i)));
}
template <typename Byte>
uint64_t GetLittle(const Byte* bytes, int size) {
  uint64_t value = 0;
  for (int i = 0; i < size; ++i) value |= static_cast<uint64_t>(static_cast<uint8_t>(bytes[i])) << (8 * i);
  return value;
}
// The same number with its sign.
template <typename Byte>
int64_t GetLittleSigned(const Byte* bytes, int size) {
  const int unused = 64 - 8 * size;
  return static_cast<int64_t>(GetLittle(bytes, size) << unused) >> unused;
}

// LEB128.
inline void PutVarint(uint64_t value, std::string& out) {
  for (; value >= 0x80; value >>= 7) out.push_back(static_cast<char>(value | 0x80));
  out.push_back(static_cast<char>(value));
}
inline void PutText(std::string_view text, std::string& out) {
  PutVarint(text.size(), out);
  out.append(text);
}

// Reads values from the front of untrusted bytes. After a failure every value is 0 and ok() is false.
class FieldReader {
 public:
  explicit FieldReader(std::string_view bytes) : rest_(bytes) {}

  uint64_t Varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64 && !rest_.empty(); shift += 7) {
      uint8_t byte = static_cast<uint8_t>(rest_[0]);
      rest_.remove_prefix(1);
      value |= static_cast<uint64_t>(byte & 0x7F) << shift;
      if (byte < 0x80) return value;
    }
    return Fail();
  }
  uint64_t Little(size_t bytes) {
    if (bytes > rest_.size()) return Fail();
    uint64_t value = GetLittle(rest_.data(), bytes);
    rest_.remove_prefix(bytes);
    return value;
  }
  std::string Text() {
    uint64_t size = Varint();
    if (size > rest_.size()) {
      Fail();
      return "";
    }
    std::string text(rest_.substr(0, size));
    rest_.remove_prefix(size);
    return text;
  }
  bool ok() const { return ok_; }
  bool empty() const { return rest_.empty(); }
  size_t remaining() const { return rest_.size(); }

 private:
  uint64_t Fail() {
    ok_ = false;
    rest_ = {};
    return 0;
  }
  std::string_view rest_;
  bool ok_ = true;
};

}  // namespace evenkeel::dataset
