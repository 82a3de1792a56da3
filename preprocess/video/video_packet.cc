// Reads picture types from packet headers, codec by codec. Only the bits that decide about showing and
// referencing are read; section numbers refer to the codec's specification.
#include "preprocess/video/video_packet.h"

#include <algorithm>
#include <cstddef>

namespace evenkeel::preprocess {
namespace {

// ITU-T H.264, 7.3.1 and table 7-1. The first byte has nal_ref_idc (bits 5 and 6; 0: no picture refers to
// this one) and the type: 1 to 5 are slices, 5 of an IDR picture, after which nothing refers to earlier
// pictures. A picture is a start, or disposable, if all of its slices are; `first`: no slice came yet.
void AddH264(std::span<const uint8_t> unit, PictureKind& kind, bool& first) {
  const int type = unit[0] & 31;
  if (type == 7 || type == 8 || type == 13 || type == 15) {  // parameter sets
    kind.parameter_sets = HashParameterSets(unit, kind.parameter_sets);
  }
  if (type < 1 || type > 5) return;
  const bool disposable = (unit[0] & 0x60) == 0;
  kind.starts = type == 5 && (first || kind.starts);
  kind.disposable = disposable && (first || kind.disposable);
  first = false;
}

// ITU-T H.265, 7.3.1.2 and table 7-1. The first two bytes have the type (6 bits), the layer (6 bits, 0 for
// the base) and the temporal layer plus 1 (3 bits). Types below 32 are slices: 16 to 23 are IRAP pictures
// (access points), and the even ones below 16 are not referred to within their temporal layer. 32 to 34 are
// parameter sets.
void AddHevc(std::span<const uint8_t> unit, PictureKind& kind, bool& first) {
  const int type = unit[0] >> 1 & 63;
  if (type >= 32 && type <= 34) kind.parameter_sets = HashParameterSets(unit, kind.parameter_sets);
  if (type > 31 || unit.size() < 3 || ((unit[0] & 1) << 5 | unit[1] >> 3) != 0) return;  // other layers
  const bool drops_earlier_ones = (unit[2] & 0x40) != 0;                                 // at an IRAP picture
  const bool starts = type >= 16 && type <= 21 && !drops_earlier_ones;
  kind.irap |= type >= 16 && type <= 23;
  kind.starts = starts && (first || kind.starts);
  kind.disposable = type < 16 && type % 2 == 0 && (first || kind.disposable);
  kind.layer = (unit[1] & 7) - 1;
  first = false;
}

// RFC 6386, 9.1: bit 0 of the frame tag is 0 for a key frame, bit 4 is show_frame.
PictureKind ParseVp8(std::span<const uint8_t> packet) {
  return {.known = true, .shows = (packet[0] & 0x10) != 0, .starts = (packet[0] & 1) == 0};
}

// VP9 bitstream specification, 6.2 and annex B. From the top bit: the marker 2 (2 bits), the profile (2), a
// reserved bit only for profile 3, show_existing_frame, frame_type (0: key) and show_frame, which profile 3
// has in the second byte.
PictureKind ParseVp9(std::span<const uint8_t> packet) {
  if (packet[0] >> 6 != 2) return {};
  const bool several = (packet.back() & 0xe0) == 0xc0;   // a superframe: its last frame is shown
  const int shift = (packet[0] & 0x30) == 0x30 ? 1 : 0;  // profile 3 has an additional bit
  const int bits = packet[0] << shift;
  const bool again = (bits & 8) != 0, key = (bits & 4) == 0;
  const bool shown = shift == 0 ? (bits & 2) != 0 : packet.size() > 1 && (packet[0] & 1) != 0;
  return {.known = true, .shows = several || again || shown, .starts = key && shown && !again};
}

// AV1 bitstream specification, 5.3 and 5.9: the first frame header of a temporal unit. A unit is a list of
// OBUs, each with its type (bits 3 to 6), an extension byte (bit 2) and its size as LEB128 (bit 1; without it
// the OBU is the last one). Type 1 is a sequence header, 3 and 6 begin with a frame header, whose first four
// bits are show_existing_frame, frame_type (2 bits, 0: key) and show_frame.
PictureKind ParseAv1(std::span<const uint8_t> packet) {
  bool has_sequence_header = false;
  for (size_t at = 0; at < packet.size();) {
    const int type = packet[at] >> 3 & 15;
    const bool extended = (packet[at] & 4) != 0, sized = (packet[at] & 2) != 0;
    at += extended ? 2 : 1;
    size_t size = packet.size() - std::min(at, packet.size());
    if (sized) {
      size = 0;
      for (int shift = 0; shift < 32; shift += 7) {
        if (at >= packet.size()) return {};
        const uint8_t byte = packet[at++];
        size |= size_t{byte & 127u} << shift;
        if (byte < 128) break;
      }
    }
    if (size > packet.size() - std::min(at, packet.size())) return {};
    if (type == 1) has_sequence_header = true;
    if ((type == 3 || type == 6) && size > 0) {
      return {.known = true, .starts = has_sequence_header && (packet[at] & 0xf0) == 0x10};
    }
    at += size;
  }
  return {};
}

}  // namespace

// 64-bit FNV-1a.
uint64_t HashParameterSets(std::span<const uint8_t> bytes, uint64_t hash) {
  if (hash == 0) hash = 14695981039346656037u;
  for (uint8_t byte : bytes) hash = (hash ^ byte) * 1099511628211u;
  return hash;
}

PictureParser::PictureParser(const AVCodecParameters& parameters) : codec_(parameters.codec_id) {
  const std::span<const uint8_t> extra(parameters.extradata, static_cast<size_t>(parameters.extradata_size));
  if (codec_ == AV_CODEC_ID_H264 && extra.size() > 6 && extra[0] == 1) nal_length_bytes_ = (extra[4] & 3) + 1;
  if (codec_ == AV_CODEC_ID_HEVC && extra.size() > 22 && (extra[0] != 0 || extra[1] != 0 || extra[2] > 1)) {
    nal_length_bytes_ = (extra[21] & 3) + 1;
  }
  if (codec_ == AV_CODEC_ID_MPEG4) mpeg4_.emplace(extra);
}

bool PictureParser::in_order() const {
  switch (codec_) {
    case AV_CODEC_ID_H264:
    case AV_CODEC_ID_HEVC:
    case AV_CODEC_ID_MPEG4:
      return false;
    default:
      return true;
  }
}

PictureKind PictureParser::ParseNalUnits(std::span<const uint8_t> packet) {
  if (nal_length_bytes_ == 0) return {};
  PictureKind kind;
  bool first = true;
  while (packet.size() > nal_length_bytes_) {
    size_t size = 0;
    for (uint32_t i = 0; i < nal_length_bytes_; ++i) size = size << 8 | packet[i];
    packet = packet.subspan(nal_length_bytes_);
    if (size == 0 || size > packet.size()) return {};
    (codec_ == AV_CODEC_ID_H264 ? AddH264 : AddHevc)(packet.first(size), kind, first);
    packet = packet.subspan(size);
  }
  kind.known = !first;
  // Pictures before the first access point refer to missing ones: FFmpeg 5 decodes them with grey references,
  // later releases skip them.
  has_access_point_ |= kind.irap || codec_ == AV_CODEC_ID_H264;
  kind.shows = has_access_point_;
  return kind;
}

PictureKind PictureParser::Parse(std::span<const uint8_t> packet) {
  if (packet.empty()) return {};
  switch (codec_) {
    case AV_CODEC_ID_H264:
    case AV_CODEC_ID_HEVC:
      return ParseNalUnits(packet);
    case AV_CODEC_ID_VP8:
      return ParseVp8(packet);
    case AV_CODEC_ID_VP9:
      return ParseVp9(packet);
    case AV_CODEC_ID_AV1:
      return ParseAv1(packet);
    case AV_CODEC_ID_MPEG4:
      return mpeg4_->Parse(packet);
    case AV_CODEC_ID_MJPEG:
      return {.known = true, .starts = true, .disposable = true};
    default:
      return {};
  }
}

}  // namespace evenkeel::preprocess
