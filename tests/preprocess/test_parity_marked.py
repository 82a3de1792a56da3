"""Families whose processors write text and marks around pictures (Gemma 3, PaliGemma, Pixtral) against the processors of the
installed `transformers`, release 4 or 5: pixels by both resamplers, and whole sequences."""

import json
import os
import pathlib
import random
import shutil
import subprocess

import numpy as np
import pytest

from command import BINARY, preprocess, refusal
from installed import GOLDEN, PROCESSORS, RELEASE, Image, image_processor, in_patches, needed, transformers

TOKENIZER = GOLDEN.parent / "tokenizer"
PROGRAM = pathlib.Path(os.environ.get("EVENKEEL_CHAT_SEQUENCES",
                                      BINARY.parents[1] / "tests/preprocess/text/chat_sequences"))
PICTURE = GOLDEN / "pictures/scene.png"
SIZES = [(41, 29), (1, 1), (1, 60), (60, 1), (3, 200), (300, 200), (200, 300), (600, 256), (56, 84), (57, 83)]

pytestmark = needed

# folder: (its processor, its image processor, what its processor is told, the mark of a picture in a text, its tokens)
FAMILIES = {
    "gemma3": ("Gemma3Processor", ("gemma3", "Gemma3ImageProcessor"), {}, "<start_of_image>",
               {"image_token": "<image_soft_token>", "boi_token": "<start_of_image>", "eoi_token": "<end_of_image>"}),
    "mistral3": ("PixtralProcessor", ("pixtral", "PixtralImageProcessor"), {"patch_size": 14, "spatial_merge_size": 2}, "[IMG]",
                 {"image_token": "[IMG]", "break": "[IMG_BREAK]", "end": "[IMG_END]"}),
    "paligemma": ("PaliGemmaProcessor", ("siglip", "SiglipImageProcessor"), {}, "<image>",
                  {"image_token": "<image>", "bos_token": "<bos>"}),
    "pixtral": ("PixtralProcessor", ("pixtral", "PixtralImageProcessor"), {"patch_size": 16}, "[IMG]",
                {"image_token": "[IMG]", "break": "[IMG_BREAK]", "end": "[IMG_END]"}),
}
# Keys of the image processor's file, as checkpoints have them and as they might.
EDITS = {
    "gemma3": [{"size": {"height": 56, "width": 56}}, {"size": 70, "resample": 3, "do_convert_rgb": False},
               {"size": {"height": 42, "width": 84}, "do_pan_and_scan": True, "pan_and_scan_min_crop_size": 16,
                "pan_and_scan_max_num_crops": 4, "pan_and_scan_min_ratio_to_activate": 1.2},
               {"image_processor_type": "Gemma3ImageProcessorFast", "default_to_square": False, "do_center_crop": None,
                "crop_size": None, "data_format": "channels_first", "device": None, "do_convert_rgb": True,
                "input_data_format": None, "return_tensors": None, "size": {"height": 56, "width": 56}}],
    "mistral3": [{}, {"size": {"longest_edge": 100}, "patch_size": 14}, {"size": 150, "patch_size": 3}],
    "paligemma": [{"size": {"height": 56, "width": 56}, "image_seq_length": 16},
                  {"size": {"height": 84, "width": 84}, "image_seq_length": 9},
                  {"image_processor_type": "SiglipImageProcessorFast", "size": {"height": 28, "width": 28}, "image_seq_length": 4,
                   "do_center_crop": None, "crop_size": None, "default_to_square": False, "device": None}],
    "pixtral": [{}, {"size": {"longest_edge": 64}}, {"size": {"height": 40, "width": 90}, "resample": 2},
                {"size": 50, "do_pad": True}],
}
CASES = [(folder, edit) for folder, edits in EDITS.items() for edit in edits]


def folder_of(tmp_path, folder, edit):
    made = tmp_path / "folder"
    shutil.copytree(PROCESSORS / folder, made)
    path = made / "preprocessor_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **edit}))
    return made


def processor_of(folder, made, resampler):
    kind, image, told, _, tokens = FAMILIES[folder]
    of_gemma = RELEASE == 4 and folder == "paligemma"
    words = (transformers.GemmaTokenizerFast if of_gemma else transformers.PreTrainedTokenizerFast)(
        tokenizer_file=str(TOKENIZER / "tokenizer.json"))
    words.add_tokens([transformers.AddedToken(token, special=True) for token in tokens.values()], special_tokens=True)
    words.eos_token = "<|endoftext|>"
    for name, token in tokens.items():
        setattr(words, name, token)
        setattr(words, f"{name}_id", words.convert_tokens_to_ids(token))
    pictures = image_processor(*image, resampler).from_pretrained(made)
    return getattr(transformers, kind)(image_processor=pictures, tokenizer=words, **told)


