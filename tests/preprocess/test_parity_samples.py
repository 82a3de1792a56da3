"""Whole samples, from a tar to what a trainer gets, against AutoProcessor of the same folder: ids, trained labels, types,
positions, and every field of the media, of chats with several pictures, videos and clips. The folders are as transformers
writes them.
"""

import importlib
import json
import pathlib
import subprocess
import sys
import types

import numpy as np
import pytest

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parents[1] / folder) for folder in ("python", "e2e", "golden")]
import jobs  # noqa: E402
from media import Shard  # noqa: E402
from command import BINARY
from installed import GOLDEN, RELEASE, Image, in_patches, needed, transformers

sys.path.insert(0, str(pathlib.Path(BINARY).parents[1] / "python"))
evenkeel = pytest.importorskip("evenkeel")
torch = pytest.importorskip("torch")
pytest.importorskip("torchcodec")

pytestmark = [*needed, pytest.mark.skipif(RELEASE < 5, reason="transformers 4 has other classes")]
TOKENIZER = GOLDEN.parent / "tokenizer" / "tokenizer.json"
QWEN = {"image": "<|vision_start|><|image_pad|><|vision_end|>", "video": "<|vision_start|><|video_pad|><|vision_end|>"}
QWEN_TOKENS = {"image_token": "<|image_pad|>", "video_token": "<|video_pad|>", "vision_bos_token": "<|vision_start|>",
               "vision_eos_token": "<|vision_end|>"}
SMALL = {"size": {"shortest_edge": 3136, "longest_edge": 60000}}
OMNI = {"image": "<|vision_bos|><|IMAGE|><|vision_eos|>", "video": "<|vision_bos|><|VIDEO|><|vision_eos|>",
        "audio": "<|audio_bos|><|AUDIO|><|audio_eos|>"}
OMNI_TOKENS = {"image_token": "<|IMAGE|>", "video_token": "<|VIDEO|>", "audio_token": "<|AUDIO|>", "vision_bos_token": "<|vision_bos|>",
               "vision_eos_token": "<|vision_eos|>", "audio_bos_token": "<|audio_bos|>", "audio_eos_token": "<|audio_eos|>"}
OMNI3 = {**QWEN, "audio": "<|audio_start|><|audio_pad|><|audio_end|>"}
OMNI3_TOKENS = {**QWEN_TOKENS, "audio_token": "<|audio_pad|>", "audio_bos_token": "<|audio_start|>", "audio_eos_token": "<|audio_end|>"}
GRID = [f"<row_{row}_col_{column}>" for row in range(1, 7) for column in range(1, 7)]
IDEFICS = {"image_token": "<image>", "fake": "<fake_token_around_image>", "global": "<global-img>", "end": "<end_of_utterance>",
           **{f"at{i}": token for i, token in enumerate(GRID)}}
INTERN_TOKENS = {"start_image_token": "<img>", "end_image_token": "</img>", "context_image_token": "<IMG_CONTEXT>", "video_token": "<video>"}
LLAVA_TOKENS = {"image_token": "<image>", "video_token": "<video>"}


class Family:
    def __init__(self, processor, writes, tokens, image=None, video=None, audio=None, told=None, call=None, job="", one_clip=False, begin=""):
        self.processor, self.writes, self.tokens, self.told = processor, writes, tokens, told or {}
        self.image, self.video, self.audio = image, video, audio  # (module, class, values)
        self.call = call or {}  # arguments of the processor
        self.job = job  # keys of the job's processor
        self.one_clip = one_clip  # a sample has one medium
        self.begin = begin  # of the template


