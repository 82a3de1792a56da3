"""Fields, pixel expansion and packing names: the parts of the package that need no worker."""

import resource

import numpy as np
import pytest
import torch
import torch.utils._pytree as pytree

import evenkeel
import evenkeel.torch
import made
from evenkeel import packing
from evenkeel.step import Expansion, Fields, Microbatch


def expansion(rng, channels=3, frames=2, frames_on_wire=1, patch=14):
    return Expansion(channels, frames, frames_on_wire, patch, rng.normal(size=(channels, 256)).astype(np.float32))


def expand_slowly(patches, e):
    out = np.zeros((len(patches), e.channels, e.frames, e.patch, e.patch), np.float32)
    wire = patches.reshape(len(patches), e.channels, e.frames_on_wire, e.patch, e.patch)
    for c in range(e.channels):
        for f in range(e.frames):
            out[:, c, f] = e.table[c][wire[:, c, f % e.frames_on_wire]]
    return out.reshape(len(patches), e.channels * e.frames * e.patch * e.patch)


@pytest.mark.parametrize("rows", [0, 1, 57])
@pytest.mark.parametrize("frames,on_wire", [(2, 1), (2, 2), (1, 1), (3, 1)])
def test_pixels_expand_to_the_same_bits_in_cpp_torch_and_numpy(rows, frames, on_wire):
    rng = np.random.default_rng(rows + 10 * frames + on_wire)
    e = expansion(rng, frames=frames, frames_on_wire=on_wire, patch=4)
    patches = rng.integers(0, 256, (rows, 3 * on_wire * 16), np.uint8)
    expected = expand_slowly(patches, e)
    by_cpp = e.expand(patches)
    by_torch = evenkeel.torch.expand_pixels(torch.from_numpy(patches), e)
    assert by_cpp.dtype == np.float32 and by_torch.dtype == torch.float32
    assert by_cpp.tobytes() == expected.tobytes() == by_torch.numpy().tobytes()


@pytest.mark.parametrize("frames,on_wire", [(2, 1), (2, 2), (1, 1)])
def test_pixels_on_a_device_are_looked_up_to_the_same_bits(monkeypatch, frames, on_wire):
    monkeypatch.setattr(evenkeel.torch, "_LOOKED_UP_AT_ONCE", 100)  # six rows, or three
    rng = np.random.default_rng(frames)
    e = expansion(rng, frames=frames, frames_on_wire=on_wire, patch=4)
    patches = rng.integers(0, 256, (57, 3 * on_wire * 16), np.uint8)
    out = torch.empty(e.shape(patches), dtype=torch.float32)
    evenkeel.torch._look_up(torch.from_numpy(patches), e, out)
    assert out.numpy().tobytes() == expand_slowly(patches, e).tobytes()


@pytest.mark.parametrize("height,width", [(3, 5), (5, 3), (1, 7)])
def test_cpp_torch_and_numpy_expand_odd_patches_alike(height, width):
    rng = np.random.default_rng(height)
    table = rng.normal(size=(3, 256)).astype(np.float32)
    e = Expansion(3, 1, 1, height, table, width)
    patches = rng.integers(0, 256, (11, 3 * height * width), np.uint8)
    expected = np.stack([table[c][patches.reshape(11, 3, -1)[:, c]] for c in range(3)], 1).reshape(11, -1)
    by_cpp = e.expand(patches)
    by_torch = evenkeel.torch.expand_pixels(torch.from_numpy(patches), e)
    assert by_cpp.tobytes() == expected.tobytes() == by_torch.numpy().tobytes()
    assert Fields.of(pixel_values=(patches, e))["pixel_values"].tobytes() == expected.tobytes()


def page_faults():
    return resource.getrusage(resource.RUSAGE_THREAD).ru_minflt


