"""Exchanges along random routes on gloo ranks, with gradients, against a reference that sees all ranks at once."""

from unittest import mock

import numpy as np
import pytest
import torch
import torch.distributed as dist

import evenkeel
import evenkeel.torch
import made
import ranks


def case(size, seed, twice=0.0):
    rng = np.random.default_rng(seed)
    rows_in = rng.integers(0, 12, size)
    if seed % 2:
        rows_in[seed % size] = 0  # a rank without rows
    receivers = list(range(size)) if seed % 3 else [0]  # ranks that receive nothing
    return made.global_route(rng, size, rows_in.tolist(), receivers, twice=twice)


def values_of(rank, rows, width, dtype):
    return torch.randn(rows, width, generator=torch.Generator().manual_seed(rank * 100 + width)).to(dtype)


def weights_of(rank, rows, width, dtype):
    return torch.randn(rows, width, generator=torch.Generator().manual_seed(rank * 100 + width + 50)).to(dtype)


def exchange_on_rank(rank, size, seeds, dtype, twice):
    out = []
    for seed in seeds:
        routes, _ = case(size, seed, twice)
        route = routes[rank]
        a = values_of(rank, route.rows_in, 3, dtype).requires_grad_()
        b = values_of(rank, route.rows_in, 5, dtype).requires_grad_()
        moved_a, moved_b = evenkeel.torch.exchange((a, b), route)
        loss = (moved_a * weights_of(rank, route.rows_out, 3, dtype)).sum()
        (loss + (moved_b * weights_of(rank, route.rows_out, 5, dtype)).sum()).backward()
        out.append([t.detach().float().numpy() for t in (moved_a, moved_b, a.grad, b.grad)])
    return out


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("dtype,twice", [(torch.float64, 0.0), (torch.float64, 0.4), (torch.float32, 0.0),
                                         (torch.bfloat16, 0.0)])
def test_exchange_equals_the_reference_with_gradients(size, dtype, twice):
    seeds = list(range(6))
    results = ranks.run(size, exchange_on_rank, size, seeds, dtype, twice)
    for number, seed in enumerate(seeds):
        routes, source = case(size, seed, twice)
        for width, which in ((3, 0), (5, 1)):
            inputs = [values_of(r, routes[r].rows_in, width, dtype).double() for r in range(size)]
            gradients = [torch.zeros_like(one) for one in inputs]
            expected = [torch.zeros(routes[r].rows_out, width, dtype=torch.float64) for r in range(size)]
            weights = [weights_of(r, routes[r].rows_out, width, dtype).double() for r in range(size)]
            for (receiver, row), (sender, at) in source.items():
                expected[receiver][row] = inputs[sender][at]
                gradients[sender][at] += weights[receiver][row]
            for r in range(size):
                moved, gradient = results[r][number][which], results[r][number][which + 2]
                assert np.array_equal(moved, expected[r].float().numpy()), f"seed {seed}, rank {r}"
                assert np.allclose(gradient, gradients[r].float().numpy(), rtol=1e-12, atol=1e-12)


def frozen_and_empty(rank, size):
    """Rank 0 has all rows. First no rank's rows require gradients, then only rank 0's do."""
    routes, _ = made.global_route(np.random.default_rng(0), size, [6] + [0] * (size - 1), list(range(size)))
    route = routes[rank]
    frozen = evenkeel.torch.exchange(torch.ones(route.rows_in, 2), route)
    rows = torch.ones(route.rows_in, 2, requires_grad=rank == 0)
    moved = evenkeel.torch.exchange(rows, route)
    (moved.sum() * 2).backward()
    return frozen.requires_grad, moved.requires_grad, rows.grad.sum().item() if rank == 0 else 0.0


def test_empty_ranks_join_the_backward_pass():
    for rank, (frozen, moved, gradient) in enumerate(ranks.run(3, frozen_and_empty, 3)):
        assert not frozen and moved
        assert gradient == (24.0 if rank == 0 else 0.0)


def other_types(rank, size):
    routes, source = case(size, 1)
    route = routes[rank]
    inputs = [torch.arange(route.rows_in) + 1000 * rank, (torch.arange(route.rows_in) % 2).bool(),
              (torch.arange(route.rows_in) % 251).to(torch.uint8)]
    ids, flags, small = (evenkeel.torch.exchange(one, route, grad=False) for one in inputs)
    back = evenkeel.torch.exchange(ids, route.inverse(), grad=False)
    for row in range(route.rows_out):
        sender, at = source[rank, row]
        assert ids[row] == at + 1000 * sender and flags[row] == bool(at % 2) and small[row] == at % 251
    return torch.equal(back, inputs[0])


def test_integers_and_flags_travel_and_the_inverse_returns_rows():
    assert all(ranks.run(4, other_types, 4))


