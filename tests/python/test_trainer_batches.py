"""Batches as trainers' own code makes and reads them, from microbatches made by hand."""

import dataclasses
import importlib
import importlib.util
import os
import sys
import types

import numpy as np
import pytest

import jobs
import made

torch = pytest.importorskip("torch")

LENGTHS = [3, 1, 4]
# Labels are aligned with the tokens, and the first of a document is never trained.
LABELS = [-100, 11, 12, -100, -100, -100, 22, 23]


def microbatch():
    from evenkeel.step import Microbatch
    one = made.packed_microbatch(LENGTHS, [0] * sum(LENGTHS))
    fields = {name: np.array(one.wire(name)) for name in one if name != "labels"}
    return Microbatch.of(**{**fields, "labels": np.array([LABELS], np.int64)})


def step_of(*microbatches, index=0):
    from evenkeel.step import Step
    return Step(index, 3, 4, list(microbatches), {}, {})


class Loader:
    """Steps of `counts` microbatches, with the state of a real loader."""

    def __init__(self, *counts):
        self.counts, self.next = counts, 0

    def __iter__(self):
        return self

    def __next__(self):
        if self.next == len(self.counts):
            raise StopIteration
        self.next += 1
        return step_of(*[microbatch() for _ in range(self.counts[self.next - 1])], index=self.next - 1)

    def state_dict(self):
        return {"step": self.next}

    def load_state_dict(self, state):
        self.next = state["step"]


@pytest.fixture
def megatron():
    pytest.importorskip("megatron.core")
    import evenkeel.megatron
    return evenkeel.megatron


def test_megatrons_labels_are_those_of_the_next_token(megatron):
    batch = megatron.batch(microbatch())
    assert batch["labels"].tolist() == [[11, 12, 0, 0, 0, 22, 23, 0]]
    assert batch["loss_mask"].tolist() == [[1, 1, 0, 0, 0, 1, 1, 0]] and batch["loss_mask"].dtype == torch.float32
    assert batch["position_ids"].tolist() == [[0, 1, 2, 0, 0, 1, 2, 3]] and batch["attention_mask"] is None
    assert batch["cu_seqlens"].tolist() == [[0, 3, 4, 8]] and batch["cu_seqlens"].dtype == torch.int32
    assert batch["max_seqlen"].tolist() == [4] and batch["max_seqlen"].dtype == torch.int32


def without(*names):
    from evenkeel.step import Microbatch
    one = microbatch()
    return Microbatch.of(**{name: np.array(one.wire(name)) for name in one if name not in names})


def test_megatrons_stages_have_the_keys_of_their_role(megatron):
    always = {"attention_mask", "position_ids", "cu_seqlens", "cu_seqlens_padded", "max_seqlen"}
    whole = megatron.batch(microbatch())
    for names, keys in ((("labels",), {"tokens"}), (("input_ids",), {"labels", "loss_mask"}), (("labels", "input_ids"), set())):
        batch = megatron.batch(without(*names))
        assert set(batch) == always | keys
        assert all(torch.equal(batch[key], whole[key]) for key in set(batch) - {"attention_mask"})


def test_megatrons_shards_are_cut_after_the_shift(megatron):
    from evenkeel import context
    from evenkeel.step import Microbatch
    one = made.packed_microbatch([4, 8], [0] * 12)
    fields = {name: np.array(one.wire(name)) for name in one if name != "labels"}
    whole = Microbatch.of(**{**fields, "labels": np.array([[-100, *range(11, 14), -100, *range(15, 22)]])})
    expected = megatron.batch(whole)
    for index in (0, 1):
        whole.context = context.ContextGroup([3, 7], index, np.array([4, 8]), "zigzag")
        shard = context.Shard(whole)
        batch = megatron.batch(shard)
        assert torch.equal(batch["cu_seqlens"], expected["cu_seqlens"]) and batch["max_seqlen"].tolist() == [8]
        for name in ("tokens", "labels", "loss_mask", "position_ids"):
            assert torch.equal(batch[name], expected[name][:, shard.tokens])
        assert np.array_equal(np.where(shard["shift_labels"] < 0, 0, shard["shift_labels"]), batch["labels"].numpy())