def test_pixels_expand_into_reused_memory_without_new_pages():
    rng = np.random.default_rng(5)
    e = expansion(rng)
    largest = 3000  # rows: 14 MB of floats
    numbers = np.zeros(largest * 1176, np.float32)
    tensor, buffer = torch.zeros(largest * 1176 + 5), evenkeel.torch.Buffer()
    ways = {"numpy": lambda f: f.expand("pixel_values", out=numbers),
            "tensor": lambda f: evenkeel.torch.pixels(f, out=tensor),
            "buffer": lambda f: evenkeel.torch.pixels(f, out=buffer)}
    made = [Fields.of(pixel_values=(rng.integers(0, 256, (rows, 588), np.uint8), e)) for rows in (largest, 17, 0, 2500)]
    for name, way in ways.items():
        first = way(made[0])  # the buffer grows, and all pages are touched
        memory = {"numpy": numbers.ctypes.data, "tensor": tensor.data_ptr()}.get(name, np.asarray(first).ctypes.data)
        for fields in made:
            faults = page_faults()
            got = np.asarray(way(fields))
            faults = page_faults() - faults
            assert got.tobytes() == np.asarray(fields["pixel_values"]).tobytes(), name
            assert got.dtype == np.float32 and got.shape == fields["pixel_values"].shape
            assert got.size == 0 or got.ctypes.data == memory, name
            assert faults < 300, f"{name}: {got.nbytes >> 12} pages of floats"


def test_too_small_memory_for_pixels_is_refused():
    e = expansion(np.random.default_rng(6))
    fields = Fields.of(pixel_values=(np.zeros((4, 588), np.uint8), e), image_grid_thw=np.array([[1, 2, 2]]))
    with pytest.raises(ValueError, match="4703 elements; the field has 4 x 1176 = 4704"):
        fields.expand("pixel_values", out=np.zeros(4703, np.float32))
    with pytest.raises(ValueError, match="4703 elements; the field has 4 x 1176 = 4704"):
        evenkeel.torch.pixels(fields, out=torch.zeros(4703))
    read_only = np.zeros(4704, np.float32)
    read_only.flags.writeable = False
    for wrong in (np.zeros(4704), np.zeros((4704, 2), np.float32)[:, 0], read_only, [0.0] * 4704):
        with pytest.raises(ValueError, match="contiguous, writeable float32"):
            fields.expand("pixel_values", out=wrong)
    for wrong in (torch.zeros(4704, dtype=torch.float64), torch.zeros(4704, 2)[:, 0],
                  torch.zeros(4704, requires_grad=True)):
        with pytest.raises(ValueError, match="contiguous float32 tensor on cpu"):
            evenkeel.torch.pixels(fields, out=wrong)
    assert fields.expand("image_grid_thw", out=np.zeros(9, np.float32)).tolist() == [[1, 2, 2]], "final already"


def test_a_lazily_computed_field_is_computed_once():
    calls = []

    def ids():
        calls.append(1)
        return np.arange(4)[None]

    fields = Fields([{"input_ids": (ids, "i64", None), "loss_tokens": (np.array([3]), "i64", None)}])
    assert list(fields) == ["input_ids", "loss_tokens"] and not calls
    assert fields["input_ids"].tolist() == [[0, 1, 2, 3]] and fields["input_ids"] is fields["input_ids"]
    assert torch.equal(evenkeel.torch.tensor(fields, "input_ids"), torch.arange(4)[None])
    assert len(calls) == 1


def test_expansion_refuses_patches_of_another_size():
    e = expansion(np.random.default_rng(0))
    with pytest.raises(evenkeel.InvalidArgument):
        e.expand(np.zeros((2, 5), np.uint8))


def test_a_field_expands_on_its_first_read():
    rng = np.random.default_rng(1)
    e = expansion(rng)
    patches = rng.integers(0, 256, (6, 588), np.uint8)
    fields = Fields.of(pixel_values=(patches, e), image_grid_thw=np.array([[1, 2, 3]]))
    assert fields.wire("pixel_values") is patches
    assert fields["pixel_values"].shape == (6, 1176)
    assert fields["pixel_values"] is fields["pixel_values"], "expanded once"
    assert torch.equal(evenkeel.torch.pixels(fields), torch.from_numpy(fields["pixel_values"]))
    assert torch.equal(evenkeel.torch.tensors(fields)["image_grid_thw"], torch.tensor([[1, 2, 3]]))
    assert sorted(fields) == ["image_grid_thw", "pixel_values"] and len(fields) == 2


def test_a_tensor_shares_the_arrays_memory_and_bf16_is_bfloat16():
    values = torch.tensor([[1.5, -2.0, 3.25]], dtype=torch.bfloat16)
    bits = values.view(torch.int16).numpy().view(np.uint16)
    fields = Fields.of(pixel_values=bits)
    out = evenkeel.torch.tensor(fields, "pixel_values")
    assert out.dtype == torch.bfloat16 and torch.equal(out, values)
    assert out.data_ptr() == bits.ctypes.data