FAMILIES = {
    "qwen2-vl": Family("Qwen2VLProcessor", QWEN, QWEN_TOKENS, ("qwen2_vl", "Qwen2VLImageProcessor", SMALL),
                       ("qwen2_vl", "Qwen2VLVideoProcessor", {}), call={"fps": 2, "do_sample_frames": True}, job="frame_rule: transformers"),
    "qwen2_5-vl": Family("Qwen2_5_VLProcessor", QWEN, QWEN_TOKENS, ("qwen2_vl", "Qwen2VLImageProcessor", SMALL),
                         ("qwen2_vl", "Qwen2VLVideoProcessor", {}), call={"fps": 2, "do_sample_frames": True}, job="frame_rule: transformers"),
    "qwen3-vl": Family("Qwen3VLProcessor", QWEN, QWEN_TOKENS,
                       ("qwen2_vl", "Qwen2VLImageProcessor", {**SMALL, "patch_size": 16}), ("qwen3_vl", "Qwen3VLVideoProcessor", {})),
    "internvl": Family("InternVLProcessor", {"image": "<IMG_CONTEXT>\n", "video": "<video>\n"}, INTERN_TOKENS,
                       ("got_ocr2", "GotOcr2ImageProcessor", {"size": {"height": 448, "width": 448}}),
                       ("internvl", "InternVLVideoProcessor", {"do_sample_frames": True, "num_frames": 4, "size": {"height": 448, "width": 448}}), told={"image_seq_length": 16}),
    "llava": Family("LlavaProcessor", {"image": "<image>\n"}, LLAVA_TOKENS,
                    ("clip", "CLIPImageProcessor", {"size": {"shortest_edge": 336}, "crop_size": 336}),
                    told={"patch_size": 14, "vision_feature_select_strategy": "default", "num_additional_image_tokens": 1}),
    "llava-next": Family("LlavaNextProcessor", {"image": "<image>\n"}, LLAVA_TOKENS, ("llava_next", "LlavaNextImageProcessor",
                         {"size": {"shortest_edge": 336}, "crop_size": 336}),
                         told={"patch_size": 14, "vision_feature_select_strategy": "default", "num_additional_image_tokens": 1}),
    "llava-onevision": Family("LlavaOnevisionProcessor", {"image": "<image>\n", "video": "<video>\n"}, LLAVA_TOKENS,
                              ("llava_onevision", "LlavaOnevisionImageProcessor", {}), ("llava_onevision", "LlavaOnevisionVideoProcessor", {}),
                              told={"num_image_tokens": 729, "vision_feature_select_strategy": "full"}),
    "gemma3": Family("Gemma3Processor", {"image": "<start_of_image>"},
                     {"boi_token": "<start_of_image>", "eoi_token": "<end_of_image>", "image_token": "<image_soft_token>"},
                     ("gemma3", "Gemma3ImageProcessor", {}), told={"image_seq_length": 16}),
    "idefics3": Family("Idefics3Processor", {"image": "<image>"}, IDEFICS, ("idefics3", "Idefics3ImageProcessor", {}), told={"image_seq_len": 4}),
    "pixtral": Family("PixtralProcessor", {"image": "[IMG]"}, {"image_token": "[IMG]", "break": "[IMG_BREAK]", "end": "[IMG_END]"},
                      ("pixtral", "PixtralImageProcessor", {"size": {"longest_edge": 256}, "patch_size": {"height": 16, "width": 16}}),
                      told={"patch_size": 16}),
    "glm4v": Family("Glm4vProcessor", {"image": "<|begin_of_image|><|image|><|end_of_image|>"},
                    {"image_token": "<|image|>", "video_token": "<|video|>", "a": "<|begin_of_image|>", "b": "<|end_of_image|>",
                     "c": "<|begin_of_video|>", "d": "<|end_of_video|>"},
                    ("glm4v", "Glm4vImageProcessor", {"size": {"shortest_edge": 12544, "longest_edge": 90000}}),
                    ("glm4v", "Glm4vVideoProcessor", {})),
    "ovis2": Family("Ovis2Processor", {"image": "<image>\n"}, {"image_token": "<image>", **{f"o{i}": token for i, token in enumerate(
        ["<IMG_START>", "<IMG_GRID>", "<IMG_COL>", "<IMG_ROW>", "<IMG_END>", "<IMG_ATOM>"])}},
                    ("ovis2", "Ovis2ImageProcessor", {}), told={"image_seq_length": 16}),
    "lfm2-vl": Family("Lfm2VlProcessor", {"image": "<image>"},
                      {"image_token": "<image>", "image_start_token": "<|image_start|>", "image_end_token": "<|image_end|>",
                       "image_thumbnail_token": "<|img_thumbnail|>",
                       **{f"t{row}{column}": f"<|img_row_{row}_col_{column}|>" for row in range(1, 11) for column in range(1, 11)}},
                      ("lfm2_vl", "Lfm2VlImageProcessor", {})),
    "smolvlm": Family("SmolVLMProcessor", {"image": "<image>", "video": "<video>"}, {**IDEFICS, "video_token": "<video>"},
                      ("smolvlm", "SmolVLMImageProcessor", {}), ("smolvlm", "SmolVLMVideoProcessor", {}), told={"image_seq_len": 4}),
    "aya-vision": Family("AyaVisionProcessor", {"image": "<image>"}, {"image_token": "<image>", **{f"a{i}": token for i, token in enumerate(
        ["<|START_OF_IMG|>", "<|END_OF_IMG|>", "<|IMG_PATCH|>", "<|IMG_LINE_BREAK|>", "TILE_GLOBAL", *[f"TILE_{i}" for i in range(1, 13)]])}},
                         ("got_ocr2", "GotOcr2ImageProcessor", {"size": {"height": 56, "width": 56}}), told={"patch_size": 14, "img_size": 56}),
    "cohere2-vision": Family("Cohere2VisionProcessor", {"image": "<|IMG_PATCH|>"},
                             {"image_token": "<|IMG_PATCH|>", "boi_token": "<|START_OF_IMG|>", "eoi_token": "<|END_OF_IMG|>",
                              "img_line_break_token": "<|IMG_LINE_BREAK|>"},
                             ("cohere2_vision", "Cohere2VisionImageProcessor", {})),
    "llama4": Family("Llama4Processor", {"image": "<|image|>"}, {"image_token": "<|image|>", **{f"l{i}": token for i, token in enumerate(
        ["<|image_start|>", "<|image_end|>", "<|patch|>", "<|tile_x_separator|>", "<|tile_y_separator|>"])}},
                     ("llama4", "Llama4ImageProcessor", {}), told={"patch_size": 14}),
    "videollama3": Family("VideoLlama3Processor", {"image": "<|image_pad|>", "video": "<|video_pad|>"}, QWEN_TOKENS,
                          ("video_llama_3", "VideoLlama3ImageProcessor", {}), ("video_llama_3", "VideoLlama3VideoProcessor", {"use_token_compression": False})),
    "paddleocr-vl": Family("PaddleOCRVLProcessor", {"image": "<|IMAGE_START|><|IMAGE_PLACEHOLDER|><|IMAGE_END|>"},
                           {"image_token": "<|IMAGE_PLACEHOLDER|>", "p0": "<|IMAGE_START|>", "p1": "<|IMAGE_END|>"},
                           ("paddleocr_vl", "PaddleOCRVLImageProcessor", {})),
    "janus": Family("JanusProcessor", {"image": "<image_placeholder>\n"}, {"image_token": "<image_placeholder>", "boi_token": "<begin_of_image>",
                    "eoi_token": "<end_of_image>"}, ("janus", "JanusImageProcessor", {}), told={"num_image_tokens": 16}),
    "mllama": Family("MllamaProcessor", {"image": "<|image|>"}, {"image_token": "<|image|>", "m": "<|python_tag|>"},
                     ("mllama", "MllamaImageProcessor", {"size": {"height": 224, "width": 224}}), begin="{{ bos_token }}"),
    "ernie4_5-vl": Family("Ernie4_5_VLMoeProcessor", {"image": "<|IMAGE_START|><|IMAGE_PLACEHOLDER|><|IMAGE_END|>",
                                                      "video": "<|VIDEO_START|><|VIDEO_PLACEHOLDER|><|VIDEO_END|>"},
                          {"image_token": "<|IMAGE_PLACEHOLDER|>", "image_start_token": "<|IMAGE_START|>", "image_end_token": "<|IMAGE_END|>",
                           "video_token": "<|VIDEO_PLACEHOLDER|>", "video_start_token": "<|VIDEO_START|>", "video_end_token": "<|VIDEO_END|>"},
                          ("ernie4_5_vl_moe", "Ernie4_5_VLMoeImageProcessor", {}),
                          ("ernie4_5_vl_moe", "Ernie4_5_VLMoeVideoProcessor", {"draw_on_frames": False})),
    "deepseek-vl": Family("DeepseekVLProcessor", {"image": "<image_placeholder>"}, {"image_token": "<image_placeholder>"},
                          ("deepseek_vl", "DeepseekVLImageProcessor", {}), told={"num_image_tokens": 16}),
    "qwen3-asr": Family("Qwen3ASRProcessor", {"audio": "<|audio_start|><|audio_pad|><|audio_end|>"}, OMNI3_TOKENS,
                        audio={"class": "Qwen3ASRFeatureExtractor"}, one_clip=True),
    "glm-asr": Family("GlmAsrProcessor", {"audio": "<|begin_of_audio|><|pad|><|end_of_audio|>"},
                      {"audio_token": "<|pad|>", "g0": "<|begin_of_audio|>", "g1": "<|end_of_audio|>"}, audio={"feature_size": 128}, one_clip=True),
    "audioflamingo3": Family("AudioFlamingo3Processor", {"audio": "<sound>"}, {"audio_token": "<sound>"}, audio={"feature_size": 128}, one_clip=True),
    "qwen2-audio": Family("Qwen2AudioProcessor", {"audio": "<|audio_bos|><|AUDIO|><|audio_eos|>"},
                          {"audio_token": "<|AUDIO|>", "audio_bos_token": "<|audio_bos|>", "audio_eos_token": "<|audio_eos|>"},
                          audio={"feature_size": 128}),
    "qwen2_5-omni": Family("Qwen2_5OmniProcessor", OMNI, OMNI_TOKENS, ("qwen2_vl", "Qwen2VLImageProcessor", SMALL),
                           ("qwen2_vl", "Qwen2VLVideoProcessor", {}), {"feature_size": 128, "chunk_length": 30}, call={"fps": 2, "do_sample_frames": True},
                           job="frame_rule: transformers"),
    "qwen3-omni": Family("Qwen3OmniMoeProcessor", OMNI3, OMNI3_TOKENS, ("qwen2_vl", "Qwen2VLImageProcessor", {**SMALL, "patch_size": 16}),
                         ("qwen2_vl", "Qwen2VLVideoProcessor", {"patch_size": 16}), {"feature_size": 128}, call={"fps": 2, "do_sample_frames": True},
                         job="frame_rule: transformers"),
    "gemma3n": Family("Gemma3nProcessor", {"image": "<image_soft_token>", "audio": "<audio_soft_token>"},
                      {"boi_token": "<start_of_image>", "image_token": "<image_soft_token>", "eoi_token": "<end_of_image>",
                       "boa_token": "<start_of_audio>", "audio_token": "<audio_soft_token>", "eoa_token": "<end_of_audio>"},
                      ("siglip", "SiglipImageProcessor", {"do_normalize": False}), audio={"class": "Gemma3nAudioFeatureExtractor"},
                      told={"image_seq_length": 16}),
    "gemma4": Family("Gemma4Processor", {"image": "<|image|>", "video": "<|video|>", "audio": "<|audio|>"},
                     {"boi_token": "<|image>", "image_token": "<|image|>", "eoi_token": "<image|>", "boa_token": "<|audio>",
                      "audio_token": "<|audio|>", "eoa_token": "<audio|>", "video": "<|video|>"},
                     ("gemma4", "Gemma4ImageProcessor", {"max_soft_tokens": 70}), ("gemma4", "Gemma4VideoProcessor", {"num_frames": 4}),
                     {"class": "Gemma4AudioFeatureExtractor"}),
}