def in_a_subgroup(rank, size):
    group = dist.new_group([1, 3])
    routes, source = made.global_route(np.random.default_rng(5), 2, [4, 7], [0, 1], ranks_global=[1, 3])
    if rank not in (1, 3):
        return True
    me = {1: 0, 3: 1}[rank]
    rows = torch.arange(routes[me].rows_in) + 100 * me
    moved = evenkeel.torch.exchange(rows, routes[me], group=group, grad=False)
    return all(moved[row] == at + 100 * sender for (receiver, row), (sender, at) in source.items() if receiver == me)


def test_a_route_between_some_ranks_uses_their_group():
    assert all(ranks.run(4, in_a_subgroup, 4))


def test_one_process_needs_no_process_group():
    routes, source = made.global_route(np.random.default_rng(2), 1, [5], [0])
    rows = torch.arange(5.0, dtype=torch.float64)[:, None].clone().requires_grad_()
    moved = evenkeel.torch.exchange(rows, routes[0])
    assert [int(v) for v in moved[:, 0]] == [source[0, i][1] for i in range(5)]
    moved.sum().backward()
    assert rows.grad.sum() == 5


def exchange_alone(rank):
    refused = mock.Mock(side_effect=AssertionError("a collective"))
    order = [[rank, 0, 1], [rank, 2, 1], [rank, 1, 1]]
    route = evenkeel.Route([0, 1], order, [[rank, 0, 3]], 4, 3, all_stay=True)
    rows = values_of(rank, 4, 3, torch.float64).requires_grad_(rank == 0)
    with mock.patch.object(dist, "all_to_all_single", refused), mock.patch.object(dist, "all_reduce", refused):
        moved = evenkeel.torch.exchange(rows, route)
        if rank == 0:
            (moved * weights_of(rank, 3, 3, torch.float64)).sum().backward()
        back = evenkeel.torch.exchange(moved.detach(), route.inverse())
    return moved.detach().numpy(), None if rows.grad is None else rows.grad.numpy(), back.numpy()


def test_where_all_rows_stay_no_rank_meets_another():
    for rank, (moved, gradient, back) in enumerate(ranks.run(2, exchange_alone)):
        rows, weights = values_of(rank, 4, 3, torch.float64).numpy(), weights_of(rank, 3, 3, torch.float64).numpy()
        order = [0, 2, 1]
        assert np.array_equal(moved, rows[order])
        assert np.array_equal(back[order], rows[order]) and not back[3].any()
        if rank == 0:
            assert np.array_equal(gradient[order], weights) and not gradient[3].any()
        else:
            assert gradient is None, "each rank decides for itself"


def test_rows_that_do_not_fit_the_route_are_refused():
    routes, _ = made.global_route(np.random.default_rng(2), 1, [5], [0])
    with pytest.raises(ValueError, match="has 4 rows"):
        evenkeel.torch.exchange(torch.zeros(4, 1), routes[0])


def masked(rank, once_per_step):
    """Rank 0 encodes the items of rank 1 and the other way round; the second item of rank 0 is damaged."""
    def route(rows):
        segments = [[1 - rank, 0, rows]]
        return evenkeel.Route([0, 1], segments, segments, rows, rows, [0, 2, rows])
    valid = [1, 0] if rank == 0 else [1, 1]
    first = made.packed_microbatch([3, 2], [1, 1, 0, 0, 0], sample_valid=[1, 0 if rank == 0 else 1])
    second = made.packed_microbatch([2, 2, 3], [0, 0, 0, 0, 1, 0, 2])
    if once_per_step:
        step = made.step([first, second], {"vision": made.encoder_fields([2, 2], valid)}, {"vision": route(4)})
    else:
        for i, microbatch in enumerate((first, second)):
            microbatch.encoders["vision"] = made.encoder_fields([2], valid[i:i + 1])
        step = made.step([first, second], {}, {"vision": [route(2), route(2)]})
    return [labels.tolist() for labels in evenkeel.torch.mask_labels(step)]


@pytest.mark.parametrize("once_per_step", [True, False])
def test_labels_of_damaged_samples_are_masked_with_their_text(once_per_step):
    rank0, rank1 = ranks.run(2, masked, once_per_step)
    # Rank 0's own items were fine (rank 1 encoded them), but the text of its second sample was damaged.
    assert rank0 == [[[0, 1, 2, -100, -100]], [[0, 1, 2, 3, 4, 5, 6]]]
    # Rank 1's second microbatch takes the rows of the damaged item: its third sample is masked.
    assert rank1 == [[[0, 1, 2, 3, 4]], [[0, 1, 2, 3, -100, -100, -100]]]


def test_labels_of_padded_batches_are_masked_by_row():
    microbatch = evenkeel.Microbatch.of(labels=np.arange(6).reshape(2, 3), sample_valid=np.ones(2, np.uint8),
                                        mm_token_type_ids=np.array([[0, 3, 0], [0, 0, 3]]))
    route = evenkeel.Route([0], [[0, 0, 2]], [[0, 0, 2]], 2, 2, [0, 2])
    step = made.step([microbatch], {"audio": made.encoder_fields([1, 1], [1, 0])}, {"audio": route})
    assert evenkeel.torch.mask_labels(step)[0].tolist() == [[0, 1, 2], [-100, -100, -100]]
