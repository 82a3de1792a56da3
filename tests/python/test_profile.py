"""Profiles of modules: which calls are made and timed, and what they keep. Clocks here are made up; none decides a test."""

import json
import random
import sys
import types

import pytest

torch = pytest.importorskip("torch")

from evenkeel import fit as fits  # noqa: E402
from evenkeel import profile  # noqa: E402
from evenkeel.errors import InvalidArgument  # noqa: E402
from evenkeel.profiles import Profile  # noqa: E402

LENGTHS = [4, 6, 8, 12, 16, 24, 32]


class Clock:
    """Seconds that a module's work takes by decree."""

    def __init__(self):
        self.now, self.calls = 0.0, []

    def __call__(self):
        return self.now


class Pass(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, clock):
        ctx.clock, ctx.shape = clock, x.shape
        units, n = x.shape[:2]
        clock.calls.append(n)
        clock.now += 1e-3 + units * (2e-4 * n + 1e-5 * n * n)
        return x * 1

    @staticmethod
    def backward(ctx, gradient):
        units, n = ctx.shape[:2]
        ctx.clock.now += 2e-3 + units * (3e-4 * n + 4e-5 * n * n)
        return gradient, None


class Timed(torch.nn.Module):
    """[units, length, 4] -> the same."""

    def __init__(self, clock):
        super().__init__()
        self.mix, self.clock = torch.nn.Linear(4, 4, bias=False), clock

    def forward(self, x):
        return Pass.apply(self.mix(x), self.clock)


@pytest.fixture
def clock(monkeypatch):
    made = Clock()
    monkeypatch.setitem(profile._CLOCKS, "wall", made)
    return made


def subject(clock):
    return profile.Subject(Timed(clock), lambda length, units: torch.ones(units, length, 4), "toy")


def test_a_profile_has_the_time_of_each_pass(clock):
    measured = profile.measure(subject(clock), "llm", LENGTHS, units=(1, 3))
    assert [(point.length, point.units) for point in measured.points] == [(n, u) for n in LENGTHS for u in (1, 3)]
    for point in measured.points:
        n, u = point.length, point.units
        assert point.forward.median == pytest.approx(1e-3 + u * (2e-4 * n + 1e-5 * n * n))
        assert point.backward.minimum == pytest.approx(2e-3 + u * (3e-4 * n + 4e-5 * n * n))
        assert point.forward.spread == pytest.approx(0, abs=1e-9)
    cost = fits.fit([("a", measured)])[0]
    assert cost.cost == pytest.approx({"linear": 5e-4, "quadratic": 5e-5}, rel=1e-5)
    assert cost.call_seconds == pytest.approx(3e-3, rel=1e-5)


def test_lengths_are_interleaved_after_a_warm_up(clock):
    profile.measure(subject(clock), "llm", LENGTHS, repetitions=3, warm_up=2)
    rounds = [clock.calls[i:i + len(LENGTHS)] for i in range(3 * len(LENGTHS), len(clock.calls), len(LENGTHS))]
    assert clock.calls[:3 * len(LENGTHS)] == [n for n in LENGTHS for _ in range(3)]  # one for the activations
    assert len(rounds) == 3 and all(sorted(one) == LENGTHS for one in rounds)
    assert rounds == [random.Random(i).sample(LENGTHS, len(LENGTHS)) for i in range(3)] and rounds[0] != rounds[1]


def test_a_disturbance_moves_neither_median_nor_minimum(clock):
    one = subject(clock)
    make, calls = one._make, []

    def disturbed(length, units):
        calls.append(length)
        if len(calls) == 4 * len(LENGTHS) - 3:  # within the first repetition
            one.module.register_forward_pre_hook(lambda *_: setattr(clock, "now", clock.now + 5) if len(calls) < 4 * len(LENGTHS)
                                                 else None)
        return make(length, units)
    one._make = disturbed
    measured = profile.measure(one, "llm", LENGTHS)
    assert max(point.forward.median for point in measured.points) < 1 and clock.now > 5


def test_activations_are_what_autograd_keeps():
    module = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 2))
    one = profile.Subject(module, lambda length: torch.ones(length, 8), "toy")
    measured = profile.measure(one, "llm", LENGTHS, repetitions=1)
    assert [point.activation_bytes for point in measured.points] == [n * (8 + 16) * 4 for n in LENGTHS]  # input, tanh's output


