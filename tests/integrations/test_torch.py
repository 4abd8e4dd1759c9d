import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import sstq
from sstq.accounting import Ledger, LedgerError
from sstq.integrations.torch import (
    ParameterLayout,
    PrivateExchange,
    PrivateOptimizer,
    UpdateReport,
    encode_gradients,
    encode_update,
    set_gradients,
    trainable_parameters,
)
from tests.integrations.two_ranks import BASE_SEED, PRIVATE_SEED, STEPS, frameunit

ROOT = Path(__file__).parents[2]


def clean(dim, clip=100.0):
    """Its message is the vector itself, so that one can see what would have been encoded."""
    return sstq.mechanism("clean", dim=dim, clip=clip)


def sent(messages, mechanism):
    return mechanism.decode(messages)[0]


# --- the vector ---


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_tensors_of_any_kind_go_there_and_back(dtype, seed):
    generator = torch.Generator().manual_seed(seed)
    matrix = torch.randn(4, 3, generator=generator).to(dtype)
    tensors = [matrix.T.requires_grad_(), torch.tensor(2.5, dtype=dtype, requires_grad=True), matrix[:, 0]]
    tensors[2] = tensors[2].detach().requires_grad_()
    assert not tensors[0].is_contiguous()
    layout = ParameterLayout.of(tensors)
    assert layout.shapes == ((3, 4), (), (4,))
    vector = layout.flatten(tensors)
    assert vector.dtype == (np.float64 if dtype == torch.float64 else np.float32)
    np.testing.assert_array_equal(vector[:4], matrix[:, 0].double().numpy())
    assert vector[12] == 2.5
    for tensor, back in zip(tensors, layout.unflatten(vector), strict=True):
        assert torch.equal(tensor.detach(), back.to(dtype))


def test_what_is_flattened_is_a_copy():
    parameter = torch.zeros(3, requires_grad=True)
    layout = ParameterLayout.of([parameter])
    vector = layout.flatten([parameter])
    tensors = layout.unflatten(vector)
    vector += 1
    assert not parameter.any()
    assert not tensors[0].any()


def test_frozen_repeated_and_empty_parameters():
    shared, frozen, empty = torch.ones(2, requires_grad=True), torch.ones(5), torch.ones(0, 3, requires_grad=True)
    assert ParameterLayout.of([shared, frozen, empty, shared]).shapes == ((2,), (0, 3))
    optimizer = torch.optim.SGD([{"params": [shared]}, {"params": []}, {"params": [empty]}], lr=0.1)
    assert ParameterLayout.of(optimizer).shapes == ((2,), (0, 3))
    tied = nn.Sequential(nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False))
    tied[1].weight = tied[0].weight
    assert ParameterLayout.of(tied).dim == 9


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ([], "at least one trainable number"),
        ([torch.ones(3)], "at least one trainable number"),
        ([torch.ones(0, requires_grad=True)], "at least one trainable number"),
        ([torch.ones(3, dtype=torch.complex64, requires_grad=True)], "dtype torch.complex64"),
        (torch.ones(3, requires_grad=True), "got one tensor"),
    ],
)
def test_what_has_no_vector_is_refused(source, message):
    with pytest.raises(ValueError, match=message):
        ParameterLayout.of(source)


def test_wrong_shapes_are_refused():
    layout = ParameterLayout(((2, 3), (2,)))
    with pytest.raises(ValueError, match=r"shapes \(\(2, 3\), \(2,\)\), got \(\(3, 2\), \(2,\)\)"):
        layout.flatten([torch.ones(3, 2), torch.ones(2)])
    with pytest.raises(ValueError, match="tensors must have the shapes"):
        layout.flatten([torch.ones(2, 3)])
    with pytest.raises(ValueError, match=r"shape \(8,\), got \(7,\)"):
        layout.unflatten(np.ones(7))


# --- messages ---


