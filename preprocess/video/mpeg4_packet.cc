// Parses picture headers of MPEG-4 part 2 (ISO/IEC 14496-2), including packed B pictures in AVI.
#include "preprocess/video/mpeg4_packet.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <string_view>
#include <system_error>
#include <utility>

namespace evenkeel::preprocess {
namespace {

// Types of pictures, ISO/IEC 14496-2 6.3.5.
constexpr int kIntra = 0, kBidirectional = 2;
constexpr uint8_t kSequence = 0xb0, kUserData = 0xb2, kVop = 0xb6;
// FFmpeg's own limits: it treats a packet of at most 19 bytes as the placeholder of a kept picture, and keeps
// no picture of fewer than 8 bytes.
constexpr size_t kMaxPlaceholderBytes = 19, kMinPictureBytes = 8;

// The offset after the next start code (00 00 01 xx), or the size of `bytes` if there is none. The code's
// last byte, its type, is just before that offset.
size_t NextStartCode(std::span<const uint8_t> bytes, size_t from) {
  for (size_t at = from; at + 4 <= bytes.size(); ++at) {
    if (bytes[at] == 0 && bytes[at + 1] == 0 && bytes[at + 2] == 1) return at + 4;
  }
  return bytes.size();
}

// The same for the next start code of a picture (VOP).
size_t NextVop(std::span<const uint8_t> bytes, size_t from) {
  size_t at = NextStartCode(bytes, from);
  while (at < bytes.size() && bytes[at - 1] != kVop) at = NextStartCode(bytes, at);
  return at;
}

// Reads bits from the front, most significant first; zeros after the end.
class Bits {
 public:
  explicit Bits(std::span<const uint8_t> bytes) : bytes_(bytes) {}
  uint32_t Take(int count) {
    uint32_t value = 0;
    for (; count > 0; --count, ++at_) {
      const uint32_t bit = at_ / 8 < bytes_.size() ? bytes_[at_ / 8] >> (7 - at_ % 8) & 1u : 0;
      value = value << 1 | bit;
    }
    return value;
  }
  void Skip(int count) { at_ += static_cast<size_t>(count); }
  bool at_end() const { return at_ / 8 >= bytes_.size(); }

