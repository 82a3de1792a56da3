#!/usr/bin/env python3
"""Audio and video against the libraries that one would pick instead: a table of ratios, one thread each.

    ninja -C build/release bench_media
    VENV/bin/pip install transformers torch librosa torchcodec av decord
    VENV/bin/python bench/preprocess/media.py build/release FOLDER [FILE...]

FOLDER: a Qwen2-VL checkpoint's configuration. Clips and videos are made by ffmpeg (Debian's) in a temporary folder; each
FILE is one video more, or a photograph, of which videos are made that pan over it, two pixels a frame: hardly any video
with another picture in every frame is cheaper to decode. Times are of the processor, the least of five turns (TURNS);
next to FFmpeg's own loop of video, which bench_media has too, both are by packets. A ratio below 1 means that Evenkeel takes
less. Rivals that are not installed are left out.
"""
import os

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[name] = "1"

import importlib
import pathlib
import resource
import subprocess
import sys
import tempfile
import time
import warnings

warnings.simplefilter("ignore")  # librosa tells how it falls back
TURNS = int(os.environ.get("TURNS", "5"))
SPEECH = "anoisesrc=d=30:c=pink:r=44100:a=0.4:seed=1,tremolo=f=4:d=0.9,aformat=channel_layouts=stereo"
SCENE = ("testsrc2=s=2560x1440:r=30:d=8,boxblur=2,zoompan=z='1+0.0015*on':x='on*3':y='on*1.5':d=1:s=1280x720:fps=30,"
         "noise=alls=4:allf=t")
CLIPS = {"wav": "-c:a pcm_s16le", "flac": "-c:a flac", "mp3": "-c:a libmp3lame -b:a 128k",
         "m4a": "-c:a aac -b:a 128k", "opus": "-c:a libopus -ar 48000", "ogg": "-c:a libvorbis"}
VIDEOS = {
    "720p.mp4": "-c:v libx264 -preset fast -crf 23",
    "720p-no-b.mp4": "-c:v libx264 -preset fast -crf 23 -bf 0",
    "360p.mp4": "-vf scale=640:360 -c:v libx264 -preset fast -crf 23",
    "360p-hevc.mp4": "-vf scale=640:360 -c:v libx265 -preset ultrafast -x265-params log-level=none",
    "360p.webm": "-vf scale=640:360 -c:v libvpx-vp9 -deadline realtime -cpu-used 8",
}
# Of a photograph: size, frames a second, seconds, codec. None has a picture that no other refers to.
PANS = {
    "240p-pan.mp4": (426, 240, 30, 20, "-c:v libx264 -profile:v baseline -preset fast"),
    "480p-pan.mp4": (854, 480, 24, 5, "-c:v libx264 -profile:v baseline"),
    "480p-pan-long.mp4": (854, 480, 24, 20, "-c:v libx264 -profile:v baseline -preset fast"),
    "720p-pan.mp4": (1280, 720, 25, 5, "-c:v libx264 -profile:v main -bf 0 -preset fast"),
    "480p-pan-hevc.mp4": (854, 480, 30, 5, "-c:v libx265 -preset fast -x265-params bframes=0:log-level=none"),
    "720p-pan-hevc.mp4": (1280, 720, 24, 5, "-c:v libx265 -preset fast -x265-params bframes=0:log-level=none"),
    "480p-pan.webm": (854, 480, 60, 5, "-c:v libvpx-vp9 -deadline realtime -cpu-used 8"),
}
PHOTOGRAPHS = (".jpg", ".jpeg", ".png", ".webp")


def installed(name):
    try:
        return importlib.import_module(name)
    except Exception as error:  # torchcodec fails in its own way where FFmpeg does not suit it
        print(f"{name} is left out: {str(error).splitlines()[0]}", file=sys.stderr)
        return None


def processor_seconds():
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def least(work):
    times = []
    for _ in range(TURNS):
        begin = processor_seconds()
        work()
        times.append((processor_seconds() - begin) * 1e3)
    return min(times)


def ours(binary, *arguments):
    output = subprocess.run([binary, *map(str, arguments)], check=True, stdout=subprocess.PIPE, text=True).stdout
    by_pieces, whole = {}, {}
    for line in output.splitlines():
        what, path, pieces, least_run, _ = line.rsplit(" ", 4)
        by_pieces[what, path], whole[what, path] = float(pieces), float(least_run)
    return by_pieces, whole


def make(folder):
    for suffix, options in CLIPS.items():
        subprocess.run(["ffmpeg", "-v", "error", "-y", "-f", "lavfi", "-i", SPEECH, *options.split(),
                        folder / f"speech.{suffix}"], check=True)
    scene = folder / "scene.mkv"
    subprocess.run(["ffmpeg", "-v", "error", "-y", "-f", "lavfi", "-i", SCENE, "-c:v", "libx264", "-qp", "12",
                    "-preset", "ultrafast", "-pix_fmt", "yuv420p", scene], check=True)
    for name, options in VIDEOS.items():
        subprocess.run(["ffmpeg", "-v", "error", "-y", "-i", scene, *options.split(), "-pix_fmt", "yuv420p",
                        folder / name], check=True)
    return [folder / f"speech.{suffix}" for suffix in CLIPS], [folder / name for name in VIDEOS]


