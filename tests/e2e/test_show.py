"""`evenkeel show`: what a sample contains and where it goes, in a terminal and as a page, and nothing of the data that acts there."""

import base64
import html.parser
import json
import os
import pty
import random
import re
import subprocess

import pytest

import harness
import media

ESCAPE = "\x1b"
HOSTILE = "<script>alert(1)</script> \x1b]0;owned\x07 & \u202eback\u202c \x9b31m \"quoted\" Köln 東京"


class Page(html.parser.HTMLParser):
    """Tags, addresses and text of a page."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.sources, self.words = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.sources += [value for name, value in attributes if name in ("src", "href")]
        assert not any(name.startswith("on") for name, _ in attributes)

    def handle_data(self, data):
        self.words.append(data)


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    """Five samples: a picture with a chat, text with hostile letters, sound, a video, and a picture that is cut off."""
    folder = tmp_path_factory.mktemp("show")
    rng = random.Random(5)
    shard = media.Shard(folder / "a.tar")
    picture = media.image_bytes(rng, "png", 120, 90)
    shard.add("0.png", picture)
    shard.add("0.json", json.dumps({"messages": [
        {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "What is this?"}]},
        {"role": "assistant", "content": "A picture."}]}).encode())
    shard.add("1.txt", HOSTILE.encode())
    shard.add("2.wav", media.wav_bytes(rng, 2))
    shard.add("2.txt", b"words")
    shard.add("3.mp4", media.video_bytes(folder))
    shard.add("3.txt", b"moving")
    shard.add("4.png", picture[:len(picture) // 2])
    shard.add("4.txt", b"broken")
    shard.close()
    job = harness.write_job(folder / "job.yaml", [("a", "a.tar", 1)], ranks=2, batch="{samples: 5}", extra="order: {shuffle: none}\n")
    job.write_text(job.read_text().replace("  max_pixels", "  chat: chatml\n  max_pixels"))
    harness.run("index", "--job", job)
    return job


def show(job, *options, **how):
    return harness.run("show", "--job", job, "--step", 0, *options, **how)


def test_a_sample_is_shown_with_its_tokens_labels_and_places(job):
    out = show(job, "--sample", 0).stdout
    plan = json.loads(harness.run("plan", "--job", job, "--step", 0, "--json").stdout)
    sample = plan["samples"][0]
    place, item = sample["place"], sample["items"][0]
    assert f"sample 0  {sample['name']}\n" in out
    assert f"  llm: rank {place['rank']}, microbatch {place['microbatch']}, position {place['position']}; {sample['llm_length']} tokens" in out
    assert f"{sample['loss_tokens']} with loss" in out
    assert "item 0  image png 120x90\n" in out and f"{item['output_rows']} rows out" in out
    assert re.search(r"trained +\d+  A picture\.<\|im_end\|>", out)
    assert re.search(rf"image +{item['output_rows']}  <\|image_pad\|> x {item['output_rows']}\n", out)
    trained = sum(int(count) for count in re.findall(r"^  trained +(\d+)", out, re.MULTILINE))
    assert trained == sample["loss_tokens"]
    every = sum(int(count) for count in re.findall(r"^  (?:trained|no loss|image) +(\d+)  ", out, re.MULTILINE))
    assert every == sample["llm_length"]


def test_media_that_cannot_be_decoded_are_described(job):
    out = show(job).stdout
    assert "audio wav 2.00 s, 8000 Hz" in out and "loudest " in out and "█" in out
    assert "video mp4 128x96, 24 frames" in out
    assert "cannot be decoded: " in out[out.index("sample 4"):]


def test_nothing_of_the_data_acts_on_a_terminal(job):
    out = show(job).stdout
    text = out[out.index("sample 1"):out.index("sample 2")]
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e]", out)
    assert r"\x1b]0;owned\x07" in text and r"\u202eback\u202c" in text and r"\x9b31m" in text
    assert "Köln 東京" in text and "script>alert(1)</script>" in text


def test_colours_only_on_a_terminal_or_on_request(job):
    def on_a_terminal(**environment):
        leader, follower = pty.openpty()
        process = subprocess.Popen([harness.binary(), "show", "--job", str(job), "--step", "0", "--sample", "0"], stdout=follower,
                                   env={**{k: v for k, v in os.environ.items() if k != "NO_COLOR"}, "TERM": "xterm", **environment})
        os.close(follower)
        out = b""
        while True:
            try:
                piece = os.read(leader, 1 << 16)
            except OSError:  # the other end is closed
                break
            if not piece:
                break
            out += piece
        os.close(leader)
        assert process.wait() == 0
        return out.decode()

    coloured = on_a_terminal()
    assert "\u2580" in coloured and f"{ESCAPE}[38;2;" in coloured
    assert ESCAPE not in on_a_terminal(NO_COLOR="1") and ESCAPE not in on_a_terminal(TERM="dumb")
    assert ESCAPE not in show(job, "--sample", 0).stdout
    asked = show(job, "--sample", 0, "--colour", "always", env={"NO_COLOR": "1"}).stdout
    assert f"{ESCAPE}[38;2;" in asked
    assert not re.search(f"{ESCAPE}(?!\\[[0-9;]*m)", asked)


def test_the_page_needs_nothing_else_and_escapes_all_text(job, tmp_path):
    show(job, "--html", tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text()
    page = Page(text)
    assert "script" not in page.tags and "link" not in page.tags and "iframe" not in page.tags
    assert page.sources and all(source.startswith("data:image/") for source in page.sources)
    assert {source[:source.index(";")] for source in page.sources} == {"data:image/png", "data:image/bmp"}
    assert "svg" in page.tags and "default-src 'none'" in text
    words = "".join(page.words)
    assert "<script>alert(1)</script>" in words and "Köln 東京" in words and "A picture.<|im_end|>" in words
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e]", text)
    frames = [base64.b64decode(source.split(",")[1]) for source in page.sources if source.startswith("data:image/bmp")]
    assert len(frames) == 4 and all(frame[:2] == b"BM" and int.from_bytes(frame[2:6], "little") == len(frame) for frame in frames)


def test_bitmaps_have_the_pixels_of_the_frames(job, tmp_path):
    image = pytest.importorskip("PIL.Image")
    import io

    show(job, "--sample", 3, "--html", tmp_path / "page.html")
    source = Page((tmp_path / "page.html").read_text()).sources[0]
    frame = image.open(io.BytesIO(base64.b64decode(source.split(",")[1])))
    assert frame.size == (128, 96) and len(set(frame.getdata())) > 50


def test_wrong_requests_say_what_there_is(job, tmp_path):
    wrong = show(job, "--sample", 5, check=False)
    assert wrong.returncode == 2 and "step 0 has samples 0 to 4" in wrong.stderr
    wrong = show(job, "--sample", 0, "--html", tmp_path / "none" / "page.html", check=False)
    assert wrong.returncode == 2 and "cannot be written" in wrong.stderr
    assert show(job, "--color", "always", check=False).returncode == 2