def test_pieces_of_a_part_are_joined():
    first, second = np.arange(6).reshape(3, 2), np.arange(4).reshape(2, 2) + 10
    fields = Fields([{"image_grid_thw": (first, "i64", None)}, {"image_grid_thw": (second, "i64", None)}])
    assert np.array_equal(fields["image_grid_thw"], np.concatenate([first, second]))
    alone = Fields([{"image_grid_thw": (first, "i64", None)}])
    assert alone["image_grid_thw"] is first, "no copy of a single piece"


def test_packing_names():
    microbatch = made.packed_microbatch([3, 1, 5], [0] * 9)
    flash = packing.flash_attention_kwargs(microbatch)
    assert list(flash) == ["cu_seq_lens_q", "cu_seq_lens_k", "max_length_q", "max_length_k"]
    assert flash["cu_seq_lens_q"].dtype == np.int32 and flash["cu_seq_lens_q"].tolist() == [0, 3, 4, 9]
    assert flash["max_length_q"] == 5 and isinstance(flash["max_length_q"], int)
    megatron = packing.packed_seq_params(microbatch)
    assert megatron["qkv_format"] == "thd" and megatron["max_seqlen_kv"] == 5
    assert megatron["cu_seqlens_kv"].tolist() == [0, 3, 4, 9]
    assert packing.document_ids(microbatch).tolist() == [[1, 1, 1, 2, 3, 3, 3, 3, 3]]
    with pytest.raises(ValueError, match="cu_seqlens"):
        packing.flash_attention_kwargs(Fields.of(input_ids=np.zeros((2, 3), np.int64)))


def test_rows_are_scattered_to_the_placeholders_with_gradients():
    microbatch = made.packed_microbatch([4, 4], [0, 1, 1, 0, 3, 2, 0, 3])
    hidden = torch.randn(8, 5, dtype=torch.float64, requires_grad=True)
    vision = torch.randn(3, 5, dtype=torch.float64, requires_grad=True)
    out = evenkeel.torch.scatter_rows(hidden, microbatch, "vision", vision)
    assert torch.equal(out[[1, 2, 5]], vision) and torch.equal(out[[0, 3, 4, 6, 7]], hidden[[0, 3, 4, 6, 7]])
    (out * torch.arange(8)[:, None]).sum().backward()
    assert torch.equal(vision.grad, torch.tensor([1.0, 2, 5], dtype=torch.float64)[:, None].expand(3, 5))
    assert hidden.grad[1].abs().sum() == 0 and torch.equal(hidden.grad[7], torch.full((5,), 7.0, dtype=torch.float64))
    with_batch = evenkeel.torch.scatter_rows(hidden[None], microbatch, "audio", torch.zeros(2, 5))
    assert with_batch.shape == (1, 8, 5)
    with pytest.raises(ValueError, match="3 placeholders of phase vision, 2 rows"):
        evenkeel.torch.scatter_rows(hidden, microbatch, "vision", vision[:2])


def test_a_loader_names_the_options_it_does_not_know():
    with pytest.raises(TypeError, match="prefetch_byte"):
        evenkeel.Loader("a:1", rank=0, prefetch_byte=1)
    with pytest.raises(ValueError):
        evenkeel.Loader("a:1", rank=-1)


def test_errors_have_their_own_classes():
    with pytest.raises(evenkeel.Unavailable, match="127.0.0.1:1") as caught:
        evenkeel.Loader("127.0.0.1:1", rank=0, connect_timeout=0.3).connect()
    assert caught.value.code == "UNAVAILABLE"
    with pytest.raises(evenkeel.InvalidArgument):
        evenkeel.Loader("nonsense", rank=0).connect()
    with pytest.raises(evenkeel.Error):
        evenkeel.Loader("192.0.2.1:7000", rank=0).connect()


def microbatch_with_encoders():
    microbatch = made.packed_microbatch([3, 2], [0, 1, 1, 0, 0])
    rng = np.random.default_rng(3)
    microbatch.encoders = {"vision": Fields.of(pixel_values=(rng.integers(0, 256, (4, 588), np.uint8), expansion(rng)),
                                               item_rows=np.array([2]))}
    return microbatch


def as_numbers(value):
    return {name: as_numbers(one) if isinstance(one, dict) else np.asarray(one) for name, one in value.items()}