def test_gradients_are_sent_in_order_and_missing_ones_as_zeros():
    layers = nn.ModuleDict({"used": nn.Linear(2, 1), "unused": nn.Linear(2, 1), "frozen": nn.Linear(2, 1)})
    layers["frozen"].requires_grad_(False)
    layers["used"](torch.tensor([[3.0, 4.0]])).sum().backward()
    mechanism = clean(6)
    np.testing.assert_allclose(sent(encode_gradients(layers, mechanism), mechanism), [3, 4, 1, 0, 0, 0], rtol=1e-6)
    with pytest.raises(ValueError, match="dim = 6, the trainable parameters, got 5"):
        encode_gradients(layers, clean(5))


def test_sparse_gradients_are_sent():
    table = nn.Embedding(3, 2, sparse=True)
    table(torch.tensor([2])).sum().backward()
    assert table.weight.grad.is_sparse
    mechanism = clean(6)
    np.testing.assert_allclose(sent(encode_gradients(table, mechanism), mechanism), [0, 0, 0, 0, 1, 1], rtol=1e-6)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_what_is_not_finite_is_sent_as_zero_and_counted_locally(bad):
    parameter = torch.ones(3, requires_grad=True)
    parameter.grad = torch.tensor([1.0, bad, 2.0])
    report, mechanism = UpdateReport(), clean(3)
    messages = encode_gradients([parameter], mechanism, report=report)
    assert (report.vectors, report.not_finite) == (1, 1)
    np.testing.assert_array_equal(sent(messages, mechanism), np.zeros(3))
    with torch.no_grad():
        parameter.copy_(parameter.grad)
    encode_update([parameter], [torch.tensor([0.0, bad, 0.0])], mechanism, report=report)
    assert report.not_finite == 2
    # A seed shows that the bytes are those of the zero vector, so that nothing tells the two apart.
    private = frameunit(3)
    zero = torch.zeros(3, requires_grad=True)
    assert encode_gradients([parameter], private, 1).to_bytes() == encode_gradients([zero], private, 1).to_bytes()


def test_an_update_is_the_difference():
    layer = nn.Linear(2, 1)
    before = [parameter.detach().clone() for parameter in trainable_parameters(layer)]
    with torch.no_grad():
        layer.weight += torch.tensor([[0.5, -0.25]])
    mechanism = clean(3)
    np.testing.assert_allclose(sent(encode_update(layer, before, mechanism), mechanism), [0.5, -0.25, 0], atol=1e-6)
    with pytest.raises(ValueError, match="tensors must have the shapes"):
        encode_update(layer, before[:1], mechanism)


def test_a_mean_update_is_applied_by_any_optimizer():
    layer = nn.Linear(2, 1, dtype=torch.float64)
    start = ParameterLayout.of(layer).flatten(trainable_parameters(layer))
    set_gradients(layer, -np.array([1.0, 2.0, 3.0]))
    assert layer.weight.grad.dtype == torch.float64
    torch.optim.SGD(layer.parameters(), lr=1.0).step()
    np.testing.assert_allclose(
        ParameterLayout.of(layer).flatten(trainable_parameters(layer)), start + np.array([1, 2, 3])
    )


# --- the optimizer ---


@pytest.mark.parametrize("make", [lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9), lambda p: torch.optim.Adam(p)])
def test_steps_are_those_of_the_optimizer_with_the_decoded_mean(make, seed):
    rng = np.random.default_rng(seed)
    ours, plain = nn.Linear(3, 2), nn.Linear(3, 2)
    plain.load_state_dict(ours.state_dict())
    private, reference = PrivateOptimizer(make(ours.parameters()), frameunit(8), base_seed=3), make(plain.parameters())
    for number in (1, 2, 3):
        this_round = frameunit(8).with_seed(sstq.mix_seed(3, number))
        aggregator = this_round.aggregator()
        assert private.mechanism == this_round
        for client in range(4):
            gradient = rng.standard_normal(8).astype(np.float32)
            set_gradients(ours, gradient)
            private.receive(private.message(rng=client))
            aggregator.update(this_round.encode(gradient, rng=client))
            assert all(parameter.grad is None for parameter in ours.parameters())
        assert private.received == 4
        estimate = private.step()
        assert (estimate.count, private.round_number, private.received) == (4, number + 1, 0)
        set_gradients(plain, aggregator.mean().value)
        reference.step()
        for a, b in zip(ours.parameters(), plain.parameters(), strict=True):
            assert torch.equal(a, b)


