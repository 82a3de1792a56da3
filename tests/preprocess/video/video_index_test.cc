#include "preprocess/video/video_index.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "preprocess/video/frame_rgb.h"
#include "preprocess/video/frame_rules.h"
#include "preprocess/video/video.h"
#include "tests/preprocess/files.h"
#include "tests/preprocess/video/frames.h"

namespace evenkeel::preprocess {
namespace {

const std::vector<std::string>& Files() {
  static const std::vector<std::string> files = {
      "h264.mp4",          "h264-in-order.mp4", "h264-open.mp4", "h264-closed.mkv", "h264-cut.mp4",
      "h264-variable.mkv", "hevc.mp4",          "hevc-open.mp4", "mpeg4-b.mp4",     "mpeg4.avi",
      "hevc-layers.mkv",   "h264-10-bits.mkv",  "vp8.webm",      "vp9.webm",        "av1.mp4",
      "mjpeg.avi",         "cinepak.avi"};
  return files;
}

VideoIndex IndexOf(const std::string& name, const Bytes& bytes) {
  MediaInput input;
  EXPECT_TRUE(input.Open(SuffixOf(name), bytes, AVMEDIA_TYPE_VIDEO, Limits{}).ok()) << name;
  VideoIndex index;
  EXPECT_TRUE(IndexVideo(input, Limits{}, index).ok()) << name;
  return index;
}

// All frames in the order in which FFmpeg's own loop gives them, which is that of presentation.
std::vector<std::vector<uint8_t>> AllFrames(const std::string& name, const Bytes& bytes) {
  MediaInput input;
  EXPECT_TRUE(input.Open(SuffixOf(name), bytes, AVMEDIA_TYPE_VIDEO, Limits{}).ok()) << name;
  const AVCodecID id = input.stream().codecpar->codec_id;
  const char* decoder_name = id == AV_CODEC_ID_AV1 ? "libdav1d" : avcodec_get_name(id);
  absl::StatusOr<CodecPtr> decoder = OpenDecoder(input, decoder_name, Limits{});
  EXPECT_TRUE(decoder.ok()) << decoder.status();
  std::vector<std::vector<uint8_t>> frames;
  FrameRgb converter(RgbPath::kSwscale);
  PacketPtr packet(av_packet_alloc());
  FramePtr frame(av_frame_alloc());
  auto drain = [&] {
    while (avcodec_receive_frame(decoder->get(), frame.get()) >= 0) {
      AppendedRgb rgb(static_cast<uint32_t>(frame->width), frames.emplace_back());
      EXPECT_TRUE(converter.Convert(*frame, FrameLoader::kAccurate, rgb).ok());
      av_frame_unref(frame.get());
    }
  };
  while (input.Next(*packet)) {
    avcodec_send_packet(decoder->get(), packet.get());
    av_packet_unref(packet.get());
    drain();
  }
  avcodec_send_packet(decoder->get(), nullptr);
  drain();
  return frames;
}

TEST(VideoIndex, WhatIsLeftOutChangesNoFrame) {
  for (const std::string& name : Files()) {
    SCOPED_TRACE(name);
    const Bytes bytes = Golden("video/" + name);
    const MediaFacts facts = *ProbeVideo(SuffixOf(name), bytes, Limits{}, FrameLoader::kAccurate);
    const std::vector<std::vector<uint8_t>> frames = AllFrames(name, bytes);
    ASSERT_EQ(frames.size(), facts.num_frames);
    Dice dice(5);
    for (int round = 0; round < 12; ++round) {
      std::vector<uint32_t> chosen;
      for (uint32_t i = dice.Roll(8); i < facts.num_frames; i += 1 + dice.Roll(1 + round))
        chosen.push_back(i);
      if (round == 0) chosen = {facts.num_frames - 1};
      size_t delivered = 0;
      uint64_t repeated = 0;
      auto sink = [&](size_t position, FrameRows rows) {
        EXPECT_EQ(position, delivered++);
        std::vector<uint8_t> rgb;
        const absl::Status status = AppendRgb(rows, facts.width, rgb);
        EXPECT_EQ(rgb, frames[chosen[position]]) << "frame " << chosen[position];
        return status;
      };
      ASSERT_TRUE(
          DecodeVideo(SuffixOf(name), bytes, Limits{}, facts, chosen, FrameLoader::kAccurate, sink, &repeated)
              .ok());
      EXPECT_EQ(delivered, chosen.size());
      EXPECT_EQ(repeated, 0u);
    }
  }
}

TEST(VideoIndex, TheHeaderIsEnoughForH264InMp4WithoutReordering) {
  for (const std::string& name : Files()) {
    const Bytes bytes = Golden("video/" + name);
    MediaInput input;
    ASSERT_TRUE(input.Open(SuffixOf(name), bytes, AVMEDIA_TYPE_VIDEO, Limits{}, Parameters::kOfHeader).ok());
    const bool in_order = name == "h264-in-order.mp4";
    EXPECT_EQ(input.knows_header_only(), in_order) << name;
    EXPECT_EQ(input.stream().codecpar->format < 0, in_order) << name << ": decoded without need, or not";
    if (name.starts_with("h264")) {
      EXPECT_EQ(ShowsInOrder(IndexOf(name, bytes)), in_order) << name;
    }
  }
}

TEST(VideoIndex, TheHeaderAloneGivesTheSameIndex) {
  const Bytes bytes = Golden("video/h264-in-order.mp4");
  MediaInput input;
  ASSERT_TRUE(input.Open("mp4", bytes, AVMEDIA_TYPE_VIDEO, Limits{}, Parameters::kOfHeader).ok());
  VideoIndex index;
  ASSERT_TRUE(IndexVideo(input, Limits{}, index).ok());
  const VideoIndex expected = IndexOf("h264-in-order.mp4", bytes);
  EXPECT_TRUE(index.divisible);
  EXPECT_EQ(index.times, expected.times);
  EXPECT_EQ(index.span, expected.span);
  EXPECT_EQ(index.num_frames, 24u);
}

TEST(VideoIndex, StartsAreWhereDecodingMayStart) {
  // Frames of I type that the container calls keys, but only the first of them is an IDR.
  const std::map<std::string, int> expected = {
      {"h264-open.mp4", 1}, {"h264.mp4", 3}, {"hevc-open.mp4", 3}, {"hevc-layers.mkv", 3},
      {"av1.mp4", 3},       {"vp9.webm", 1}, {"mjpeg.avi", 24},    {"cinepak.avi", 0}};
  for (const auto& [name, starts] : expected) {
    const VideoIndex index = IndexOf(name, Golden("video/" + name));
    EXPECT_EQ(std::ranges::count_if(index.packets, &VideoPacket::starts), starts) << name;
  }
}

TEST(VideoIndex, OnlyWhatTheChosenFramesNeedIsSent) {
  const VideoIndex index = IndexOf("h264.mp4", Golden("video/h264.mp4"));  // groups of ten
  ASSERT_TRUE(index.divisible);
  std::vector<PacketUse> uses;
  PacketsFor(index, std::vector<uint32_t>{20}, uses);
  EXPECT_EQ(std::ranges::count(uses, PacketUse::kSkip), 20);
  EXPECT_EQ(uses.back(), PacketUse::kRestart);
  PacketsFor(index, std::vector<uint32_t>{0, 20}, uses);
  EXPECT_EQ(uses.front(), PacketUse::kSend);
  EXPECT_EQ(std::ranges::count(uses, PacketUse::kSkip), 19);
  std::vector<uint32_t> all(index.num_frames);
  for (uint32_t i = 0; i < all.size(); ++i) all[i] = i;
  PacketsFor(index, all, uses);
  EXPECT_EQ(std::ranges::count(uses, PacketUse::kSend), 24) << "nothing is left out, nothing starts anew";
}

TEST(VideoIndex, FramesAreNumberedInTheOrderOfPresentation) {
  for (const std::string& name : Files()) {
    const VideoIndex index = IndexOf(name, Golden("video/" + name));
    std::vector<uint32_t> numbers;
    for (const VideoPacket& packet : index.packets) {
      if (packet.shows) numbers.push_back(packet.frame);
    }
    std::sort(numbers.begin(), numbers.end());
    for (uint32_t i = 0; i < numbers.size(); ++i) ASSERT_EQ(numbers[i], i) << name;
    EXPECT_TRUE(std::is_sorted(index.times.begin(), index.times.end()));
    EXPECT_TRUE(index.times.empty() || index.times.size() == index.num_frames + 1u);
  }
}

TEST(VideoIndex, UniformFramesFollowTheTimesOfAVariableRate) {
  const Bytes bytes = Golden("video/h264-variable.mkv");  // frame n is shown at n * n / 12 seconds
  const MediaFacts facts = *ProbeVideo("mkv", bytes, Limits{}, FrameLoader::kAccurate);
  const FrameChoice choice{FrameRule::kUniform, 2, 4, 4};
  std::vector<uint32_t> chosen;
  VideoWish wish{[&](std::span<const int64_t> times, std::vector<uint32_t>& wanted) {
    ChooseFrames(choice, facts, *NumChosenFrames(choice, facts), times, wanted);
    chosen = wanted;
  }};
  uint64_t repeated = 0;
  auto sink = [](size_t, FrameRows) { return absl::OkStatus(); };
  wish.loader = FrameLoader::kAccurate;
  ASSERT_TRUE(DecodeVideo("mkv", bytes, Limits{}, facts, wish, sink, &repeated).ok());
  EXPECT_EQ(chosen, (std::vector<uint32_t>{8, 14, 18, 21}));  // sqrt(1/8, 3/8, 5/8, 7/8 of 44.2 * 12)
}

}  // namespace
}  // namespace evenkeel::preprocess