def pan(photograph, number, folder):
    videos = []
    for name, (width, height, rate, seconds, options) in PANS.items():
        frames = rate * seconds
        grown = f"{width + 2 * frames}:{height + frames}"  # as far as it goes
        crop = f"scale={grown}:force_original_aspect_ratio=increase,crop={width}:{height}:x='2*n':y='n-mod(n,2)'"
        videos.append(folder / f"{number}-{name}")
        subprocess.run(["ffmpeg", "-v", "error", "-y", "-loop", "1", "-framerate", str(rate), "-i", photograph, "-t",
                        str(seconds), "-vf", crop, "-pix_fmt", "yuv420p", *options.split(), videos[-1]], check=True)
    return videos


def row(what, name, mine, rival, theirs):
    print(f"{what:<16}{name:<28}{mine:>9.2f}{rival:>26}{theirs:>10.2f}{mine / theirs:>8.2f}", flush=True)


def bench_log_mel(binary, clip):
    transformers, numpy = installed("transformers"), installed("numpy")
    if transformers is None:
        return
    installed("torch").set_num_threads(1)
    samples = numpy.random.default_rng(1).standard_normal(480000).astype(numpy.float32)[None] * 0.1
    for mels in (80, 128):
        _, rows = ours(binary, "log_mel", mels, clip)
        extractor = transformers.WhisperFeatureExtractor(feature_size=mels)
        for kind, extract in (("numpy", extractor._np_extract_fbank_features),
                              ("torch", extractor._torch_extract_fbank_features)):
            theirs = least(lambda: extract(samples, "cpu"))
            for (what, _), mine in rows.items():
                row("log-mel", f"{mels}, {what[8:]}", mine, f"transformers, {kind}", theirs)


def audio_rivals():
    librosa, torchcodec = installed("librosa"), installed("torchcodec.decoders")
    if librosa is not None:
        yield "librosa.load", lambda path: librosa.load(path, sr=16000)
    if torchcodec is not None:
        yield "torchcodec", lambda path: torchcodec.AudioDecoder(
            str(path), sample_rate=16000, num_channels=1).get_all_samples()


def chosen_frames(total, rate):
    count = int(total / rate * 2) // 2 * 2
    return [round(i * (total - 1) / (count - 1)) for i in range(count)]


def video_rivals():
    av, torchcodec, decord = installed("av"), installed("torchcodec.decoders"), installed("decord")

    def ffmpeg(path):
        subprocess.run(["ffmpeg", "-v", "error", "-threads", "1", "-i", path, "-an", "-f", "null", "-"], check=True)

    def one_thread(container):
        stream = container.streams.video[0]
        stream.thread_type, stream.codec_context.thread_count = "NONE", 1
        return stream

    def pyav_decode(path):
        with av.open(str(path)) as container:
            for _ in container.decode(one_thread(container)):
                pass

    def pyav(path):
        with av.open(str(path)) as container:
            stream = one_thread(container)
            rate = float(stream.average_rate)
            wanted = set(chosen_frames(stream.frames or round(container.duration / av.time_base * rate), rate))
            for number, frame in enumerate(container.decode(stream)):
                if number in wanted:
                    frame.to_ndarray(format="rgb24")

    def codec(path):
        decoder = torchcodec.VideoDecoder(str(path), num_ffmpeg_threads=1)
        decoder.get_frames_at(chosen_frames(decoder.metadata.num_frames, decoder.metadata.average_fps))

    def reader(path):
        video = decord.VideoReader(str(path), num_threads=1)
        video.get_batch(chosen_frames(len(video), video.get_avg_fps()))

    yield "ffmpeg -f null", ffmpeg
    if av is not None:
        yield "PyAV, decode alone", pyav_decode
        yield "PyAV", pyav
    if torchcodec is not None:
        yield "torchcodec", codec
    if decord is not None:
        yield "decord", reader


def bench_files(what, mine_of, rivals, files):
    for name, rival in rivals:
        for path in files:
            mine = mine_of.get(str(path))
            try:
                theirs = least(lambda: rival(path))
            except Exception as error:
                print(f"{name} fails on {path.name}: {str(error).splitlines()[0]}", file=sys.stderr)
                continue
            if mine is not None:
                row(what, path.name, mine, name, theirs)


def main():
    build, folder, *more = sys.argv[1:]
    binary = pathlib.Path(build) / "bench/bench_media"
    with tempfile.TemporaryDirectory() as scratch:
        clips, videos = make(pathlib.Path(scratch))
        for number, path in enumerate(map(pathlib.Path, more)):
            videos += pan(path, number, pathlib.Path(scratch)) if path.suffix.lower() in PHOTOGRAPHS else [path]
        print(f"{'':<16}{'':<28}{'Evenkeel':>9}{'rival':>26}{'ms':>10}{'ratio':>8}")
        bench_log_mel(binary, clips[0])
        _, rows = ours(binary, "audio", *clips)
        bench_files("decode, 16 kHz", {path: ms for (_, path), ms in rows.items()}, audio_rivals(), clips)
        by_packets, whole = ours(binary, "video", folder, *videos)
        for path in map(str, videos):
            for kind in ("frames", "patches"):
                if ("video_ffmpeg", path) in by_packets:
                    row(f"to {kind}", pathlib.Path(path).name, by_packets[f"video_{kind}", path],
                        "FFmpeg, decode alone", by_packets["video_ffmpeg", path])
        patches = {path: ms for (what, path), ms in whole.items() if what == "video_patches"}
        bench_files("to patches", patches, video_rivals(), videos)
    print(subprocess.run(["ffmpeg", "-version"], check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()[0])
    for name in ("transformers", "torch", "librosa", "torchcodec", "av", "decord"):
        module = installed(name)
        print(f"{name} {getattr(module, '__version__', 'not installed')}")


if __name__ == "__main__":
    main()