# Whose positions are on grids: {family: (module, class with get_rope_index)}.
MROPE = {"glm4v": ("glm4v", "Glm4vModel"), "paddleocr-vl": ("paddleocr_vl", "PaddleOCRVLModel"),
         "ernie4_5-vl": ("ernie4_5_vl_moe", "Ernie4_5_VLMoeModel")}

TEMPLATE = """\
{%% for message in messages %%}
{%% if message['role'] == 'assistant' %%}
<|im_start|>assistant
{%% generation %%}{{ message['content'][0]['text'] if message['content'] is not string else message['content'] }}<|im_end|>
{%% endgeneration %%}
{%% else %%}
<|im_start|>{{ message['role'] }}
{%% for part in message['content'] %%}%s{%% endfor %%}<|im_end|>
{%% endif %%}
{%% endfor %%}
"""


def template(writes):
    parts = "".join(f"{{% {'if' if i == 0 else 'elif'} part['type'] == '{medium}' %}}{{{{ {json.dumps(text)} }}}}"
                    for i, (medium, text) in enumerate(writes.items()))
    return TEMPLATE % (parts + "{% else %}{{ part['text'] }}{% endif %}")


def part_of(spec, kind):
    module, name, values = spec
    found = importlib.import_module(f"transformers.models.{module}.{kind}_{module}")
    return getattr(found, name)(**values)


