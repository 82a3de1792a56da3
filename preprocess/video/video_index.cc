// Reads all packets of a video once, and computes which of them a choice of frames needs.
#include "preprocess/video/video_index.h"

#include <algorithm>
#include <limits>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "preprocess/scratch.h"
#include "preprocess/video/video_packet.h"

namespace evenkeel::preprocess {
namespace {

constexpr int64_t kSaneTime = int64_t{1} << 60;  // times beyond it are damage; sums of two still fit

// Containers whose packets have presentation times.
bool HasTimes(MediaInput& input) {
  const std::string_view name = input.format().iformat->name;
  return name.starts_with("mov") || name.starts_with("matroska");
}

// Lists that a thread keeps from one video to the next.
struct Lists {
  // Per packet: its temporal layer, and whether it is disposable.
  std::vector<std::pair<uint32_t, bool>> layers;
  std::vector<uint32_t> shown;      // packets that show a frame, in presentation order
  std::vector<bool> is_chosen;      // per packet
  std::vector<size_t> last_needed;  // per start: one past the last chosen packet decoded from it; else 0
  std::vector<bool> wanted;         // per frame
};

Lists& KeptLists() {
  static thread_local Lists lists;
  return lists;
}

// Builds the index while packets are read.
struct Gatherer {
  PictureParser parser;
  VideoIndex& index;
  std::vector<std::pair<uint32_t, bool>>& layers;
  std::vector<uint32_t>& shown;
  Untimed untimed;
  bool timed = true;            // every frame has a time, and the times are distinct
  uint32_t num_untimed = 0;     // frames without a time
  uint32_t num_leading = 0;     // those in the packets right after the first
  int64_t begin = kSaneTime;    // the earliest time
  bool plain = true;            // every packet's kind is known
  uint64_t parameter_sets = 0;  // hash of the first start's
  bool same_parameters = true;  // all starts have that hash, and other packets have no parameter sets
  bool has_start = false;
  uint32_t top_layer = 0;
  int64_t end = -kSaneTime;
  int64_t first_place = kSaneTime;  // by decoding times
  int64_t end_of_places = -kSaneTime;

  void Add(const AVPacket& packet) {
    const PictureKind kind = parser.Parse({packet.data, static_cast<size_t>(packet.size)});
    VideoPacket entry;
    entry.discarded = (packet.flags & AV_PKT_FLAG_DISCARD) != 0;
    entry.shows = !entry.discarded && kind.shows;
    entry.starts = kind.starts;
    entry.pts = packet.pts;
    // Times are compared and subtracted later, so damaged ones, near the ends of 64 bits, must not take part.
    const bool sane = packet.pts > -kSaneTime && packet.pts < kSaneTime;
    if (!sane && entry.shows) {
      num_leading += index.packets.size() == num_leading + 1u;
      ++num_untimed;
    }
    if (sane && entry.shows) {
      begin = std::min(begin, packet.pts);
      end = std::max(end, packet.pts + std::clamp<int64_t>(packet.duration, 0, kSaneTime));
    }
    if (entry.shows && packet.dts > -kSaneTime && packet.dts < kSaneTime) {
      first_place = std::min(first_place, packet.dts);
      end_of_places =
          std::max(end_of_places, packet.dts + std::clamp<int64_t>(packet.duration, 0, kSaneTime));
    }
    if (!entry.discarded) {
      const int64_t time =
          std::clamp(packet.pts == AV_NOPTS_VALUE ? packet.dts : packet.pts, -kSaneTime, kSaneTime);
      index.packet_times.push_back(time);
      index.packets_end =
          std::max(index.packets_end, time + std::clamp<int64_t>(packet.duration, 0, kSaneTime));
    }
    plain &= kind.known && sane;
    if (kind.starts && !has_start) {
      has_start = true;
      parameter_sets = kind.parameter_sets;
    }
    same_parameters &= kind.parameter_sets == (kind.starts ? parameter_sets : 0);
    top_layer = std::max(top_layer, kind.layer);
    layers.emplace_back(kind.layer, kind.disposable);
    index.num_frames += entry.shows;
    index.packets.push_back(entry);
  }