def test_megatrons_packed_parameters_have_integers_as_lengths(megatron):
    packed = megatron.packed_seq_params(megatron.batch(microbatch()))
    assert packed.qkv_format == "thd" and packed.cu_seqlens_q.tolist() == packed.cu_seqlens_kv_padded.tolist() == [0, 3, 4, 8]
    assert type(packed.max_seqlen_q) is int and packed.max_seqlen_kv == 4


def test_megatrons_mask_keeps_documents_apart(megatron):
    mask = megatron.attention_mask(megatron.batch(microbatch()))
    assert mask.shape == (1, 1, 8, 8)
    seen = [(i, j) for i in range(8) for j in range(8) if not mask[0, 0, i, j]]
    documents = np.repeat(range(3), LENGTHS)
    assert seen == [(i, j) for i in range(8) for j in range(i + 1) if documents[i] == documents[j]]


def test_megatrons_schedule_has_a_fixed_number_of_microbatches(megatron):
    from megatron.core.rerun_state_machine import RerunDataIterator
    batches = RerunDataIterator(megatron.DataIterator(Loader(2, 2, 4), 2))
    with pytest.raises(ValueError, match="step 2 has 4 microbatches, the schedule 2: set microbatch.count_multiple: 2"):
        for _ in range(5):
            next(batches)


def test_megatrons_state_is_saved_between_steps(megatron):
    iterator = megatron.DataIterator(Loader(2, 2), 2)
    next(iterator)
    with pytest.raises(ValueError, match="step 0 has 1 microbatches left"):
        iterator.save_state()
    next(iterator)
    assert iterator.save_state() == {"step": 1} and iterator.loss_tokens == 4
    next(iterator)
    iterator.restore_state({"step": 0})
    next(iterator), next(iterator)
    assert iterator.save_state() == {"step": 1}


@pytest.fixture(scope="module")
def worked(tmp_path_factory):
    """Steps of a real worker: pictures, videos and texts of a Qwen2-VL."""
    pytest.importorskip("transformers", minversion="4.57")
    if not os.path.exists(jobs.BINARY):
        pytest.skip(f"{jobs.BINARY} is not built (set EVENKEEL_BIN)")
    import checkpoints
    import evenkeel
    folder = tmp_path_factory.mktemp("batches")
    checkpoints.write(folder / "model", "qwen2_vl")
    checkpoints.write_shard(folder / "all.tar", 12, ("image", "text", "video", "images", "damaged"), folder)
    job = checkpoints.write_job(folder / "job.yaml", folder / "model", str(folder / "all.tar"), 1, 6,
                                microbatch="{capacity_tokens: 400}")
    jobs.make_index(job)
    with jobs.worker(job) as endpoint:
        yield Steps(evenkeel.Loader(endpoint, rank=0, num_steps=2), folder, endpoint)


class Steps(list):
    def __init__(self, steps, folder, endpoint):
        super().__init__(steps)
        self.folder, self.endpoint = folder, endpoint


def veomni_collator():
    """VeOmni's own, of the installed package, without what its packages import at once (kernels for GPUs)."""
    spec = importlib.util.find_spec("veomni")
    if spec is None:
        pytest.skip("veomni is not installed")
    for name in ("veomni", "veomni.data", "veomni.ops", "veomni.distributed"):
        bare = types.ModuleType(name)
        bare.__path__ = [os.path.join(spec.submodule_search_locations[0], *name.split(".")[1:])]
        sys.modules.setdefault(name, bare)
    return importlib.import_module("veomni.data.data_collator").MainCollator()