def write_checkpoint(folder, family):
    """The folder as transformers saves it, and its AutoProcessor."""
    words = transformers.PreTrainedTokenizerFast(tokenizer_file=str(TOKENIZER), eos_token="<|im_end|>", pad_token="<|endoftext|>",
                                                 bos_token="<|endoftext|>", extra_special_tokens=family.tokens)
    parts = {"tokenizer": words, "chat_template": family.begin + template(family.writes)}
    if family.image:
        parts["image_processor"] = part_of(family.image, "image_processing")
    if family.video:
        parts["video_processor"] = part_of(family.video, "video_processing")
    if family.audio:
        values = dict(family.audio)
        parts["feature_extractor"] = getattr(transformers, values.pop("class", "WhisperFeatureExtractor"))(**values)
    getattr(transformers, family.processor)(**parts, **family.told).save_pretrained(folder)
    return transformers.AutoProcessor.from_pretrained(folder)


def write_media(folder):
    """{medium: paths}: pictures of odd sizes, videos of which some have audio, clips."""
    rng = np.random.default_rng(4)
    pictures = []
    for i, (width, height) in enumerate([(300, 200), (97, 211), (640, 480), (61, 340), (401, 399)]):
        pictures.append(folder / f"p{i}.png")
        Image.fromarray(rng.integers(0, 256, (height, width, 3), np.uint8)).save(pictures[-1])
    videos = []
    for i, (seconds, sound) in enumerate([(4.0, 4.0), (3.2, 5.5), (5.0, 0), (2.6, 1.3)]):
        videos.append(folder / f"v{i}.mov")
        # Of the extractor's rate and without loss, since torchcodec resamples otherwise than librosa, and has the end of a last
        # packet of AAC that the container hides.
        audio = ["-f", "lavfi", "-t", str(sound), "-i", f"anoisesrc=r=16000:seed={i}:amplitude=0.3", "-c:a", "pcm_s16le"] if sound else []
        subprocess.run(["ffmpeg", "-v", "error", "-y", "-f", "lavfi", "-t", str(seconds), "-i", f"testsrc2=s=160x{90 + 10 * i}:r=10",
                        *audio, "-c:v", "libx264", "-pix_fmt", "yuv420p", videos[-1]], check=True)
    clips = []
    for i, samples in enumerate([16000, 40320, 24000]):
        clips.append(folder / f"a{i}.wav")
        clips[-1].write_bytes(wave_of(rng.integers(-9000, 9000, samples, np.int16)))
    return {"image": pictures, "video": videos, "audio": clips}


