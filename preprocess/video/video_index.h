// One pass over a video's packets: which frame each packet shows and when, where a decoder may start, and
// which packets no other packet needs. From that follow the packets that a choice of frames needs.
//
// Packets are classified by their own bits (the kind of picture in their first bytes), never by the
// container's key-frame flags: a recovery point that the container marks as a key frame is not a place to
// start from.
//
// Thread safety: plain values.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "core/job.h"
#include "preprocess/ffmpeg.h"

namespace evenkeel::preprocess {

struct VideoPacket {
  int64_t pts = 0;
  uint32_t frame = 0;      // number of the frame that it shows, in presentation order
  bool shows = true;       // its frame is shown
  bool discarded = false;  // the container marks it as decoded but not shown
  bool starts = false;     // a decoder that starts here delivers the same frames from `pts` on
  bool referenced = true;  // other frames may refer to it
};

struct VideoIndex {
  std::vector<VideoPacket> packets;  // in decoding order
  uint32_t num_frames = 0;
  // The presentation order is known from the packets, so `frame` is valid; else frames are counted as they
  // leave the decoder.
  bool ordered = false;
  // Packets may be skipped: all starts have the same parameter sets, and no other packet has any.
  bool divisible = false;
  // When each frame is shown and when the last one ends, in the stream's time base. Empty if not `ordered` or
  // not timed.
  std::vector<int64_t> times;
  // From the first frame to the end of the last one, in the stream's time base: by `times`, else by the
  // container's slots for frames (AVI's may be empty). 0: unknown.
  int64_t span = 0;
  // The number of frames at the beginning, right after the first packet, without a time: Matroska cannot
  // store times before zero. Their order is unknown.
  uint32_t num_untimed = 0;
  // For each packet that is not discarded, including hidden ones: its presentation time, else its decoding
  // time; and the end of the last one, in the stream's time base. torchcodec counts these.
  std::vector<int64_t> packet_times;
  int64_t packets_end = 0;
};

enum class Untimed : uint8_t {
  kLead,     // untimed frames precede the others; for a caller that checks whether a decoder delivers them
  kNoTimes,  // if there are untimed frames, no frame has a time
};
// Reads all packets into `index`, whose memory is reused. InvalidArgument: no frames; ResourceExhausted: more
// than limits.max_video_frames.
absl::Status IndexVideo(MediaInput& input, const Limits& limits, VideoIndex& index,
                        Untimed untimed = Untimed::kNoTimes);

// True if frames are shown in decoding order.
bool ShowsInOrder(const VideoIndex& index);

// Removes frames that a decoder does not deliver: those before `first`. The numbers of the rest start at 0.
// `first` must be a frame.
void DropFramesBefore(uint32_t first, VideoIndex& index);

// Replaces `chosen`, ascending indices into `packet_times`, by the frames that torchcodec delivers for them:
// for a packet right after the previous one the next frame, else the first frame that is not shown earlier
// than the packet.
void FramesOfPackets(const VideoIndex& index, std::span<uint32_t> chosen);

enum class PacketUse : uint8_t {
  kSkip,
  kSend,
  kRestart,  // drain and flush the decoder, then send
};
// Computes what to do with each packet to decode the frames `chosen` (ascending); `uses` ends after the last
// packet needed.
void PacketsFor(const VideoIndex& index, std::span<const uint32_t> chosen, std::vector<PacketUse>& uses);

}  // namespace evenkeel::preprocess
