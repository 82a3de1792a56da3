// Files whose packets and frames are not one to one, made here of the golden clips' packets.
#include "preprocess/video/video_packet.h"

#include <gtest/gtest.h>

#include <numeric>

#include "preprocess/ffmpeg.h"
#include "preprocess/video/video.h"
#include "tests/preprocess/files.h"
#include "tests/preprocess/video/frames.h"

namespace evenkeel::preprocess {
namespace {

using Frames = std::vector<std::vector<uint8_t>>;

struct Packets {
  Bytes extradata;
  std::vector<Bytes> all;
};

Bytes BytesOf(const uint8_t* data, int size) {
  const auto* bytes = reinterpret_cast<const std::byte*>(data);
  return {bytes, bytes + size};
}

Packets PacketsOf(const std::string& name) {
  const Bytes bytes = Golden("video/" + name);
  MediaInput input;
  EXPECT_TRUE(input.Open(SuffixOf(name), bytes, AVMEDIA_TYPE_VIDEO, Limits{}).ok()) << name;
  const AVCodecParameters& said = *input.stream().codecpar;
  Packets packets{BytesOf(said.extradata, said.extradata_size), {}};
  PacketPtr packet(av_packet_alloc());
  while (input.Next(*packet)) {
    packets.all.push_back(BytesOf(packet->data, packet->size));
    av_packet_unref(packet.get());
  }
  return packets;
}

// All frames that the facts count, in the order of presentation; those that others stood for are missing.
absl::StatusOr<Frames> AllFrames(const std::string& suffix, const Bytes& bytes) {
  const absl::StatusOr<MediaFacts> facts = ProbeVideo(suffix, bytes, Limits{}, FrameLoader::kAccurate);
  if (!facts.ok()) return facts.status();
  std::vector<uint32_t> chosen(facts->num_frames);
  std::iota(chosen.begin(), chosen.end(), 0u);
  Frames frames;
  uint64_t repeated = 0;
  auto sink = [&](size_t, FrameRows rows) { return AppendRgb(rows, facts->width, frames.emplace_back()); };
  absl::Status status =
      DecodeVideo(suffix, bytes, Limits{}, *facts, chosen, FrameLoader::kAccurate, sink, &repeated);
  if (!status.ok()) return status;
  if (repeated != 0 || frames.size() != facts->num_frames) {
    return absl::InternalError(std::to_string(repeated) + " of " + std::to_string(facts->num_frames) +
                               " frames did not come");
  }
  return frames;
}

void Append(Bytes& out, const Bytes& more) { out.insert(out.end(), more.begin(), more.end()); }
void Append(Bytes& out, std::string_view text) {
  for (const char letter : text) out.push_back(static_cast<std::byte>(letter));
}
void Append(Bytes& out, std::initializer_list<uint32_t> words) {
  for (uint32_t word : words) {
    for (int i = 0; i < 4; ++i, word >>= 8) out.push_back(static_cast<std::byte>(word & 255));
  }
}

// RIFF: a name, a length, the bytes, an even number of them.
Bytes Chunk(std::string_view name, const Bytes& bytes) {
  Bytes chunk;
  Append(chunk, name);
  Append(chunk, {static_cast<uint32_t>(bytes.size())});
  Append(chunk, bytes);
  if (bytes.size() % 2 != 0) chunk.push_back(std::byte{0});
  return chunk;
}
Bytes List(std::string_view name, std::initializer_list<Bytes> chunks) {
  Bytes bytes;
  Append(bytes, name);
  for (const Bytes& chunk : chunks) Append(bytes, chunk);
  return Chunk("LIST", bytes);
}

// MPEG-4 at twelve frames a second, 50 x 38, as the golden clips are.
Bytes Avi(const std::vector<Bytes>& packets) {
  const auto count = static_cast<uint32_t>(packets.size());
  Bytes avih, strh, strf, movi, index;
  Append(avih, {83333, 0, 0, 0x10, count, 0, 1, 1 << 16, 50, 38, 0, 0, 0, 0});
  Append(strh, "vidsXVID");
  Append(strh, {0, 0, 0, 1, 12, 0, count, 1 << 16, ~0u, 0, 0, 50 | 38 << 16});
  Append(strf, {40, 50, 38, 1 | 24 << 16});
  Append(strf, "XVID");
  Append(strf, {50 * 38 * 3, 0, 0, 0, 0});
  Append(movi, "movi");
  for (const Bytes& packet : packets) {
    Append(index, "00dc");
    Append(index, {0x10, static_cast<uint32_t>(movi.size()), static_cast<uint32_t>(packet.size())});
    Append(movi, Chunk("00dc", packet));
  }
  Bytes body;
  Append(body, "AVI ");
  Append(body, List("hdrl", {Chunk("avih", avih), List("strl", {Chunk("strh", strh), Chunk("strf", strf)})}));
  Append(body, Chunk("LIST", movi));
  Append(body, Chunk("idx1", index));
  return Chunk("RIFF", body);
}

int TypeOf(const Bytes& packet) {  // 0 to 3: I, P, B, S
  for (size_t at = 0; at + 4 < packet.size(); ++at) {
    const auto byte = [&](size_t i) { return std::to_integer<int>(packet[at + i]); };
    if (byte(0) == 0 && byte(1) == 0 && byte(2) == 1 && byte(3) == 0xb6) return byte(4) >> 6;
  }
  return -1;
}

// A P picture that says that nothing of it is coded; times of twelve a second have four bits.
Bytes NotCoded() {
  Bytes packet;
  Append(packet, std::string_view("\0\0\1\xb6\x50\x9f", 6));
  return packet;
}

// What the encoder says of itself: 'p' for packed.
void SayWhoMadeIt(Packets& packets, std::string_view name) {
  Bytes first = packets.extradata;
  Append(first, std::string_view("\0\0\1\xb2", 4));
  Append(first, name);
  Append(first, packets.all.front());
  packets.all.front() = first;
}

TEST(VideoPacket, PackedPicturesAreShownInPlaceOfThePacketsThatFollow) {
  Packets packets = PacketsOf("mpeg4-b.mp4");
  SayWhoMadeIt(packets, "DivX503b1393p");
  std::vector<Bytes> packed;
  for (size_t i = 0; i < packets.all.size(); ++i) {
    packed.push_back(packets.all[i]);
    if (i + 1 == packets.all.size() || TypeOf(packets.all[i]) == 2 || TypeOf(packets.all[i + 1]) != 2)
      continue;
    Append(packed.back(), packets.all[++i]);  // the first B picture, shown by what follows
    while (i + 1 < packets.all.size() && TypeOf(packets.all[i + 1]) == 2) packed.push_back(packets.all[++i]);
    packed.push_back(NotCoded());
  }
  ASSERT_EQ(packed.size(), packets.all.size());
  const absl::StatusOr<Frames> whole = AllFrames("mp4", Golden("video/mpeg4-b.mp4"));
  const absl::StatusOr<Frames> frames = AllFrames("avi", Avi(packed));
  ASSERT_TRUE(whole.ok() && frames.ok()) << frames.status();
  EXPECT_EQ(*frames, *whole);
  // The encoder's delay: a byte that stands for no picture.
  packed.insert(packed.begin() + 1, Bytes{std::byte{0x7f}});
  const absl::StatusOr<Frames> delayed = AllFrames("avi", Avi(packed));
  ASSERT_TRUE(delayed.ok()) << delayed.status();
  EXPECT_EQ(*delayed, *whole);
}

TEST(VideoPacket, PicturesThatAreNotCodedAreNoFrames) {
  Packets packets = PacketsOf("mpeg4.avi");
  const absl::StatusOr<Frames> whole = AllFrames("avi", Avi(packets.all));
  for (const int after : {3, 11, 20}) packets.all.insert(packets.all.begin() + after, NotCoded());
  const absl::StatusOr<Frames> frames = AllFrames("avi", Avi(packets.all));
  ASSERT_TRUE(whole.ok() && frames.ok()) << frames.status();
  EXPECT_EQ(*frames, *whole);
}

// From the packet `from` on, as a tool cuts that does not look for key frames.
Bytes CutOff(const std::string& name, size_t from) {
  const Bytes bytes = Golden("video/" + name);
  MediaInput input;
  EXPECT_TRUE(input.Open(SuffixOf(name), bytes, AVMEDIA_TYPE_VIDEO, Limits{}).ok()) << name;
  AVFormatContext* output = nullptr;
  EXPECT_GE(avformat_alloc_output_context2(&output, nullptr, "matroska", nullptr), 0);
  AVStream* stream = avformat_new_stream(output, nullptr);
  EXPECT_GE(avcodec_parameters_copy(stream->codecpar, input.stream().codecpar), 0);
  stream->codecpar->codec_tag = 0;
  EXPECT_GE(avio_open_dyn_buf(&output->pb), 0);
  EXPECT_GE(avformat_write_header(output, nullptr), 0);
  PacketPtr packet(av_packet_alloc());
  for (size_t i = 0; input.Next(*packet); ++i) {
    if (i >= from) {
      packet->stream_index = 0;
      av_packet_rescale_ts(packet.get(), input.stream().time_base, stream->time_base);
      packet->pts += 5000;  // none is below zero
      packet->dts += 5000;
      EXPECT_GE(av_interleaved_write_frame(output, packet.get()), 0);
    }
    av_packet_unref(packet.get());
  }
  EXPECT_GE(av_write_trailer(output), 0);
  uint8_t* buffer = nullptr;
  const int size = avio_close_dyn_buf(output->pb, &buffer);
  output->pb = nullptr;
  Bytes cut = BytesOf(buffer, size);
  av_free(buffer);
  avformat_free_context(output);
  return cut;
}

TEST(VideoPacket, FramesThatNeedWhatWasCutOffAreNotCounted) {
  for (const std::string name : {"h264-open.mp4", "hevc-open.mp4", "mpeg4-b.mp4"}) {
    const absl::StatusOr<Frames> whole = AllFrames("mp4", Golden("video/" + name));
    ASSERT_TRUE(whole.ok()) << whole.status();
    for (size_t from = 1; from <= 12; ++from) {
      SCOPED_TRACE(name + " from packet " + std::to_string(from));
      const absl::StatusOr<Frames> frames = AllFrames("mkv", CutOff(name, from));
      ASSERT_TRUE(frames.ok()) << frames.status();
      ASSERT_LT(frames->size(), whole->size());
      EXPECT_TRUE(std::equal(frames->rbegin(), frames->rend(), whole->rbegin()));
    }
  }
}

}  // namespace
}  // namespace evenkeel::preprocess