def documents_of(step, number):
    """What VeOmni's transform makes of each document, from fields that test_inputs compares with one sample at a time."""
    from evenkeel import inputs
    microbatch, documents = step.microbatches[number], []
    bounds = microbatch["cu_seqlens"].tolist()
    labels, fields = inputs.media_fields(step, number)
    for begin, end in zip(bounds, bounds[1:]):
        kinds = torch.from_numpy(microbatch["mm_token_type_ids"][0, begin:end])
        ids = torch.from_numpy(np.array(microbatch["input_ids"][0, begin:end]))
        ids[kinds > 0] = 0
        documents.append({"input_ids": ids, "labels": torch.from_numpy(labels[0, begin:end].copy()),
                          "attention_mask": torch.ones_like(ids), "image_mask": kinds == 1, "video_mask": kinds == 2,
                          "position_ids": torch.from_numpy(microbatch["position_ids"][1:, 0, begin:end])})
    documents[0].update({name: value for name, value in fields.items() if "pixel" in name or "grid_thw" in name})
    return documents


def test_veomnis_batch_is_that_of_its_own_collator(worked):
    collator = veomni_collator()
    import evenkeel.veomni
    compared = set()
    for step in worked:
        batches = next(evenkeel.veomni.DataLoader(iter([step])))
        assert len(batches) == len(step.microbatches)
        for number, ours in enumerate(batches):
            theirs = collator(documents_of(step, number))
            assert set(theirs) - set(ours) <= {"image_mask", "video_mask"}, "masks of media that the batch does not have"
            for name in set(theirs) & set(ours):
                compared.add(name)
                if isinstance(ours[name], int):
                    assert ours[name] == theirs[name], name
                else:
                    assert ours[name].dtype == theirs[name].dtype and torch.equal(ours[name], theirs[name]), name
    assert {"input_ids", "labels", "position_ids", "cu_seq_lens_q", "max_length_q", "image_mask", "pixel_values"} <= compared


def test_media_of_a_dummy_are_refused():
    from evenkeel import Fields, inputs
    one = microbatch()
    one.encoders = {"vision": Fields.of(pixel_values=np.zeros((4, 4), np.float32), image_grid_thw=np.array([[1, 2, 2]]),
                                        item_rows=np.array([1]))}
    with pytest.raises(ValueError, match="phase vision has a dummy.*min_items: 0"):
        inputs.media_fields(step_of(one), 0)


@pytest.fixture
def torchtitan():
    pytest.importorskip("torchdata")
    pytest.importorskip("torchtitan.components.dataloader")
    import evenkeel.torchtitan
    return evenkeel.torchtitan


def build_titan(torchtitan, counts, microbatches=2, seq_len=8, local_batch_size=1):
    config = torchtitan.DataLoader.Config(source="job.yaml", microbatches=microbatches)
    return config.build(dp_world_size=2, dp_rank=1, tokenizer=None, seq_len=seq_len, local_batch_size=local_batch_size,
                        snapshot_every_n_steps=None, loader=Loader(*counts))


def test_torchtitans_batches_are_tokens_positions_and_labels(torchtitan):
    loader = build_titan(torchtitan, (2, 2))
    batches = iter(loader)
    given, labels = next(batches)
    assert given["input"].shape == (1, 8) and given["positions"].tolist() == [[0, 1, 2, 0, 0, 1, 2, 3]]
    assert labels.tolist() == [[11, 12, -100, -100, -100, 22, 23, -100]]
    with pytest.raises(ValueError, match="1 microbatches of the step are left"):
        loader.state_dict()
    next(batches)
    assert loader.state_dict() == {"step": 1} and len(list(batches)) == 2


def test_torchtitans_fixed_shapes_are_checked(torchtitan):
    with pytest.raises(ValueError, match="step 0 has 3 microbatches, TorchTitan runs 2: set microbatch.count_multiple: 2"):
        next(iter(build_titan(torchtitan, (3,))))
    with pytest.raises(ValueError, match="has 8 tokens, training.seq_len is 16: set microbatch.pad_to: 16"):
        next(iter(build_titan(torchtitan, (2,), seq_len=16)))
    with pytest.raises(ValueError, match="local_batch_size is 4; give 1"):
        build_titan(torchtitan, (2,), local_batch_size=4)


def put_module(name, **members):
    module = types.ModuleType(f"megatron.bridge.{name}")
    vars(module).update(members)
    sys.modules[module.__name__] = module


