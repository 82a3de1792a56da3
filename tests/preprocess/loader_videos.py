"""Makes the videos that frames are compared on: pixel formats, ranges, matrices, codecs, odd sizes, rates and streams.

    python3 tests/preprocess/loader_videos.py FOLDER      (Debian: ffmpeg)
"""

import pathlib
import subprocess
import sys

X264 = "-c:v libx264 -bf 2 -threads 1"
X265 = "-c:v libx265 -x265-params log-level=none:pools=1"
VP9 = "-c:v libvpx-vp9 -threads 1"
AV1 = "-c:v libaom-av1 -cpu-used 8 -threads 1"
# What all loaders convert alike: 8 bits, and an even height where chroma is subsampled.
EIGHT_BITS = {
    "420.mp4": ("98x66", f"{X264} -pix_fmt yuv420p"),
    "420-wide.mp4": ("322x240", f"{X264} -pix_fmt yuv420p"),
    "422.mkv": ("98x64", f"{X264} -pix_fmt yuv422p"),
    "444.mkv": ("75x41", f"{X264} -pix_fmt yuv444p"),
    "grey.mkv": ("75x41", f"{AV1} -pix_fmt gray"),
    "full-420.mp4": ("96x64", f"{X264} -pix_fmt yuvj420p"),
    "full-422.mp4": ("96x64", f"{X264} -pix_fmt yuvj422p"),
    "full-444.mp4": ("75x41", f"{X264} -pix_fmt yuvj444p"),
    "full-vp9.webm": ("96x64", f"{VP9} -pix_fmt yuv420p -color_range pc"),
    "bt709.mp4": ("96x64", f"{X264} -pix_fmt yuv420p -colorspace bt709 -color_range tv"),
    "bt709-full.mp4": ("96x64", f"{X264} -pix_fmt yuv420p -colorspace bt709 -color_range pc"),
    "bt2020.mp4": ("96x64", f"{X264} -pix_fmt yuv420p -colorspace bt2020nc -color_range tv"),
    "hevc.mp4": ("96x64", f"{X265} -pix_fmt yuv420p"),
    "av1.mp4": ("96x64", f"{AV1} -pix_fmt yuv420p"),
    "vp8.webm": ("98x64", "-c:v libvpx -threads 1"),
    "vp9-odd-width.webm": ("97x66", f"{VP9} -pix_fmt yuv420p"),
    "vp9-422-odd.webm": ("75x42", f"{VP9} -pix_fmt yuv422p"),
    "mpeg4.mp4": ("96x64", "-c:v mpeg4 -bf 2"),
    "mjpeg.avi": ("98x64", "-c:v mjpeg -pix_fmt yuvj420p"),
    "cinepak.avi": ("96x64", "-c:v cinepak"),
}
# Chroma is enlarged by filters, in which loaders differ.
FILTERED = {
    "odd-height.webm": ("64x65", f"{VP9} -pix_fmt yuv420p"),
    "odd-sides.mp4": ("75x41", f"{AV1} -pix_fmt yuv420p"),
    "10-bit.mp4": ("96x64", f"{X264} -pix_fmt yuv420p10le"),
    "10-bit-422.mkv": ("98x64", f"{X264} -pix_fmt yuv422p10le"),
    "10-bit-full.mp4": ("96x64", f"{X264} -pix_fmt yuv420p10le -color_range pc -colorspace bt709"),
    "10-bit-odd.webm": ("75x41", f"{VP9} -pix_fmt yuv420p10le"),
    "12-bit.mp4": ("96x64", f"{X265} -pix_fmt yuv420p12le"),
}
SHORT = "-f lavfi -i testsrc=size={}:rate=12:duration=2,hue=h=40"
LONG = "-f lavfi -i testsrc2=size=96x64:rate=12:duration=3"
LARGER = "-f lavfi -i testsrc=size=128x96:rate=24:duration=3"


def ffmpeg(*arguments):
    words = [word for argument in arguments for word in (argument.split() if isinstance(argument, str) else [str(argument)])]
    subprocess.run(["ffmpeg", "-v", "error", "-y", *words], check=True)


def make(folder, names):
    """Those of EIGHT_BITS and FILTERED that are named, as paths."""
    paths = {}
    for name in names:
        size, options = {**EIGHT_BITS, **FILTERED}[name]
        paths[name] = folder / name
        ffmpeg(SHORT.format(size), options, paths[name])
    return paths


def make_timed(folder):
    """Files whose streams, frames or rates loaders find differently, as paths."""
    paths = {name: folder / name for name in
             ("variable.mkv", "variable.mp4", "two-best-second.mkv", "two.mp4", "hidden.webm", "turned.mp4", "cut.mp4",
              "fragments.mp4", "ntsc.webm", "open-cut.mkv")}
    yuv = f"{X264} -pix_fmt yuv420p"
    ffmpeg(LONG, yuv, "-vf setpts=N*N/12/TB -vsync passthrough", paths["variable.mkv"])
    ffmpeg(LONG, yuv, "-vf setpts=(N+0.02*N*N)/12/TB -vsync passthrough -video_track_timescale 12000", paths["variable.mp4"])
    ffmpeg(LONG, LARGER, yuv, "-map 0 -map 1 -disposition:0 0 -disposition:1 default", paths["two-best-second.mkv"])
    ffmpeg(LARGER, LONG, yuv, "-map 0 -map 1 -disposition:0 default -disposition:1 default", paths["two.mp4"])
    whole = folder / "whole.mkv"
    vp8 = f"-c:v libvpx -threads 1 -lag-in-frames 16 -auto-alt-ref 1 -passlogfile {folder / 'passes'}"
    ffmpeg(LONG, vp8, "-pass 1 -f null -")
    ffmpeg(LONG, vp8, "-pass 2", paths["hidden.webm"])
    ffmpeg(LONG, yuv, folder / "upright.mp4")
    ffmpeg("-i", folder / "upright.mp4", "-c copy -metadata:s:v rotate=90", paths["turned.mp4"])
    ffmpeg("-ss 0.6 -i", folder / "upright.mp4", "-c copy", paths["cut.mp4"])
    ffmpeg(LONG, yuv, "-movflags frag_keyframe+empty_moov", paths["fragments.mp4"])
    ffmpeg(LONG, VP9, "-r 30000/1001", paths["ntsc.webm"])
    ffmpeg(LONG, yuv, "-g 10 -x264-params open-gop=1", whole)
    ffmpeg("-ss 1.1 -i", whole, "-c copy", paths["open-cut.mkv"])
    return paths


if __name__ == "__main__":
    out = pathlib.Path(sys.argv[1])
    make(out, [*EIGHT_BITS, *FILTERED])
    make_timed(out)