 private:
  std::span<const uint8_t> bytes_;
  size_t at_ = 0;
};

}  // namespace

Mpeg4Packets::Mpeg4Packets(std::span<const uint8_t> extradata) { (void)Read(extradata); }

// Video object layer header, ISO/IEC 14496-2, 6.2.3, up to vop_time_increment_resolution.
void Mpeg4Packets::ReadLayer(std::span<const uint8_t> bytes) {
  // The order of the fields: random_accessible_vol, video_object_type_indication; optional version and
  // priority; aspect ratio; optional control parameters with their buffer model; shape; a marker; the
  // resolution of times, which gives the number of bits of a picture's time.
  constexpr uint32_t kExtendedAspect = 15, kGrayscale = 3;
  Bits bits(bytes);
  bits.Skip(1 + 8);
  uint32_t version = 1;
  if (bits.Take(1) != 0) {
    version = bits.Take(4);
    bits.Skip(3);
  }
  if (bits.Take(4) == kExtendedAspect) bits.Skip(8 + 8);
  if (bits.Take(1) != 0) {
    bits.Skip(2 + 1);
    if (bits.Take(1) != 0) bits.Skip(15 + 1 + 15 + 1 + 15 + 1 + 3 + 11 + 1 + 15 + 1);
  }
  if (bits.Take(2) == kGrayscale && version != 1) bits.Skip(4);
  bits.Skip(1);
  const uint32_t resolution = bits.Take(16);
  if (resolution > 0) time_bits_ = std::max(1, static_cast<int>(std::bit_width(resolution - 1)));
}

// "DivX503b1393p" or "DivX503Build1393p": a trailing p means that pictures are packed.
void Mpeg4Packets::ReadUserData(std::span<const uint8_t> bytes) {
  std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  auto take = [&](std::string_view word) {
    const bool found = text.starts_with(word);
    if (found) text.remove_prefix(word.size());
    return found;
  };
  auto take_number = [&] {
    int number = 0;
    const std::from_chars_result read = std::from_chars(text.data(), text.data() + text.size(), number);
    text.remove_prefix(static_cast<size_t>(read.ptr - text.data()));
    return read.ec == std::errc();
  };
  if (!take("DivX") || !take_number() || !(take("Build") || take("b")) || !take_number()) return;
  is_packed_ = text.starts_with('p');
}

// Reads start codes up to the first picture. Its header begins with the type (2 bits), one set bit for each
// whole second that has passed and a clear one, a marker, the time within the second, a marker, and
// vop_coded.
std::optional<Mpeg4Packets::Vop> Mpeg4Packets::Read(std::span<const uint8_t> bytes) {
  layer_hash_ = 0;
  bool has_layer = false;
  for (size_t at = NextStartCode(bytes, 0); at < bytes.size(); at = NextStartCode(bytes, at)) {
    const uint8_t code = bytes[at - 1];
    const std::span<const uint8_t> after = bytes.subspan(at);
    if (code >= 0x20 && code <= 0x2f) {
      ReadLayer(after);
      has_layer = true;
    }
    if (code == kUserData) ReadUserData(after);
    if (code != kVop) continue;
    if (has_layer) layer_hash_ = HashParameterSets(bytes.first(at), 0);
    Bits bits(after);
    Vop vop{.type = static_cast<int>(bits.Take(2)), .end_of_code = at};
    while (bits.Take(1) != 0 && !bits.at_end()) {
    }
    bits.Skip(1 + time_bits_ + 1);
    if (time_bits_ > 0) vop.coded = bits.Take(1) != 0;
    return vop;
  }
  return std::nullopt;
}

// A decoder shows nothing before the first I picture, and a B picture only once there are two others for it to
// refer to.
bool Mpeg4Packets::Shows(const Vop& vop) {
  if (!vop.coded || (references_ == 0 && vop.type != kIntra)) return false;
  if (vop.type == kBidirectional) return references_ == 2;
  references_ = std::min(2, references_ + 1);
  return true;
}

// Keeps the picture after the decoded one if it is an I or a B picture.
void Mpeg4Packets::Keep(std::span<const uint8_t> packet, size_t from) {
  if (!is_packed_ || packet.size() - from < kMinPictureBytes) return;
  const std::span<const uint8_t> rest = packet.subspan(from);
  const size_t at = NextVop(rest, 0);
  if (at >= rest.size() || (rest[at] & 0x40) != 0) return;
  kept_ = Read(rest);
  displaces_ = true;
}

PictureKind Mpeg4Packets::Parse(std::span<const uint8_t> packet) {
  const size_t first = NextStartCode(packet, 0);
  const bool begins_anew = first < packet.size() && packet[first - 1] == kSequence;
  if (is_packed_ && begins_anew) kept_.reset();
  PictureKind kind;
  if (kept_.has_value() && (is_packed_ || packet.size() <= kMaxPlaceholderBytes)) {
    kind.shows = Shows(*std::exchange(kept_, std::nullopt));
    if (kind.shows) Keep(packet, 0);
    return kind;
  }
  kept_.reset();
  const std::optional<Vop> vop = Read(packet);
  if (!vop.has_value()) {
    kind.shows = false;
    return kind;
  }
  const uint64_t layer_hash = layer_hash_;
  kind.shows = Shows(*vop);
  if (kind.shows) Keep(packet, vop->end_of_code);
  if (NextVop(packet, vop->end_of_code) < packet.size()) return kind;
  kind.known = true;
  kind.starts = vop->type == kIntra;
  kind.disposable = vop->type == kBidirectional;
  kind.parameter_sets = layer_hash;
  return kind;
}

}  // namespace evenkeel::preprocess