def test_client_and_server_may_be_on_different_machines():
    for options in ({}, {"bits": 3}):
        mechanism = frameunit(8, **options)
        models = nn.Linear(3, 2), nn.Linear(3, 2)
        client, server = (PrivateOptimizer(torch.optim.SGD(m.parameters(), lr=0.1), mechanism) for m in models)
        for number in range(5):
            models[0](torch.ones(4, 3)).sum().backward()
            name = number if options else None
            raw = client.message(client=name).to_bytes()
            assert len(raw) == -(-mechanism.message_bits // 8)
            server.receive_bytes(raw, client=name)
        assert server.step().count == 5
    with pytest.raises(ValueError, match="client must be given"):
        server.receive_bytes(raw)


def test_a_message_of_another_round_is_refused():
    optimizer = PrivateOptimizer(torch.optim.SGD([torch.ones(4, requires_grad=True)], lr=0.1), frameunit(4))
    late = optimizer.message()
    optimizer.receive(late)
    optimizer.step()
    with pytest.raises(ValueError, match="another mechanism"):
        optimizer.receive(late)
    with pytest.raises(ValueError, match="a mean needs at least one message"):
        optimizer.step()
    assert optimizer.round_number == 2


def test_the_ledger_is_charged_before_a_message(tmp_path):
    ledger = Ledger(tmp_path / "ledger.jsonl", epsilon=16.0)
    optimizer = PrivateOptimizer(torch.optim.SGD([torch.ones(4, requires_grad=True)], lr=0.1), frameunit(4))
    for _ in range(2):
        optimizer.receive(optimizer.message(ledger=ledger))
        with pytest.raises(LedgerError, match="was already spent"):
            optimizer.message(ledger=ledger)
        optimizer.step()
    with pytest.raises(LedgerError, match="more than is left"):
        optimizer.message(ledger=ledger)
    assert ledger.spent == 16.0


def test_a_round_that_is_done_again_is_charged_again(tmp_path):
    ledger = Ledger(tmp_path / "ledger.jsonl", epsilon=100.0)
    weight = torch.ones(4, requires_grad=True)
    optimizer = PrivateOptimizer(torch.optim.SGD([weight], lr=0.1), frameunit(4))
    state = optimizer.state_dict()
    optimizer.message(ledger=ledger)
    optimizer.load_state_dict(state)
    optimizer.message(ledger=ledger)
    another = PrivateOptimizer(torch.optim.SGD([weight], lr=0.1), frameunit(4))
    another.message(ledger=ledger)
    assert ledger.spent == 24.0


def test_a_ledger_is_for_pure_privacy(tmp_path):
    ledger = Ledger(tmp_path / "ledger.jsonl", epsilon=100.0)
    mechanism = sstq.mechanism("csgm", dim=4, epsilon=1.0, clients=5, delta=0.1)
    optimizer = PrivateOptimizer(torch.optim.SGD([torch.ones(4, requires_grad=True)], lr=0.1), mechanism)
    with pytest.raises(ValueError, match=r"pure ε, but mechanism 'csgm' .* delta = 0.1"):
        optimizer.message(ledger=ledger)
    assert not ledger.entries
    assert len(optimizer.message()) == 1


def test_the_mean_is_capped_and_frozen_parameters_stay():
    free, frozen = torch.zeros(4, requires_grad=True), torch.zeros(4)
    optimizer = PrivateOptimizer(torch.optim.SGD([free, frozen], lr=1.0), frameunit(4), norm_cap=0.1, base_seed=1)
    optimizer.receive(optimizer.message(rng=1))
    assert np.linalg.norm(optimizer.step().value) > 0.1
    assert float(free.detach().norm()) == pytest.approx(0.1)
    assert not frozen.any()


def test_an_optimizer_goes_on_from_its_state():
    parameters = [torch.zeros(4, requires_grad=True) for _ in range(2)]
    first, second = (PrivateOptimizer(torch.optim.Adam([p]), frameunit(4), base_seed=1) for p in parameters)
    first.receive(first.message(rng=1))
    first.step()
    second.load_state_dict(first.state_dict())
    assert second.mechanism == first.mechanism
    assert second.optimizer.state_dict()["state"][0]["step"] == 1


def test_many_clients_train_together(seed):
    """Least squares, 40 clients, ε = 8, 25 rounds: the squared distance falls from 7.5 to 0.015 on average.

    The noise is secret. Four nearly normal errors reach fifty times their mean square less than once in 1e12 runs.
    """
    truth = torch.tensor([1.0, -2.0, 0.5, 1.5])
    generator = torch.Generator().manual_seed(seed)
    weight = torch.zeros(4, requires_grad=True)
    optimizer = PrivateOptimizer(torch.optim.SGD([weight], lr=0.2), frameunit(4, clip=2.0))
    for _ in range(25):
        for _ in range(40):
            x = torch.randn(5, 4, generator=generator)
            ((x @ weight - x @ truth) ** 2).mean().backward()
            optimizer.receive(optimizer.message())
        optimizer.step()
    assert float((weight.detach() - truth).square().sum()) < 0.75


def test_an_optimizer_of_another_size_is_refused():
    with pytest.raises(ValueError, match="dim = 4, the optimizer's trainable parameters, got 5"):
        PrivateOptimizer(torch.optim.SGD([torch.ones(4, requires_grad=True)], lr=0.1), frameunit(5))


# --- two real processes ---


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    """What two_ranks.py found, on each rank."""
    folder = tmp_path_factory.mktemp("ranks")
    command = [sys.executable, "-W", "error", "-m", "tests.integrations.two_ranks"]
    running = [
        subprocess.Popen([*command, str(rank), str(folder)], cwd=ROOT, stderr=subprocess.PIPE, text=True)
        for rank in range(2)
    ]
    try:
        errors = [process.communicate(timeout=600)[1] for process in running]
    finally:
        for process in running:
            process.kill()
    assert [process.returncode for process in running] == [0, 0], "\n".join(errors)
    return [torch.load(folder / f"rank-{rank}.pt") for rank in range(2)]


def test_ranks_end_with_the_same_parameters_bit_for_bit(ranks):
    first, second = (rank["watched"]["parameters"] for rank in ranks)
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    # The optimizer got what the exchange decoded; parameters are in another order in the bucket.
    gradient = torch.cat([g.reshape(-1) for g in ranks[0]["watched"]["gradients"]])
    assert torch.equal(gradient.sort().values, ranks[0]["watched"]["seen"][-1][1].sort().values)


def test_what_ranks_decode_is_the_mean_of_their_messages(ranks):
    seen = [rank["watched"]["seen"] for rank in ranks]
    assert len(seen[0]) == len(seen[1]) == STEPS
    for step in range(STEPS):
        mechanism = frameunit(21).with_seed(sstq.mix_seed(BASE_SEED, step + 1))
        aggregator = mechanism.aggregator()
        for rank in range(2):
            noise = np.random.default_rng([PRIVATE_SEED, step + 1, rank])
            aggregator.update(mechanism.encode(seen[rank][step][0].numpy(), noise))
        expected = torch.from_numpy(aggregator.mean().value).float()
        assert torch.equal(seen[0][step][1], expected)
        assert torch.equal(seen[1][step][1], expected)
        assert not torch.equal(seen[0][step][0], seen[1][step][0])


def test_only_the_bytes_of_the_messages_are_exchanged(ranks):
    """The profiler sees all collective operations, PyTorch's own as well; the network has a buffer."""
    for rank in ranks:
        start, *steps = rank["watched"]["collectives"]
        # Our fingerprints and PyTorch's number of parameters; then rank 0's shapes, and its parameters and buffer.
        assert start[:2] == [("gloo:all_gather", [[32]]), ("gloo:all_gather", [[1]])]
        assert {name for name, _ in start[2:]} == {"gloo:broadcast"}
        assert start[-1] == ("gloo:broadcast", [[21 + 4]])
        assert rank["watched"]["step_bytes"] == 2
        message = [("gloo:all_gather", [[2]])]
        # In the second step PyTorch sends the order of rank 0's four gradients, and number and size of its buckets.
        assert steps == [
            message,
            [("gloo:broadcast", [[4 + 1]]), ("gloo:broadcast", [[1]]), *message],
            message,
            message,
        ]


def test_statistics_are_refused_when_train_wakes_them(ranks):
    for rank in ranks:
        report = rank["woken statistics"]
        assert report["frozen"] is None
        assert all("use GroupNorm" in error for error in report["errors"])
        assert not report["mean"].any()


def test_a_step_that_is_done_again_is_charged_again(ranks):
    for rank in ranks:
        assert rank["started again"] == {"spent": 32.0, "steps": 2}


def test_what_is_not_finite_on_one_rank_is_zero_for_all(ranks):
    first, second = (rank["not finite"] for rank in ranks)
    assert torch.equal(first["mean"], second["mean"])
    assert torch.isfinite(first["mean"]).all()
    assert (first["not_finite"], second["not_finite"]) == (0, 1)


def test_a_rank_needs_a_budget_unless_it_is_told_that_there_is_none():
    with pytest.raises(TypeError, match="'ledger'"):
        PrivateExchange(frameunit(4))


def test_ranks_stop_together_when_their_budget_is_spent(ranks):
    for rank in ranks:
        report = rank["exhausted"]
        assert report["errors"][:2] == [None, None]
        assert report["errors"][2].startswith("BudgetExhausted: ")
        assert (report["steps"], report["spent"]) == (2, 16.0)


def test_several_buckets_are_refused_before_anything_is_sent(ranks):
    for rank in ranks:
        report = rank["several buckets"]
        assert report["errors"][0] is None
        assert "all gradients must be in one bucket" in report["errors"][1]
        assert report["steps"] == 1


def test_two_ranks_learn(ranks):
    """With fixed seeds: from 7.2 to below 0.1."""
    distances = ranks[0]["converging"]["distances"]
    assert distances == ranks[1]["converging"]["distances"]
    assert distances[0] > 6
    assert np.mean(distances[-20:]) < 0.5


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("other seeds", r"must be the same on all ranks, but ranks \[1\] differ"),
        ("other mechanisms", r"must be the same on all ranks, but ranks \[1\] differ"),
        ("wrong dim", "dim = 21, the module's parameters, got 5"),
        ("statistics", "use GroupNorm"),
        ("sent statistics", "SyncBatchNorm"),
        ("trusted", "every rank sees all messages"),
    ],
)
def test_both_ranks_refuse(ranks, name, message):
    for rank in ranks:
        with pytest.raises(ValueError, match=message):
            raise ValueError(rank[name])


def test_other_mechanisms_types_and_a_new_start(ranks):
    for rank in ranks:
        assert rank["resumed"]
        assert rank["half"].dtype == torch.bfloat16
    assert torch.equal(ranks[0]["public coin"], ranks[1]["public coin"])
    assert torch.equal(ranks[0]["half"], ranks[1]["half"])