  // Orders the frames by time if every frame has a distinct one, numbers them, and derives what the index has
  // of all packets together.
  void Finish(bool container_has_times) {
    timed &= container_has_times && !parser.displaces();
    if (timed && untimed == Untimed::kLead && num_untimed == num_leading) {
      for (uint32_t i = 1; i <= num_leading; ++i) index.packets[i].pts = begin - num_leading + i - 1;
      index.num_untimed = num_untimed;
    } else {
      timed &= num_untimed == 0;
    }
    for (size_t i = 0; i < layers.size(); ++i) {
      index.packets[i].referenced = !(layers[i].second && layers[i].first == top_layer);
    }
    for (uint32_t i = 0; i < index.packets.size(); ++i) {
      if (index.packets[i].shows) shown.push_back(i);
    }
    auto time = [&](uint32_t i) { return index.packets[i].pts; };
    if (timed) {
      std::sort(shown.begin(), shown.end(),
                [&](uint32_t a, uint32_t b) { return std::pair(time(a), a) < std::pair(time(b), b); });
      for (size_t i = 1; i < shown.size(); ++i) timed &= time(shown[i - 1]) < time(shown[i]);
      if (!timed) std::sort(shown.begin(), shown.end());
    }
    index.ordered = timed || parser.in_order();
    if (!timed) {
      // Frames are counted in decoding order; packets get their index for a time, which makes starts
      // comparable.
      for (uint32_t i = 0; i < index.packets.size(); ++i) index.packets[i].pts = i;
    }
    for (uint32_t number = 0; number < shown.size(); ++number) index.packets[shown[number]].frame = number;
    index.divisible = index.ordered && plain && same_parameters && has_start;
    if (!timed) {
      index.num_untimed = 0;
      if (!container_has_times) index.span = std::max<int64_t>(0, end_of_places - first_place);
      return;
    }
    for (uint32_t i : shown) index.times.push_back(time(i));
    index.times.push_back(std::max(end, index.times.back() + 1));
    index.span = index.times.back() - index.times.front();
  }
};

}  // namespace

absl::Status IndexVideo(MediaInput& input, const Limits& limits, VideoIndex& index, Untimed untimed) {
  index = VideoIndex{.packets = std::move(Emptied(index.packets)),
                     .times = std::move(Emptied(index.times)),
                     .packet_times = std::move(Emptied(index.packet_times)),
                     .packets_end = -kSaneTime};
  Lists& lists = KeptLists();
  Gatherer gatherer{PictureParser(*input.stream().codecpar), index, Emptied(lists.layers),
                    Emptied(lists.shown), untimed};
  PacketPtr packet(av_packet_alloc());
  // Packets that show nothing are not counted as frames; this bounds the memory for them.
  const uint64_t most_packets = 2 * limits.max_video_frames;
  while (input.Next(*packet) && index.packets.size() <= most_packets) {
    gatherer.Add(*packet);
    av_packet_unref(packet.get());
  }
  if (index.packets.size() > most_packets || index.num_frames > limits.max_video_frames) {
    return absl::ResourceExhaustedError(
        absl::StrCat("video of more frames than limits.max_video_frames ", limits.max_video_frames));
  }
  if (index.num_frames == 0) return absl::InvalidArgumentError("video without frames");
  gatherer.Finish(HasTimes(input));
  std::sort(index.packet_times.begin(), index.packet_times.end());
  return absl::OkStatus();
}

bool ShowsInOrder(const VideoIndex& index) {
  uint32_t next = 0;
  for (const VideoPacket& packet : index.packets) {
    if (packet.shows && packet.frame != next++) return false;
  }
  return true;
}

void DropFramesBefore(uint32_t first, VideoIndex& index) {
  for (VideoPacket& packet : index.packets) {
    packet.shows &= packet.frame >= first;
    if (packet.shows) packet.frame -= first;
  }
  index.num_frames -= first;
  if (index.times.empty()) return;
  index.times.erase(index.times.begin(), index.times.begin() + first);
  index.span = index.times.back() - index.times.front();
}

void FramesOfPackets(const VideoIndex& index, std::span<uint32_t> chosen) {
  // Without times, frames are counted as they leave the decoder.
  if (index.times.empty() || index.packet_times.size() == index.num_frames) return;
  const auto shown = std::span(index.times).first(index.num_frames);
  uint32_t packet = 0, frame = 0;
  for (size_t i = 0; i < chosen.size(); ++i) {
    const uint32_t before = std::exchange(packet, chosen[i]);
    if (packet >= index.packet_times.size()) continue;  // there is no such packet, so its frame is missing
    if (i > 0 && packet == before + 1) {
      ++frame;
    } else if (i == 0 || packet != before) {
      const auto at = std::lower_bound(shown.begin(), shown.end(), index.packet_times[packet]);
      frame = static_cast<uint32_t>(at - shown.begin());
    }
    chosen[i] = std::min(frame, index.num_frames - 1);
  }
}

void PacketsFor(const VideoIndex& index, std::span<const uint32_t> chosen, std::vector<PacketUse>& uses) {
  const size_t count = index.packets.size();
  if (!index.divisible) return uses.assign(count, PacketUse::kSend);
  auto& [layers, shown, is_chosen, last_needed, wanted] = KeptLists();
  // First, which packets show a wanted frame, and from which start each of them is decoded. A decoder can
  // begin at any start: frames shown at or after its time do not refer to packets before it.
  is_chosen.assign(count, false);
  Emptied(last_needed).assign(count, 0);
  wanted.assign(index.num_frames, false);
  for (uint32_t frame : chosen) {
    if (frame < wanted.size()) wanted[frame] = true;
  }
  for (size_t i = 0; i < count; ++i) {
    const VideoPacket& packet = index.packets[i];
    if (!packet.shows || !wanted[packet.frame]) continue;
    is_chosen[i] = true;
    size_t start = i;  // the nearest start at or before it; a leading picture needs the start before that
    while (start > 0 && !(index.packets[start].starts && index.packets[start].pts <= packet.pts)) --start;
    last_needed[start] = std::max(last_needed[start], i + 1);
  }
  // Then, in decoding order: between a start and the last packet needed from it everything is sent to which
  // other frames may refer, and the wanted frames themselves. What lies between two such stretches is
  // skipped.
  uses.assign(count, PacketUse::kSkip);
  size_t end = 0;                                           // one past the last packet needed so far
  int64_t first_pts = std::numeric_limits<int64_t>::min();  // of the start after the last gap
  for (size_t i = 0; i < count; ++i) {
    const VideoPacket& packet = index.packets[i];
    if (last_needed[i] != 0) {
      const bool restarts = i > end;
      if (restarts) first_pts = packet.pts;
      end = std::max(end, last_needed[i]);
      uses[i] = restarts ? PacketUse::kRestart : PacketUse::kSend;
      continue;
    }
    if (i >= end) continue;
    // Pictures shown before a start that follows a gap cannot be decoded, and no later picture needs them.
    const bool leads = packet.pts < first_pts;
    if (!leads && (packet.referenced || is_chosen[i])) uses[i] = PacketUse::kSend;
  }
  uses.resize(end);
}

}  // namespace evenkeel::preprocess
