"""Frames of videos by FFmpeg's own command, and what a video processor of `transformers` makes of them."""

import json
import subprocess

import numpy as np
from transformers.video_utils import VideoMetadata

SCALER = "bilinear+accurate_rnd+bitexact+full_chroma_int+full_chroma_inp"


def ffmpeg(*arguments):
    subprocess.run(["ffmpeg", "-v", "error", "-y", *map(str, arguments)], check=True)


def rgb(path, folder, *options):
    """Bytes of all frames, by FFmpeg's command."""
    raw = folder / "frames.rgb"
    ffmpeg("-flags", "bitexact", "-idct", "simple", "-threads", 1, *options, "-i", path, "-map", "0:v:0",
           "-vf", f"scale=sws_flags={SCALER},format=rgb24", "-vsync", "passthrough", "-f", "rawvideo", raw)
    return np.memmap(raw, np.uint8, "r")


def decoded(path, folder):
    """([frames, height, width, 3], the container's frames a second, what FFmpeg tells of each frame)."""
    probe = ["ffprobe", "-v", "error", "-select_streams", "v:0", "-show_entries",
             "stream=width,height,avg_frame_rate:frame=best_effort_timestamp_time,pkt_duration_time,duration_time",
             "-of", "json", str(path)]
    facts = json.loads(subprocess.run(probe, check=True, capture_output=True, text=True).stdout)
    stream = facts["streams"][0]
    frames = rgb(path, folder, "-noautorotate").reshape(-1, stream["height"], stream["width"], 3)
    num, den = map(int, stream["avg_frame_rate"].split("/"))
    return frames, num / den, facts["frames"]


def places(path):
    """Seconds from an AVI's first place for a frame to the end of its last one."""
    probe = ["ffprobe", "-v", "error", "-select_streams", "v:0", "-show_entries", "packet=dts_time,duration_time",
             "-of", "json", str(path)]
    packets = json.loads(subprocess.run(probe, check=True, capture_output=True, text=True).stdout)["packets"]
    return float(packets[-1]["dts_time"]) + float(packets[-1]["duration_time"]) - float(packets[0]["dts_time"])


def rate(path, average, frames):
    """The container's average, unless the frames' own times differ from it by more than a fiftieth."""
    if path.suffix == ".avi":
        span = places(path)
    else:
        last = frames[-1].get("pkt_duration_time") or frames[-1].get("duration_time") or 1 / average
        begin, end = (float(frames[at]["best_effort_timestamp_time"]) for at in (0, -1))
        span = end - begin + float(last)
    own = len(frames) / span
    return average if abs(own / average - 1) <= 0.02 else own


def expected(processor, path, folder, turned=False, **options):
    """(pixel_values_videos, or what the class calls them, video_grid_thw or None); by `options` of the call, sampled unless they say otherwise."""
    frames, average, shown = decoded(path, folder)
    if turned:
        frames = np.ascontiguousarray(np.rot90(frames, 1, axes=(1, 2)))
        # FFmpeg turns before it makes RGB, which leaves other colours at edges, but the same picture.
        assert np.abs(rgb(path, folder).reshape(frames.shape).astype(int) - frames).mean() < 16
    fps = rate(path, average, shown)
    metadata = VideoMetadata(total_num_frames=len(frames), fps=fps, width=frames.shape[2], height=frames.shape[1],
                             duration=len(frames) / fps)
    out = processor(videos=[np.asarray(frames)] if frames.nbytes < 1 << 28 else [frames], video_metadata=[metadata],
                    return_tensors="pt", **{"do_sample_frames": True, **options})
    grid = out.get("video_grid_thw")
    return out["pixel_values_videos" if "pixel_values_videos" in out else "pixel_values"].numpy(), None if grid is None else grid.numpy()
