// One pass over a video's packets: which frame each shows and when, where a decoder may start, and which
// packets no other needs. From that, the packets that a choice of frames needs.
//
// A packet is told apart by its own bits (the kind of picture in its first bytes), never by what the
// container says about key frames: a recovery point that the container calls a key is not a place to start
// from.
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
  uint32_t frame = 0;      // number of the frame that it shows, in the order of presentation
  bool shows = true;       // carries a frame to show
  bool discarded = false;  // the container says that it is only decoded
  bool starts = false;     // what a decoder that starts here gives from `pts` on is what it would give anyway
  bool referenced = true;  // other frames may need it
};

struct VideoIndex {
  std::vector<VideoPacket> packets;  // in the order of decoding
  uint32_t num_frames = 0;
  // Presentation is known from the packets, so that `frame` counts; else frames count as they leave the
  // decoder.
  bool ordered = false;
  // Packets may be left out: every start has the same parameter sets, and nothing else has any.
  bool divisible = false;
  // When each frame is shown and when the last one ends, in the stream's time base. Empty if not `ordered` or
  // not timed.
  std::vector<int64_t> times;
  // From the first frame to the end of the last one, in the stream's time base: by `times`, else by the
  // places that the container has for frames (AVI's may be empty). 0: not known.
  int64_t span = 0;
  // Frames at the beginning whose packets, right behind the first, have no time: Matroska cannot tell times
  // before zero. Their order is not known.
  uint32_t num_untimed = 0;
  // Of the packets that are not discarded, hidden ones included: when each is shown, else decoded, and when
  // the last one ends, in the stream's time base. What torchcodec counts.
  std::vector<int64_t> packet_times;
  int64_t packets_end = 0;
};

enum class Untimed : uint8_t {
  kLead,     // stand before the others, for a caller who finds that a decoder gives none of them
  kNoTimes,  // then no frame has a time
};
// Reads all packets into `index`, whose memory is used again. InvalidArgument: no frames; ResourceExhausted:
// more than limits.max_video_frames.
absl::Status IndexVideo(MediaInput& input, const Limits& limits, VideoIndex& index,
                        Untimed untimed = Untimed::kNoTimes);

// Whether frames are shown in the order of decoding.
bool ShowsInOrder(const VideoIndex& index);

// What a decoder does not give: the frames before `first` are no frames, and those from it on count from 0.
// `first` is one of them.
void DropFramesBefore(uint32_t first, VideoIndex& index);

// Makes `chosen`, ascending numbers of the packets of `packet_times`, the frames that torchcodec gives for
// them: for a packet after the previous one the next frame, else the first one that is not shown earlier.
void FramesOfPackets(const VideoIndex& index, std::span<uint32_t> chosen);

enum class PacketUse : uint8_t {
  kSkip,
  kSend,
  kRestart,  // send, after the decoder was drained and flushed
};
// What a decode of the frames `chosen` (ascending) does with each packet, into `uses`; cut off after the last
// one needed.
void PacketsFor(const VideoIndex& index, std::span<const uint32_t> chosen, std::vector<PacketUse>& uses);

}  // namespace evenkeel::preprocess