def test_a_frozen_module_has_no_backward_pass(clock):
    measured = profile.measure(subject(clock), "vision", LENGTHS, frozen=True)
    assert all(point.backward is None and point.activation_bytes == 0 for point in measured.points)
    assert measured.frozen and Profile.from_json(measured.to_json()) == measured


def test_a_frozen_module_may_pass_gradients_on(clock):
    measured = profile.measure(subject(clock), "llm", LENGTHS, frozen=True, input_gradients=True)
    assert measured.points[0].backward.median == pytest.approx(2e-3 + 3e-4 * 4 + 4e-5 * 16)


def test_gradients_are_released_between_calls(clock):
    one = subject(clock)
    profile.measure(one, "llm", LENGTHS, repetitions=1)
    assert one.module.mix.weight.grad is None


@pytest.mark.parametrize("output", [lambda x: (x, 3), lambda x: {"a": x}, lambda x: types.SimpleNamespace(loss=x.sum())])
def test_outputs_of_several_forms_are_differentiated(output):
    class Module(torch.nn.Linear):
        def forward(self, x):
            return output(super().forward(x))
    one = profile.Subject(Module(4, 4), lambda length: {"x": torch.ones(length, 4)}, "toy")
    assert profile.measure(one, "llm", [4, 8], repetitions=1).points[1].backward.median > 0


def test_an_output_without_gradients_is_refused():
    one = profile.Subject(torch.nn.Identity(), lambda length: torch.ones(length), "toy")
    with pytest.raises(InvalidArgument, match="give --frozen"):
        profile.measure(one, "llm", LENGTHS)


def test_an_error_of_the_module_names_the_length():
    one = profile.Subject(torch.nn.Linear(3, 3), lambda length: torch.ones(length, 4), "toy")
    with pytest.raises(InvalidArgument, match="1 units of length 4: RuntimeError"):
        profile.measure(one, "llm", LENGTHS)


@pytest.mark.parametrize("text,lengths", [("4", [4]), ("8,4,8", [4, 8]), ("64:1024:5", [64, 128, 256, 512, 1024])])
def test_lengths_are_lists_or_ranges(text, lengths):
    assert profile.parse_lengths(text) == lengths


@pytest.mark.parametrize("text", ["", "0", "4,x", "4:8", "4:8:1", "-1:8:3"])
def test_wrong_lengths_are_refused(text):
    with pytest.raises(InvalidArgument, match="expected lengths of at least 1"):
        profile.parse_lengths(text)


# The command.

@pytest.fixture
def towers(monkeypatch):
    made = types.ModuleType("towers")
    made.good = lambda: (torch.nn.Linear(4, 4), lambda length: torch.ones(length, 4))
    made.bad = lambda: torch.nn.Linear(4, 4)
    monkeypatch.setitem(sys.modules, "towers", made)


def test_the_command_writes_a_profile(towers, tmp_path):
    path = str(tmp_path / "llm.json")
    arguments = ["llm", "towers:good", "--lengths", "4:64:6", "--repetitions", "2", "--output", path]
    assert profile.main(arguments) == 0
    made = Profile.read(path)
    assert (made.phase, made.model, made.module, made.dtype, made.device) == ("llm", "towers", "Linear", "float32", "cpu")
    assert json.loads(made.to_json())["unit"] == "seconds" and len(made.points) == 6


@pytest.mark.parametrize("arguments,message", [
    (["llm", "towers:none", "--lengths", "4"], "towers:none: cannot be imported"),
    (["llm", "nowhere_at_all:f", "--lengths", "4"], "nowhere_at_all:f: cannot be imported"),
    (["llm", "towers:bad", "--lengths", "4"], r"towers:bad: must return \(module, make_inputs\), got Linear"),
    (["llm", "towers:good", "--lengths", "4", "--units", "1,2"], "--units 2: make_inputs of towers takes a length alone"),
    (["llm", "towers:good", "--lengths", "4", "--repetitions", "0"], "--repetitions: must be at least 1"),
    (["llm", "towers:good", "--lengths", "4", "--device", "cuda", "--clock", "processor"], "does not see the work of cuda"),
    (["llm", "no/such/folder", "--lengths", "4"], "no/such/folder/config.json: does not exist"),
])
def test_wrong_arguments_end_with_a_message(towers, capsys, arguments, message):
    assert profile.main(arguments) == 2
    import re
    assert re.search(message, capsys.readouterr().err)


