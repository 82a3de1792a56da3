#!/usr/bin/env python3
"""Makes tests/golden/data/video: small videos and the frames that FFmpeg's own command decodes from them.

    python3 tests/golden/make_video_goldens.py             (Debian: ffmpeg)
    python3 tests/golden/make_video_goldens.py --loader    (torchcodec 0.17.0)

For NAME.EXT: NAME.EXT.rgb holds frames 0, 5, 11 and 23 as RGB8, converted by FFmpeg with the flags of the accurate
conversion. NAME.EXT.torchcodec.rgb has the same frames of torchcodec; --loader writes these alone, of the videos that
are there.
"""

import pathlib
import subprocess
import sys

OUT = pathlib.Path(__file__).resolve().parent / "data" / "video"
SOURCE = ["-f", "lavfi", "-i", "testsrc2=size=50x38:rate=12:duration=2"]
CODECS = {
    "h264.mp4": "-c:v libx264 -bf 2 -g 10 -pix_fmt yuv420p",
    "h264-10-bits.mkv": "-c:v libx264 -pix_fmt yuv422p10le",
    "hevc.mp4": "-c:v libx265 -x265-params log-level=none -pix_fmt yuv420p",
    "mpeg4.avi": "-c:v mpeg4 -q:v 4",
    "mjpeg.avi": "-c:v mjpeg -q:v 4 -pix_fmt yuvj420p",
    "vp8.webm": "-c:v libvpx -auto-alt-ref 1 -lag-in-frames 8",
    "vp9.webm": "-c:v libvpx-vp9",
    "cinepak.avi": "-s 52x40 -c:v cinepak",
    "av1.mp4": "-c:v libaom-av1 -cpu-used 8 -g 10 -lag-in-frames 0 -pix_fmt yuv420p",
}
# For tests of what is skipped and of times; compared with a decode of everything.
X264 = "-c:v libx264 -pix_fmt yuv420p -x264-params"
X265 = "-c:v libx265 -pix_fmt yuv420p -x265-params log-level=none:no-scenecut=1"
OTHERS = {
    "h264-open.mp4": f"{X264} open-gop=1:b-pyramid=normal:bframes=4:b-adapt=0:keyint=8:min-keyint=4",
    "h264-in-order.mp4": f"{X264} bframes=0:keyint=16:min-keyint=16:scenecut=0",
    "h264-closed.mkv": f"{X264} b-pyramid=strict:bframes=3:b-adapt=0:keyint=7:min-keyint=4",
    "hevc-open.mp4": f"{X265}:open-gop=1:b-pyramid=1:bframes=4:keyint=8:min-keyint=4",
    "hevc-layers.mkv": f"{X265}:open-gop=0:temporal-layers=1:bframes=4:keyint=8",
    "mpeg4-b.mp4": "-c:v mpeg4 -bf 2 -g 8 -q:v 6",
    "h264-variable.mkv": f"-vf setpts=N*N/12/TB -vsync passthrough {X264} bframes=2:keyint=8",
}
SCALER = "bilinear+accurate_rnd+bitexact+full_chroma_int+full_chroma_inp"
FRAMES = "+".join(f"eq(n\\,{n})" for n in (0, 5, 11, 23))


def ffmpeg(*arguments):
    subprocess.run(["ffmpeg", "-v", "error", "-y", *map(str, arguments)], check=True)


def by_torchcodec():
    from torchcodec.decoders import VideoDecoder

    for name in CODECS:
        frames = VideoDecoder(OUT / name, seek_mode="exact").get_frames_at([0, 5, 11, 23]).data
        (OUT / f"{name}.torchcodec.rgb").write_bytes(frames.permute(0, 2, 3, 1).contiguous().numpy().tobytes())


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    for name, options in CODECS.items():
        path = OUT / name
        ffmpeg(*SOURCE, *options.split(), "-bitexact", "-threads", "1", path)
        decode = ["-flags", "bitexact", "-idct", "simple", "-threads", "1", "-i", path]
        convert = ["-vf", f"select={FRAMES},scale=sws_flags={SCALER},format=rgb24", "-vsync", "passthrough"]
        ffmpeg(*decode, *convert, "-f", "rawvideo", f"{path}.rgb")
    for name, options in OTHERS.items():
        ffmpeg(*SOURCE, *options.split(), "-bitexact", "-threads", "1", OUT / name)
    # Begins within a group of pictures: an edit list, and packets that are decoded but not shown.
    ffmpeg("-ss", "0.5", "-i", OUT / "h264.mp4", "-c", "copy", "-bitexact", OUT / "h264-cut.mp4")
    # The same in Matroska, which cannot tell times before zero: those of the pictures that lead the first one.
    for name in ("h264", "hevc"):
        ffmpeg("-ss", "0.9", "-i", OUT / f"{name}-open.mp4", "-c", "copy", "-bitexact", OUT / f"{name}-cut.mkv")
    # Whose leading pictures need nothing that is missing.
    ffmpeg(*SOURCE, *f"{X265}:open-gop=0:radl=2:bframes=4:keyint=8:min-keyint=8".split(), "-bitexact", "-threads", "1",
           OUT / "whole.mp4")
    ffmpeg("-ss", "0.9", "-i", OUT / "whole.mp4", "-c", "copy", "-bitexact", OUT / "hevc-cut-radl.mkv")
    (OUT / "whole.mp4").unlink()
    ffmpeg("-i", OUT / "h264.mp4", "-c", "copy", "-metadata:s:v", "rotate=90", "-bitexact", OUT / "h264-rotated.mp4")
    # Of 24 places a second, every other one is empty.
    ffmpeg("-i", OUT / "h264.mp4", "-c", "copy", "-bitexact", OUT / "h264-slots.avi")
    ffmpeg(*SOURCE, "-c:v", "ffv1", "-bitexact", OUT / "refused.mkv")
    # Whose other streams would take much memory if they were decoded.
    other = ("-f", "lavfi", "-i", "color=gray:size=1024x576:rate=10:duration=0.8")
    ffmpeg(*other, *"-c:v libx264 -preset veryslow -bf 0 -bitexact -threads 1".split(), OUT / "other.mp4")
    streams = ["-map", "0:0", *["-map", "1:0"] * 15, "-c", "copy", "-disposition:v:0", "default"]
    ffmpeg("-i", OUT / "h264.mp4", "-i", OUT / "other.mp4", *streams, "-bitexact", OUT / "many-streams.mkv")
    (OUT / "other.mp4").unlink()
    ffmpeg("-f", "lavfi", "-i", "sine=duration=0.1", "-c:a", "aac", "-bitexact", OUT / "no-video.mp4")


if __name__ == "__main__":
    by_torchcodec() if sys.argv[1:] == ["--loader"] else main()