@pytest.fixture(scope="module")
def bridge():
    """evenkeel.megatron_bridge over the project's own files, without its package, which imports Transformer Engine: those of
    MEGATRON_BRIDGE_SOURCE (the folder src of a checkout), but for two that need a Megatron-Core that is not on PyPI and give
    one name each. Else over the two dataclasses that a provider needs."""
    pytest.importorskip("megatron.core")
    source = os.environ.get("MEGATRON_BRIDGE_SOURCE")
    for name in ("", ".data", ".data.datasets", ".data.packing", ".training", ".training.utils", ".training.tokenizers"):
        bare = types.ModuleType(f"megatron.bridge{name}")
        bare.__path__ = [os.path.join(source, "megatron", "bridge", *name.split("."))] if source else []
        sys.modules[bare.__name__] = bare
    put_module("training.tokenizers.tokenizer", MegatronTokenizer=object)
    put_module("data.datasets.utils", IGNORE_INDEX=-100)
    if source is None:
        @dataclasses.dataclass(kw_only=True)
        class DatasetProvider:
            dataloader_type: str = None
            num_workers: int = 2

        @dataclasses.dataclass
        class GenericVisualInputs:
            pixel_values: torch.Tensor = None
            pixel_values_videos: torch.Tensor = None
            image_grid_thw: torch.Tensor = None
            video_grid_thw: torch.Tensor = None
            mm_token_type_ids: torch.Tensor = None

        put_module("data.base", DatasetProvider=DatasetProvider)
        put_module("training.utils.visual_inputs", GenericVisualInputs=GenericVisualInputs)
    import evenkeel.megatron_bridge
    yield evenkeel.megatron_bridge
    for name in [name for name in sys.modules if name.startswith(("megatron.bridge", "evenkeel.megatron_bridge"))]:
        del sys.modules[name]


class Context:
    """Of DatasetBuildContext what a provider reads."""

    class pg_collection:
        class dp:
            rank = staticmethod(lambda: 0)


def own_file(bridge, name):
    if "MEGATRON_BRIDGE_SOURCE" not in os.environ:
        pytest.skip("MEGATRON_BRIDGE_SOURCE is not set")
    return importlib.import_module(f"megatron.bridge.{name}")


def test_bridges_provider_gives_the_batches_of_vlm_step(worked, bridge):
    from megatron.core.rerun_state_machine import RerunDataIterator
    from evenkeel import inputs
    step = worked[0]
    provider = bridge.DatasetProvider(source=worked.endpoint, num_microbatches=len(step.microbatches))
    iterator, *others = provider.build_datasets(Context)
    assert provider.dataloader_type == "external" and others == [None, None]
    reader = RerunDataIterator(iterator)  # as Bridge wraps an external dataloader
    batches = [next(reader) for _ in step.microbatches]
    assert iterator.save_state()["step"] == 1
    visual = [one["visual_inputs"] for one in batches]
    assert any(one is not None and one.pixel_values is not None for one in visual)
    for number, one in enumerate(batches):
        given = inputs.labels_of(step, number)
        assert one["labels"].tolist() == [given[0, 1:].tolist() + [-100]] and one["labels"].shape == one["tokens"].shape
        assert torch.equal(one["loss_mask"], (one["labels"] != -100).float()) and one["total_tokens"] == given.shape[1]
        assert one["position_ids"].shape == (3, *one["tokens"].shape) and one["tokens"] is one["input_ids"]
        assert one["cu_seqlens_q"].dtype == one["max_seqlen_kv"].dtype == torch.int32 and one["max_seqlen_q"].ndim == 0
        media = {"pixel_values", "pixel_values_videos"} & set(inputs.media_fields(step, number)[1])
        assert (visual[number] is not None) == bool(media) and all(getattr(visual[number], name) is not None for name in media)


def test_bridges_provider_takes_no_dataloader_of_samples(bridge):
    with pytest.raises(ValueError, match="dataloader_type is 'cyclic'; give 'external'"):
        bridge.DatasetProvider(source="job.yaml", dataloader_type="cyclic").build_datasets(Context)