def test_rebuilt_mappings_are_plain_dicts_with_all_fields():
    fields = Fields.of(input_ids=np.arange(3), cu_seqlens=np.array([0, 3], np.int32))
    for one in (fields, microbatch_with_encoders()):
        converted = torch.utils.data.default_convert(one)
        rebuilt = type(one)({name: converted[name] for name in converted})  # as accelerate and pin_memory do
        mapped = pytree.tree_map(lambda array: torch.as_tensor(array) + 1, one)
        tensors = evenkeel.torch.tensors(one)
        assert type(converted) is type(rebuilt) is type(mapped) is type(tensors) is dict
        assert list(converted) == list(rebuilt) == list(mapped) == list(tensors) == list(one)
        for name in one:
            if name == "encoders":
                assert as_numbers(converted[name])["vision"]["pixel_values"].shape == (4, 1176)
                assert as_numbers(tensors[name])["vision"]["item_rows"].tolist() == [2]
                assert type(mapped[name]["vision"]) is dict and mapped[name]["vision"]["item_rows"].tolist() == [3]
                continue
            assert isinstance(converted[name], torch.Tensor) and torch.equal(converted[name], tensors[name])
            assert torch.equal(mapped[name], tensors[name] + 1)


def test_encoders_are_fields_of_their_microbatch_if_any():
    microbatch = microbatch_with_encoders()
    assert "encoders" in microbatch and len(microbatch) == len(list(microbatch)) and microbatch["encoders"]
    microbatch = made.packed_microbatch([3], [0, 0, 0])
    assert "encoders" not in microbatch and "encoders" not in list(microbatch) and len(microbatch) == len(list(microbatch))


def test_positions_begin_with_the_text_in_each_document():
    rows = np.array([[[0, 0, 0, 3, 0, 1]], [[0, 0, 1, 3, 0, 1]], [[0, 1, 0, 3, 0, 1]]], np.int64)
    packed = Microbatch.of(position_ids=rows, cu_seqlens=np.array([0, 4, 6], np.int32))
    assert packed["position_ids"].tolist() == [[[0, 1, 2, 3, 0, 1]], *rows.tolist()]
    assert packing.text_positions(packed).tolist() == [[0, 1, 2, 3, 0, 1]]
    assert evenkeel.torch.tensor(packed, "position_ids").shape == (4, 1, 6)
    assert packed.wire("position_ids").shape == (3, 1, 6)
    assert Microbatch.of(position_ids=rows)["position_ids"].shape == (3, 1, 6), "padded rows are one document each"


def test_shifted_labels_are_those_of_the_next_token():
    labels = np.array([[-100, 5, 6, -100, 7]])
    assert packing.shifted(labels).tolist() == [[5, 6, -100, 7, -100]]
    assert packing.shifted(np.zeros((1, 0), np.int64)).shape == (1, 0)


def test_a_device_that_is_not_there_is_named():
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    fields = Fields.of(image_grid_thw=np.array([[1, 2, 2]]))
    for call in (evenkeel.torch.tensors, lambda one, device: evenkeel.torch.tensor(one, "image_grid_thw", device)):
        with pytest.raises(ValueError, match='device cuda:0: this process sees no cuda device; give device="cpu"'):
            call(fields, "cuda:0")
    with pytest.raises(ValueError, match="this process sees no cuda device"):
        evenkeel.torch.Buffer(device="cuda")
    with pytest.raises(ValueError, match="pin_memory=True, but this process sees no accelerator"):
        evenkeel.torch.Buffer(pin_memory=True)


def test_pin_memory_and_send_to_device_give_plain_dicts():
    from torch.utils.data._utils.pin_memory import pin_memory
    microbatch = microbatch_with_encoders()
    pinned = pin_memory(microbatch)
    assert type(pinned) is dict and list(pinned) == list(microbatch)
    assert np.array_equal(pinned["input_ids"], microbatch["input_ids"])
    operations = pytest.importorskip("accelerate.utils.operations")
    for moved in (operations.send_to_device(microbatch, "cpu"),
                  operations.send_to_device(torch.utils.data.default_convert(microbatch), "cpu")):
        assert type(moved) is dict and list(moved) == list(microbatch)
        assert as_numbers(moved["encoders"])["vision"]["pixel_values"].shape == (4, 1176)
