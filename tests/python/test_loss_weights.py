"""Weights of turns in the data as weights of the loss: from a sample's JSON to gradients."""

import json
import os
import random

import numpy as np
import pytest

import evenkeel
import jobs

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers", minversion="4.57")

import checkpoints  # noqa: E402
import media  # noqa: E402
from evenkeel import inputs, loop, veomni  # noqa: E402

pytestmark = pytest.mark.skipif(not os.path.exists(jobs.BINARY), reason=f"{jobs.BINARY} is not built (set EVENKEEL_BIN)")
WEIGHTS = (0.25, 1, 0, 3)
TEMPLATE = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}" \
           "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"


@pytest.fixture(scope="module", params=["packed", "padded"])
def weighted(request, tmp_path_factory):
    """(checkpoint, steps) of one rank."""
    folder = tmp_path_factory.mktemp(request.param)
    checkpoint = checkpoints.write(folder / "model", "qwen2")
    (checkpoint / "chat_template.jinja").write_text(TEMPLATE)
    rng = random.Random(5)
    shard = media.Shard(folder / "chats.tar")
    for number in range(12):
        chat = []
        for weight in rng.sample(WEIGHTS, 3):
            chat.append({"role": "user", "content": media.words(rng, 1, 5)})
            chat.append({"role": "assistant", "content": media.words(rng, 1, 9), "weight": weight})
        shard.add(f"{number:03d}.json", json.dumps({"messages": chat}).encode())
    shard.close()
    path = checkpoints.write_job(folder / "job.yaml", checkpoint, "chats.tar", 1, 6, phases=("llm",))
    text = path.read_text().replace("chat: chatml", "labels: data, loss_weights: data")
    if request.param == "padded":
        text = text.replace("{name: llm,", "{name: llm, batching: padded,")
    path.write_text(text)
    jobs.make_index(path)
    with jobs.worker(path) as endpoint:
        return checkpoint, list(evenkeel.Loader(endpoint, rank=0, num_steps=2))


def test_every_label_has_its_turns_weight(weighted):
    _, steps = weighted
    seen = set()
    for step in steps:
        for microbatch in step.microbatches:
            weights, labels = microbatch["loss_weights"], microbatch["labels"]
            assert weights.dtype == np.float32 and weights.shape == labels.shape
            assert ((weights != 0) == (labels != -100)).all()
            seen |= set(weights.reshape(-1).tolist())
    assert seen == set(WEIGHTS)


def test_the_loss_is_the_weighted_sum_over_trained_tokens(weighted):
    checkpoint, steps = weighted
    model = transformers.AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float64).train()
    for step in steps:
        model.zero_grad()
        loss = loop.forward_backward(step, model)
        gradient = model.lm_head.weight.grad.clone()
        model.zero_grad()
        expected = 0
        for number, microbatch in enumerate(step.microbatches):
            given = inputs.of(step, number, model)
            labels, logits = given["labels"], model(**given).logits
            for row in range(labels.shape[0]):
                for at in range(1, labels.shape[1]):
                    if labels[row, at] != -100:
                        one = torch.nn.functional.cross_entropy(logits[row, at - 1].float(), labels[row, at])
                        expected = expected + one * float(microbatch["loss_weights"][row, at])
        expected = expected / step.loss_tokens
        expected.backward()
        assert loss.item() == pytest.approx(expected.item(), rel=1e-5)
        torch.testing.assert_close(gradient, model.lm_head.weight.grad, rtol=1e-4, atol=1e-7)


def test_a_trainer_whose_loss_takes_no_weights_refuses_them(weighted):
    _, steps = weighted
    with pytest.raises(ValueError, match="the loss of VeOmni takes no weights: remove processor.loss_weights"):
        veomni.batch(steps[0], 0)