def test_bridges_provider_calculates_the_microbatches(bridge, monkeypatch):
    from megatron.core import num_microbatches_calculator as calculator
    monkeypatch.setattr(calculator, "_GLOBAL_NUM_MICROBATCHES_CALCULATOR", None)
    calculator.init_num_microbatches_calculator(0, None, 8, 1, 2)  # a global batch of 8 on 2 ranks

    class Provider(bridge.DatasetProvider):
        def make_loader(self, context):
            return Loader(2)

    iterator, *_ = Provider(source="job.yaml").build_datasets(Context)
    with pytest.raises(ValueError, match="step 0 has 2 microbatches, the schedule 4"):
        next(iterator)


def test_bridge_takes_no_weights_of_the_loss(bridge):
    from evenkeel.step import Microbatch
    one = microbatch()
    fields = {name: np.array(one.wire(name)) for name in one}
    weighted = Microbatch.of(**fields, loss_weights=np.ones((1, sum(LENGTHS)), np.float32))
    with pytest.raises(ValueError, match="the loss of Megatron-Bridge takes no weights"):
        bridge.batch(step_of(weighted), 0)


def test_bridges_batch_is_that_of_its_own_packer(worked, bridge):
    pack = own_file(bridge, "data.packing.in_batch").build_mcore_thd_sequence_batch_from_rows
    for step in worked:
        for number, llm in enumerate(step.microbatches):
            ours = bridge.batch(step, number)
            rows = []
            for begin, end in zip(llm["cu_seqlens"], llm["cu_seqlens"][1:]):
                row = {name: ours[name][0, begin:end] for name in ("input_ids", "labels", "loss_mask")}
                rows.append({**row, "position_ids": torch.arange(end - begin)})
            theirs = pack(rows)
            del theirs["position_ids"]  # rows of one dimension alone: those of M-RoPE its models calculate
            for name, value in theirs.items():
                same = torch.equal(ours[name], value) if isinstance(value, torch.Tensor) else ours[name] == value
                assert same and getattr(ours[name], "dtype", None) == getattr(value, "dtype", None), name


def test_bridges_loader_passes_the_iterator_on(worked, bridge):
    build = own_file(bridge, "data.samplers").build_pretraining_data_loader
    provider = bridge.DatasetProvider(source=worked.endpoint, num_microbatches=1)
    assert isinstance(provider, own_file(bridge, "data.base").DatasetProvider)
    provider.finalize()
    iterator, *_ = provider.build_datasets(Context)
    assert build(iterator, 0, provider.dataloader_type, 1, provider.num_workers, provider.data_sharding) is iterator


def test_llamafactorys_sum_is_the_loss_of_the_step(worked):
    """As its trainer computes it: tensors alone are passed on, and the weighted mean of a microbatch counts by its trained
    tokens among those of the step."""
    import transformers
    import evenkeel.llamafactory
    from evenkeel import loop
    checkpoint = worked.folder / "model"
    model = transformers.AutoModelForImageTextToText.from_pretrained(checkpoint, dtype=torch.float32).train()
    for step in worked:
        expected = loop.forward_backward(step, model)
        generator = evenkeel.llamafactory.BatchGenerator(iter([step]), model)
        batches = next(generator)
        trained = sum((one["labels"] != -100).sum().item() for one in batches)
        total = 0.0
        for one in batches:
            assert all(isinstance(value, torch.Tensor) for value in one.values())
            weights = one.pop("loss_weights")[:, 1:]
            logits = model(**one).logits.float()[0, :-1]
            losses = torch.nn.functional.cross_entropy(logits, one["labels"][0, 1:], reduction="none", ignore_index=-100)
            total += (losses * weights[0]).sum() / weights.sum() * (one["labels"] != -100).sum() / trained
        # The step's own total also counts tokens of damaged samples, which are masked.
        assert total.item() * trained / step.loss_tokens == pytest.approx(expected.item(), rel=1e-4)