def wave_of(samples):
    import io
    import wave
    out = io.BytesIO()
    with wave.open(out, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(16000)
        file.writeframes(samples.tobytes())
    return out.getvalue()


def chats(family, media):
    """Messages with paths, of every medium that the family writes: one, several, across turns, and none."""
    kinds = [kind for kind in family.writes if kind != "video" or family.video]
    taken = dict.fromkeys(media, 0)

    def part(kind):
        taken[kind] += 1
        return {"type": kind, "path": str(media[kind][taken[kind] % len(media[kind])])}

    def said(role, *parts):
        return {"role": role, "content": [one if isinstance(one, dict) else {"type": "text", "text": one} for one in parts]}
    out = [[said("user", part(kind), "What is it?"), said("assistant", f"A {kind} of the keel.")] for kind in kinds]
    if family.one_clip:
        return [*out, [said("user", "Listen:", part(kinds[0])), said("assistant", "A horn."), said("user", "Sure?"), said("assistant", "Yes.")]]
    out += [[said("user", part(kinds[0]), "And", part(kinds[-1]), " compare"), said("assistant", "They differ."),
             said("user", part(kinds[0]), " and now?"), said("assistant", "Even, I should say.")],
            [said("system", "Be brief."), said("user", *[part(kind) for kind in kinds], "All?"), said("assistant", "All.")],
            [said("user", *[part(kinds[0]) for _ in range(3)]), said("assistant", "Three.")]]
    if family.video and "audio" in kinds:
        out += [[said("user", part("video"), "?"), said("assistant", "Loud.")] for _ in range(4)]
    return out


def write_job(folder, family, samples, keys):
    shard = Shard(folder / "all.tar")
    for number, messages in enumerate(samples):
        count, given = 0, []
        for message in messages:
            parts = []
            for part in message["content"]:
                if "path" in part:
                    path = pathlib.Path(part["path"])
                    shard.add(f"{number:03d}.{count}{path.suffix}", path.read_bytes())
                    part = {"type": part["type"], part["type"]: f"{count}{path.suffix}"}
                    count += 1
                parts.append(part)
            given.append({**message, "content": parts})
        shard.add(f"{number:03d}.json", json.dumps({"messages": given}).encode())
    shard.close()
    phases = "".join(f'  - {{name: {phase}, ranks: "0", min_items: 0}}\n' for phase, part in (("vision", family.image), ("audio", family.audio)) if part)
    job = folder / "job.yaml"
    job.write_text(f"""\
seed: 5
index: index
datasets: [{{name: all, shards: ["all.tar"]}}]
processor: {{{", ".join(['folder: "checkpoint"', family.job, keys]).replace(", , ", ", ").strip(", ")}}}
batch: {{samples: 1}}
order: {{shuffle: none}}
phases:
  - {{name: llm, ranks: "0"}}
{phases}""")
    done = subprocess.run([BINARY, "index", "--job", job, "--json"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["samples"] == len(samples), done.stdout
    return job


def flat(value):
    """The values of nested lists of arrays, in their order."""
    if isinstance(value, (list, tuple)):
        return np.concatenate([flat(one) for one in value])
    if torch.is_tensor(value) and value.dtype == torch.bfloat16:
        value = value.float()
    return np.asarray(value).reshape(-1)


def compare_media(ours, theirs, where, most=1e-4):
    """How many fields are equal; features of clips differ by at most `most`, since Whisper's are made in single precision."""
    compared = 0
    for name, value in theirs.items():
        if name in ("input_ids", "attention_mask", "token_type_ids", "mm_token_type_ids", "assistant_masks"):
            continue
        if name not in ours:
            continue
        got, wanted = flat(ours[name]), flat(value)
        assert got.size == wanted.size, (where, name, np.shape(ours[name]), np.shape(value))
        if name == "input_features":
            assert np.abs(got - wanted).max() <= most, (where, name)
        else:
            assert np.array_equal(got, wanted.astype(got.dtype)), (where, name)
        compared += 1
    return compared


def in_order_of_text(ours, messages, rows_of_tile):
    """InternVL's processor has tiles and frames in one field, in the order of the text."""
    counts = np.asarray(ours["item_rows"]) // rows_of_tile  # of pictures, then of videos
    order = [part["type"] for message in messages for part in message["content"] if "path" in part]
    pictures = order.count("image")
    left = {"image": list(counts[:pictures]), "video": list(counts[pictures:])}
    values = {kind: flat(ours[name]) if name in ours else None for kind, name in (("image", "pixel_values"), ("video", "pixel_values_videos"))}
    at, tile, out = {"image": 0, "video": 0}, 3 * 448 * 448, []
    for kind in order:
        end = at[kind] + left[kind].pop(0) * tile
        out.append(values[kind][at[kind]:end])
        at[kind] = end
    return {"pixel_values": np.concatenate(out)}


def without_padding(name, theirs):
    """Pixels without what a call of several pictures adds, in the form in which ours are."""
    values = np.asarray(theirs["pixel_values"])
    if name == "pixtral":
        sizes = np.asarray(theirs["image_sizes"])
        return np.concatenate([in_patches(one[None, :, :height, :width], 16).reshape(-1) for one, (height, width) in zip(values, sizes)])
    if name == "mllama":
        tiles = values.reshape(-1, 3 * values.shape[-1] ** 2)
        return tiles[tiles.any(1)]
    return np.concatenate([tiles[: 1 + max(np.flatnonzero(tiles.reshape(len(tiles), -1).any(1)))].reshape(-1) for tiles in values])


def as_the_model_takes_them(features, mask):
    """Qwen3-Omni's clips one after another, without padding: [frames, 128]."""
    return np.concatenate([clip.T[: int(count)] for clip, count in zip(np.asarray(features), np.asarray(mask).sum(-1))])


def without_padding_of_gemma(theirs, ours, more):
    """Frames of clips, of which a call has as many as of the longest, and up to `more` marked ones after a shorter one; and
    pictures and frames, whose padding has positions of -1."""
    out = dict(theirs)
    if "input_features" in theirs:
        lengths, marked = np.asarray(ours["audio_feature_lengths"]), np.asarray(theirs["input_features_mask"]).sum(1)
        assert len(lengths) == len(marked) and np.all((marked - lengths >= 0) & (marked - lengths <= more)), (lengths, marked)
        assert marked.max() == lengths[marked.argmax()], "the longest is as it is alone"
        out["input_features"] = np.concatenate([np.asarray(clip)[:length] for clip, length in zip(theirs["input_features"], lengths)])
    for pixels, places in (("pixel_values", "image_position_ids"), ("pixel_values_videos", "video_position_ids")):
        if places in theirs:
            kept = np.asarray(theirs[places]).reshape(-1, 2)[:, 0] >= 0
            out[places] = np.asarray(theirs[places]).reshape(-1, 2)[kept]
            out[pixels] = np.asarray(theirs[pixels]).reshape(len(kept), -1)[kept]
    return out


def model_of(name):
    """What has the `get_rope_index` of the family; None: its positions count the tokens."""
    import checkpoints
    if name in MROPE:
        module, kind = MROPE[name]
        found = getattr(importlib.import_module(f"transformers.models.{module}.modeling_{module}"), kind)
        owner = types.SimpleNamespace(config=types.SimpleNamespace(vision_config=types.SimpleNamespace(spatial_merge_size=2, temporal_merge_size=2)))
        owner.get_vision_position_ids = types.MethodType(found.get_vision_position_ids, owner)
        owner.get_rope_index = types.MethodType(found.get_rope_index, owner)
        return owner
    made = {"qwen2-vl": checkpoints.qwen2_vl, "qwen2_5-vl": checkpoints.qwen2_5_vl, "qwen3-vl": checkpoints.qwen3_vl}.get(name)
    return None if made is None else made()[0].model


def rope_of(name, processor, theirs):
    """[3, tokens] by `get_rope_index` of the family's model; None: its positions count the tokens."""
    ids, grids = theirs["input_ids"], {key: theirs.get(key) for key in ("image_grid_thw", "video_grid_thw")}
    if grids == {"image_grid_thw": None, "video_grid_thw": None}:
        return None
    if name.endswith("omni"):
        import make_text_goldens
        words = processor.tokenizer
        mark = {kind: words.convert_tokens_to_ids(getattr(words, f"{kind}_token")) for kind in ("image", "video", "audio")}
        mark |= {"start": words.convert_tokens_to_ids(words.vision_bos_token), "audio_start": words.convert_tokens_to_ids(words.audio_bos_token)}
        model, per_second = {"qwen2_5-omni": ("qwen2_5_omni", 25), "qwen3-omni": ("qwen3_omni_moe", 13)}[name]
        starts = (ids[0] == mark["start"]).nonzero()[:, 0]
        with_audio = bool((ids[0, starts + 1] == mark["audio_start"]).any())  # what the model must be told, too
        clips = theirs["feature_attention_mask"].sum(-1) if "feature_attention_mask" in theirs else None
        positions, _ = make_text_goldens.load_omni(model, per_second, mark)(
            ids, *grids.values(), torch.ones_like(ids), with_audio, clips, theirs.get("video_second_per_grid"))
    else:
        model = model_of(name)
        if model is None:
            return None
        seconds = {"second_per_grid_ts": theirs["second_per_grid_ts"]} if "second_per_grid_ts" in theirs else {}
        positions, _ = model.get_rope_index(ids, theirs["mm_token_type_ids"], **grids, **seconds)
    return np.asarray(positions[:, 0])


def compare(tmp_path, name, keys="", more=None):
    """How many samples and fields of media are equal."""
    family = FAMILIES[name]
    processor = write_checkpoint(tmp_path / "checkpoint", family)
    samples = chats(family, write_media(tmp_path))
    job = write_job(tmp_path, family, samples, keys)
    fields = 0
    with jobs.worker(job, "--threads", "1") as endpoint:
        with evenkeel.Loader(endpoint, rank=0, num_steps=len(samples)) as loader:
            for number, (messages, step) in enumerate(zip(samples, loader)):
                theirs = processor.apply_chat_template(
                    messages, tokenize=True, return_dict=True, return_tensors="pt", return_assistant_tokens_mask=True,
                    processor_kwargs=family.call, **(more or {}))
                [microbatch] = step.microbatches
                ids = np.asarray(theirs["input_ids"][0])
                assert np.array_equal(np.asarray(microbatch["input_ids"]).reshape(-1), ids), (number, messages)
                trained = np.asarray(theirs["assistant_masks"][0]).astype(bool)
                trained[0] = False
                if not (name == "smolvlm" and '"video"' in json.dumps(messages)):  # for which it has a template of its own, without blocks
                    assert np.array_equal(np.asarray(microbatch["labels"]).reshape(-1), np.where(trained, ids, -100)), (number, messages)
                rope = rope_of(name, processor, theirs)
                positions = np.asarray(microbatch["position_ids"]).reshape(-1, ids.size)
                assert np.array_equal(positions[-3:], np.broadcast_to(np.arange(ids.size), (3, ids.size))[-len(positions):]
                                      if rope is None else rope.astype(np.int64)), (number, messages)
                ours = {}
                for phase in step.encoders.values():
                    assert "item_valid" not in phase or np.all(np.asarray(phase["item_valid"]) == 1), (number, messages)
                    ours |= dict(phase.items())
                if name == "smolvlm" and len({part["type"] for message in messages for part in message["content"]} - {"text"}) > 1:
                    continue  # whose processor has pictures and frames in one field
                if name in ("pixtral", "llava-next", "mllama") and "pixel_values" in theirs:
                    theirs["pixel_values"] = without_padding(name, theirs)
                if name in ("qwen3-omni", "qwen3-asr") and "input_features" in theirs:
                    [mask] = [value for field, value in theirs.items() if field in ("feature_attention_mask", "input_features_mask")]
                    theirs["input_features"] = as_the_model_takes_them(theirs["input_features"], mask)
                if name in ("gemma3n", "gemma4"):
                    theirs = without_padding_of_gemma(theirs, ours, {"gemma3n": 4, "gemma4": 0}[name])
                if name == "lfm2-vl":  # which leaves bytes of 0, not values, where nothing is
                    shown = np.asarray(ours["pixel_attention_mask"])[..., None]
                    ours["pixel_values"] = np.asarray(ours["pixel_values"]).reshape(*shown.shape[:2], -1) * shown
                if name == "internvl":
                    ours = in_order_of_text(ours, messages, family.told["image_seq_length"])
                fields += compare_media(ours, theirs, (number, messages), 1e-6 if name in ("gemma3n", "gemma4") else 1e-4)
    return len(samples), fields


@pytest.mark.parametrize("name", FAMILIES)
def test_whole_samples_are_those_of_auto_processor(tmp_path, name):
    samples, fields = compare(tmp_path, name)
    assert fields >= 2 and samples >= 2


@pytest.mark.parametrize("name", ["qwen2_5-omni", "qwen3-omni"])
def test_videos_with_their_audio_are_those_of_auto_processor(tmp_path, name):
    samples, fields = compare(tmp_path, name, "use_audio_in_video: true", {"load_audio_from_video": True})
    assert fields >= 2 * samples