@pytest.mark.parametrize("resampler", ["aten_u8", "pil13"])
@pytest.mark.parametrize("folder,edit", CASES, ids=str)
def test_pictures_are_those_of_the_processor(tmp_path, folder, edit, resampler):
    if RELEASE == 4 and resampler == "pil13" and isinstance(edit.get("size"), int) and folder in ("mistral3", "pixtral"):
        pytest.skip("fails on a number")
    made = folder_of(tmp_path, folder, edit)
    processor = processor_of(folder, made, resampler)
    mark, told = FAMILIES[folder][3], FAMILIES[folder][2]
    options = ["--resampler", resampler, *(["--alpha", "drop"] if RELEASE == 4 else [])]
    paths, values, sizes = [], [], []
    for width, height in SIZES:
        if RELEASE == 4 and resampler == "pil13" and 1 in (width, height):
            continue  # takes them for channels
        path = tmp_path / f"{width}x{height}.png"
        picture = Image.open(PICTURE).convert("RGB").resize((width, height))
        if folder == "gemma3":  # whose processor converts transparency, whatever the file says
            picture.putalpha(Image.linear_gradient("L").resize((width, height)))
        picture.save(path)
        try:
            theirs = processor(text=mark, images=[Image.open(path)], return_tensors="pt")
        except (RuntimeError, ValueError):  # a side becomes nothing
            assert "which the processor would resize to" in refusal(tmp_path, made, path, *options)
            continue
        pixels = theirs["pixel_values"].numpy()
        if "patch_size" in told:
            pixels = in_patches(pixels, told["patch_size"])
            sizes += theirs["image_sizes"].tolist()
        paths.append(path)
        values.append(np.ascontiguousarray(pixels, np.float32).ravel())
    assert len(paths) > 5
    ours = preprocess(tmp_path, made, paths, *options)
    assert np.array_equal(ours["pixel_values"].view(np.uint32).ravel(), np.concatenate(values).view(np.uint32))
    assert ours.get("image_sizes", np.zeros(0)).tolist() == sizes


@pytest.mark.parametrize("resampler", ["aten_u8", "pil13"])
@pytest.mark.parametrize("folder,size", [("pixtral", (1, 1025)), ("mistral3", (1600, 1))], ids=str)
def test_pictures_that_become_nothing_fail_in_both(tmp_path, folder, size, resampler):
    path = tmp_path / "picture.png"
    Image.new("RGB", size).save(path)
    assert "which the processor would resize to" in refusal(tmp_path, PROCESSORS / folder, path, "--resampler", resampler)
    processor = processor_of(folder, PROCESSORS / folder, resampler)
    with pytest.raises((RuntimeError, ValueError)):
        processor(text=FAMILIES[folder][3], images=[Image.open(path)], return_tensors="pt")


def draw_text(generator):
    words = ["Hello", " world", "What's", " it", "?", "\n", "\n\n", " ", "   ", "ship", " 船が", "Größe", "12345", "a b"]
    return "".join(generator.choice(words) for _ in range(generator.randrange(6)))


@pytest.mark.skipif(not PROGRAM.exists(), reason=f"no program at {PROGRAM}")
@pytest.mark.parametrize("folder,edit", CASES, ids=str)
def test_sequences_are_those_of_the_processor(tmp_path, folder, edit):
    made = folder_of(tmp_path, folder, edit)
    processor = processor_of(folder, made, "aten_u8")
    mark, added = FAMILIES[folder][3], processor.tokenizer.get_added_vocab()
    told = {"tokenizer": str(TOKENIZER), "vision": str(made), "chat": "plain", "added_tokens": sorted(added, key=added.get)}
    generator = random.Random(folder)
    # One of them writes answers, too: a line break behind the prompt, and the end of the text.
    answers = {"suffix": ["A boat."]} if folder == "paligemma" else {}
    requests, wanted = [], []
    for _ in range(15):
        text, content, facts, pictures = "", [], [], []
        for _ in range(generator.randrange(1, 4)):  # a text without pictures is no call of these processors
            sides = [generator.randrange(20, 400) for _ in "wh"]
            said = draw_text(generator)
            text += said + mark
            content += [{"type": "text", "text": said}, {"type": "image"}]
            facts.append(dict(zip(("width", "height"), sides)))
            pictures.append(Image.new("RGB", sides))
        said = draw_text(generator)
        content.append({"type": "text", "text": said + ("\n" if answers else "")})
        answer = {"role": "assistant", "content": "A boat." if answers else ""}
        sample = {"messages": [{"role": "user", "content": content}, answer]}
        requests.append({"processor": told, "sample": json.dumps(sample), "facts": facts})
        out = processor(text=[text + said], images=[pictures], **answers)
        ids = [int(token) for token in out["input_ids"][0]]
        labels = [int(label) for label in out["labels"][0]] if answers else [-100] * len(ids)
        end = [] if answers else [processor.tokenizer.eos_token_id]
        wanted.append((ids + end, labels + end))
    done = subprocess.run([PROGRAM], input="".join(json.dumps(request) + "\n" for request in requests), capture_output=True,
                          text=True, check=True)
    for request, line, (ids, labels) in zip(requests, done.stdout.splitlines(), wanted):
        answer = json.loads(line)
        assert answer.get("ids") == ids, (request, line[:300])
        assert answer["labels"] == labels, request
