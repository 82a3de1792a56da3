"""Videos of GLM-4.1V (and 4.5V) and GLM-4.6V by `evenkeel preprocess` against the video processors and the processors of
the installed `transformers`: which frames, their patches, and whole sequences with their times; bit for bit. Release 4 has
GLM-4.1V alone.
"""

import json
import random
import shutil
import subprocess

import numpy as np
import pytest

from command import preprocess
from installed import GOLDEN, PROCESSORS, RELEASE, Image, media, needed, transformers
from frames import expected
from test_parity_recent import PROGRAM, TOKENIZER, Family, draw_text, made
from test_parity_video import ATEN, BOUNDED, drawn, same

pytestmark = needed
TOKENS = {name + "_token": f"<|{name}|>" for name in ("image", "video", "begin_of_image", "end_of_image", "begin_of_video", "end_of_video")}
MODELS = {name: Family(f"{kind}Processor", (name, f"{kind}ImageProcessor"), {}, TOKENS,
                       parts=(("video_processor", f"video_processing_{name}", f"{kind}VideoProcessor"),))
          for name, kind in (("glm4v", "Glm4v"), ("glm46v", "Glm46V")) if RELEASE > 4 or name == "glm4v"}


@pytest.fixture(scope="module")
def odd_videos(tmp_path_factory):
    folder = tmp_path_factory.mktemp("videos")
    sizes = {"two": ("64x48", 2), "five": ("64x48", 5), "odd": ("75x41", 31), "wide": ("640x36", 24), "long": ("32x32", 400)}
    return {name: drawn(folder / f"{name}.mkv", size, count, "-pix_fmt", "yuv444p") for name, (size, count) in sizes.items()}


def checkpoint(tmp_path, name, **values):
    """(a folder of the goldens with these values in its video processor's file; its video processor)."""
    folder, kind = tmp_path / name, MODELS[name].processor[:-9]
    shutil.copytree(PROCESSORS / "glm4v", folder, dirs_exist_ok=True)
    base = json.loads((folder / "preprocessor_config.json").read_text())
    base |= {"image_processor_type": f"{kind}ImageProcessor", "processor_class": f"{kind}Processor"}
    (folder / "preprocessor_config.json").write_text(json.dumps(base))
    own = {"video_processor_type": f"{kind}VideoProcessor", "processor_class": f"{kind}Processor", "size": BOUNDED, **values}
    (folder / "video_preprocessor_config.json").write_text(json.dumps(own))
    return folder, getattr(transformers, f"{kind}VideoProcessor").from_pretrained(folder)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("path", media("video", ["video/h264.mp4", "video/vp9.webm", "video/hevc-open.mp4"]), ids=lambda path: path.name)
def test_videos_are_those_of_the_processor(tmp_path, name, path):
    folder, processor = checkpoint(tmp_path, name)
    same(preprocess(tmp_path, folder, path, *ATEN), expected(processor, path, tmp_path))


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("values", [{}, {"fps": 3.5, "image_mean": [0.5, 0.4, 0.3], "resample": 2},
                                    {"max_duration": 2, "fps": 4}, {"max_duration": 1, "fps": 50},
                                    {"size": {"shortest_edge": 12544, "longest_edge": 47040000}, "min_frames": 3}], ids=str)
def test_files_are_read_as_by_the_processor(tmp_path, odd_videos, name, values):
    folder, processor = checkpoint(tmp_path, name, **values)
    for video, path in odd_videos.items():
        if RELEASE == 4 and video in ("two", "five"):
            continue  # chooses no frame of less than half a second
        same(preprocess(tmp_path, folder, path, *ATEN), expected(processor, path, tmp_path))


def test_the_job_has_another_rate(tmp_path, odd_videos):
    folder, processor = checkpoint(tmp_path, "glm4v", fps=3)
    same(preprocess(tmp_path, folder, odd_videos["odd"], *ATEN, "--fps", "1.7"),
         expected(processor, odd_videos["odd"], tmp_path, fps=1.7))


def video_facts(generator):
    smallest = 28 if RELEASE == 4 else 8
    sides = [generator.randrange(smallest, 90) for _ in "wh"]
    return {"width": sides[0], "height": sides[1], "frames": generator.randrange(8, 80), "fps": generator.choice([3, 8, 24])}


def metadata_of(facts):
    return transformers.video_utils.VideoMetadata(total_num_frames=facts["frames"], fps=facts["fps"],
                                                  duration=facts["frames"] / facts["fps"])


@pytest.mark.skipif(not PROGRAM.exists(), reason=f"no program at {PROGRAM}")
@pytest.mark.parametrize("name", MODELS)
def test_sequences_are_those_of_the_processor(tmp_path, name):
    folder = tmp_path / "folder"
    processor = made(MODELS[name], "pil13" if RELEASE == 4 else "aten_u8", folder)
    added = processor.tokenizer.get_added_vocab()
    told = {"tokenizer": str(TOKENIZER), "vision": str(folder), "chat": "plain", "resampler": "aten_u8",
            "added_tokens": sorted(added, key=added.get)}
    generator = random.Random(name)
    requests, wanted = [], []
    for _ in range(12):
        text, content, facts, videos, images = "", [], [], [], []
        # Release 4 gives pictures of a text with videos the number of placeholders of a grid.
        kinds = ["video", *generator.choices(["image", "video"] if RELEASE > 4 else ["video"], k=generator.randrange(3))]
        generator.shuffle(kinds)
        for kind in kinds:
            said = draw_text(generator)
            text += f"{said}<|begin_of_{kind}|><|{kind}|><|end_of_{kind}|>"
            content += [{"type": "text", "text": said}, {"type": kind}]
            facts.append(video_facts(generator))
            sides = facts[-1]["width"], facts[-1]["height"]
            if kind == "image":
                images.append(Image.new("RGB", sides))
            else:
                videos.append((np.zeros((facts[-1]["frames"], *sides[::-1], 3), np.uint8), metadata_of(facts[-1])))
        sample = {"messages": [{"role": "user", "content": content}, {"role": "assistant", "content": ""}]}
        requests.append({"processor": told, "sample": json.dumps(sample), "facts": facts})
        out = processor(text=[text], videos=[video for video, _ in videos], video_metadata=[about for _, about in videos],
                        do_sample_frames=True, return_mm_token_type_ids=True, **({"images": images} if images else {}))
        wanted.append([[int(token) for token in np.asarray(out[key][0])] for key in ("input_ids", "mm_token_type_ids")])
        wanted[-1][0].append(processor.tokenizer.eos_token_id)
    done = subprocess.run([PROGRAM], input="".join(json.dumps(request) + "\n" for request in requests), capture_output=True,
                          text=True, check=True)
    for request, line, (ids, types) in zip(requests, done.stdout.splitlines(), wanted):
        ours = json.loads(line)
        assert ours.get("ids") == ids, (request, line[:300])
        assert RELEASE == 4 or ours["types"][: len(types)] == types