# Checkpoints of transformers.

QWEN = {"model_type": "qwen2_vl", "vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2,
        "rope_scaling": {"type": "mrope", "mrope_section": [1, 1, 2], "rope_type": "default"},
        "vision_config": {"model_type": "qwen2_vl", "depth": 2, "embed_dim": 32, "num_heads": 4, "hidden_size": 32,
                          "patch_size": 14, "spatial_merge_size": 2, "temporal_patch_size": 2}}
LLAVA = {"model_type": "llava", "text_config": {"model_type": "llama", "vocab_size": 64, "hidden_size": 32,
                                                "intermediate_size": 48, "num_hidden_layers": 1, "num_attention_heads": 4},
         "vision_config": {"model_type": "clip_vision_model", "hidden_size": 32, "intermediate_size": 48, "image_size": 56,
                           "num_hidden_layers": 2, "num_attention_heads": 4, "patch_size": 14}}
LLAMA = {"model_type": "llama", **{key: value for key, value in LLAVA["text_config"].items() if key != "model_type"}}


@pytest.fixture
def checkpoint(tmp_path, monkeypatch):
    pytest.importorskip("transformers")
    if not torch.cuda.is_available():  # torch without its CUDA libraries cannot ask
        monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)

    def make(config):
        folder = tmp_path / "toy-7b"
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps(config))
        return str(folder)
    return make


@pytest.mark.parametrize("config", [QWEN, LLAVA, LLAMA], ids=["qwen2-vl", "llava", "llama"])
def test_the_llm_of_a_checkpoint_is_measured(checkpoint, config):
    one = profile.load(checkpoint(config), "llm")
    measured = profile.measure(one, "llm", [16, 32, 48], units=(1, 2), repetitions=1, warm_up=0)
    assert measured.model == "toy-7b" and len(measured.points) == 6
    by_shape = {(point.length, point.units): point.activation_bytes for point in measured.points}
    assert by_shape[32, 1] > by_shape[16, 1] > 16 * 32 * 4 and by_shape[32, 2] > 1.9 * by_shape[32, 1]


def test_a_tower_of_grids_encodes_pictures_of_any_size(checkpoint):
    one = profile.load(checkpoint(QWEN), "vision")
    measured = profile.measure(one, "vision", [16, 60, 100], repetitions=1, warm_up=0, frozen=True)
    assert [point.length for point in measured.points] == [16, 64, 100] and measured.window is None


def test_a_tower_of_grids_encodes_frames_of_a_window(checkpoint):
    one = profile.load(checkpoint(QWEN), "videos", 16)
    measured = profile.measure(one, "videos", [16, 40, 100], repetitions=1, warm_up=0)
    assert [point.length for point in measured.points] == [16, 32, 96] and measured.window == 16


def test_a_tower_of_tiles_encodes_whole_tiles(checkpoint):
    one = profile.load(checkpoint(LLAVA), "vision")
    measured = profile.measure(one, "vision", [16, 40, 100], units=(1, 2), repetitions=1, warm_up=0)
    assert sorted({point.length for point in measured.points}) == [16, 32, 96] and measured.window == 16


@pytest.mark.parametrize("config,phase,window,message", [
    (LLAMA, "vision", None, "has no module for phase 'vision'"), (QWEN, "audio", None, "has no module for phase 'audio'"),
    (LLAVA, "vision", 20, "encodes tiles of 16 patches"), (QWEN, "vision", 18, "the nearest has 16"),
    (QWEN, "llm", 16, "is for vision towers"), ({"a": 1}, "llm", None, "it has no model_type")])
def test_a_checkpoint_without_the_module_is_refused(checkpoint, config, phase, window, message):
    with pytest.raises(InvalidArgument, match=message):
        profile.load(checkpoint(config), phase, window)
