// Encodes and parses the headers of our active messages, field by field, so that padding and alignment do not
// matter.
#include "transport/ucx_message.h"

#include <bit>
#include <cstring>

namespace evenkeel::transport {
namespace {

static_assert(std::endian::native == std::endian::little, "the wire is little-endian; swap here");

constexpr uint32_t kVersion = 1;
constexpr std::array<char, 4> kGreetingMagic = {'E', 'V', 'K', 'S'};
constexpr std::array<char, 4> kPartMagic = {'E', 'V', 'K', 'D'};

class Writer {
 public:
  explicit Writer(std::span<std::byte> out) : out_(out) {}
  template <typename T>
  void Put(const T& value) {
    std::memcpy(out_.data(), &value, sizeof(value));
    out_ = out_.subspan(sizeof(value));
  }

 private:
  std::span<std::byte> out_;
};

class Reader {
 public:
  explicit Reader(std::span<const std::byte> in) : in_(in) {}
  template <typename T>
  T Take() {
    T value;
    std::memcpy(&value, in_.data(), sizeof(value));
    in_ = in_.subspan(sizeof(value));
    return value;
  }

 private:
  std::span<const std::byte> in_;
};

}  // namespace

GreetingBytes Pack(const Greeting& greeting) {
  GreetingBytes bytes;
  Writer writer(bytes);
  writer.Put(kGreetingMagic);
  writer.Put(kVersion);
  writer.Put(greeting.session);
  writer.Put(greeting.secret);
  return bytes;
}

PartMessageBytes Pack(const PartMessage& message) {
  PartMessageBytes bytes;
  Writer writer(bytes);
  writer.Put(kPartMagic);
  writer.Put(kVersion);
  writer.Put(message.session);
  writer.Put(message.request);
  writer.Put(message.length);
  writer.Put(message.offset);
  writer.Put(message.hash.bytes);
  writer.Put(message.secret);
  return bytes;
}

std::optional<Greeting> UnpackGreeting(std::span<const std::byte> bytes) {
  if (bytes.size() != kGreetingBytes) return std::nullopt;
  Reader reader(bytes);
  if (reader.Take<std::array<char, 4>>() != kGreetingMagic) return std::nullopt;
  if (reader.Take<uint32_t>() != kVersion) return std::nullopt;
  Greeting greeting;
  greeting.session = reader.Take<SessionId>();
  greeting.secret = reader.Take<Secret>();
  return greeting;
}

std::optional<PartMessage> UnpackPartMessage(std::span<const std::byte> bytes) {
  if (bytes.size() != kPartMessageBytes) return std::nullopt;
  Reader reader(bytes);
  if (reader.Take<std::array<char, 4>>() != kPartMagic) return std::nullopt;
  if (reader.Take<uint32_t>() != kVersion) return std::nullopt;
  PartMessage message;
  message.session = reader.Take<SessionId>();
  message.request = reader.Take<RequestId>();
  message.length = reader.Take<uint64_t>();
  message.offset = reader.Take<uint64_t>();
  message.hash.bytes = reader.Take<std::array<uint8_t, 16>>();
  message.secret = reader.Take<Secret>();
  return message;
}

}  // namespace evenkeel::transport
