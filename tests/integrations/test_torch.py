import copy

import numpy as np
import pytest
import torch
from torch import nn

import sstq
from paper.baselines import Clean
from sstq.inputs.arrays import as_vectors
from sstq.integrations.torch import encode_gradients, encode_update, set_gradients


def sent(messages, mechanism):
    return mechanism.decode(messages)[0]


def clean(dim, clip=100.0):
    """Its message is the vector itself, so that one can see what would have been encoded."""
    return Clean(dim=dim, clip=clip)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_parameters_of_any_type_go_there_and_back(dtype):
    layer = nn.Linear(4, 3, dtype=dtype)
    mechanism = clean(15)
    before = copy.deepcopy(layer)
    with torch.no_grad():
        for own in before.parameters():
            own.zero_()
    set_gradients(layer, sent(encode_update(layer, before, mechanism), mechanism))
    for own in layer.parameters():
        assert own.grad.dtype == dtype
        # Clean sends float32, and its clip is computed in it.
        torch.testing.assert_close(
            own.detach().float(), own.grad.float(), rtol=1e-6, atol=0
        )


def test_shared_parameters_count_once():
    tied = nn.Sequential(nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False))
    tied[1].weight = tied[0].weight
    assert len(encode_gradients(tied, clean(9))) == 1


def test_gradients_are_sent_in_order_and_missing_ones_as_zeros():
    layers = nn.ModuleDict(
        {"used": nn.Linear(2, 1), "unused": nn.Linear(2, 1), "frozen": nn.Linear(2, 1)}
    )
    layers["frozen"].requires_grad_(False)
    layers["used"](torch.tensor([[3.0, 4.0]])).sum().backward()
    mechanism = clean(6)
    np.testing.assert_allclose(
        sent(encode_gradients(layers, mechanism), mechanism),
        [3, 4, 1, 0, 0, 0],
        rtol=1e-6,
    )
    with pytest.raises(ValueError, match="dim = 6, the trainable parameters, got 5"):
        encode_gradients(layers, clean(5))
    for wrong in (layers["frozen"], nn.Linear(2, 1, dtype=torch.complex64)):
        with pytest.raises(ValueError, match="must have trainable parameters"):
            encode_gradients(wrong, mechanism)


def test_sparse_gradients_are_sent():
    table = nn.Embedding(3, 2, sparse=True)
    table(torch.tensor([2])).sum().backward()
    assert table.weight.grad.is_sparse
    mechanism = clean(6)
    np.testing.assert_allclose(
        sent(encode_gradients(table, mechanism), mechanism),
        [0, 0, 0, 0, 1, 1],
        rtol=1e-6,
    )


@pytest.mark.parametrize("bad", [float("nan"), -float("inf")])
def test_what_is_not_finite_is_sent_as_zero(bad):
    layer = nn.Linear(3, 1, bias=False)
    layer.weight.grad = torch.tensor([[1.0, bad, 2.0]])
    broken = copy.deepcopy(layer)
    with torch.no_grad():
        broken.weight[0, 1] = bad
    # A seed shows that the bytes are those of the zero vector, so that nothing tells the two apart.
    private = sstq.FrameUnit(3, 2.0)
    expected = private.encode(np.zeros(3), rng=np.random.default_rng(1)).to_bytes()
    assert encode_gradients(layer, private, 1).to_bytes() == expected
    assert encode_update(layer, broken, private, 1).to_bytes() == expected


def test_an_update_is_the_difference():
    layer = nn.Linear(2, 1)
    before = copy.deepcopy(layer)
    with torch.no_grad():
        layer.weight += torch.tensor([[0.5, -0.25]])
    mechanism = clean(3)
    np.testing.assert_allclose(
        sent(encode_update(layer, before, mechanism), mechanism),
        [0.5, -0.25, 0],
        atol=1e-6,
    )
    with pytest.raises(
        ValueError, match="before must have the trainable parameters of model"
    ):
        encode_update(layer, nn.Linear(1, 2), mechanism)


def test_a_mean_update_is_applied_by_any_optimizer():
    layer = nn.Linear(2, 1, dtype=torch.float64)
    start = nn.utils.parameters_to_vector(layer.parameters()).detach()
    set_gradients(layer, -np.array([1.0, 2.0, 3.0]))
    torch.optim.SGD(layer.parameters(), lr=1.0).step()
    after = nn.utils.parameters_to_vector(layer.parameters()).detach()
    np.testing.assert_allclose(after, start + torch.tensor([1, 2, 3]))
    with pytest.raises(ValueError, match=r"shape \(3,\), got \(4,\)"):
        set_gradients(layer, np.ones(4))


def test_a_mechanism_takes_tensors_where_that_is_exact():
    rows = [[1.0, 0.0, -2.0], [0.5, 0.25, 4.0]]
    for kind in (torch.float32, torch.float16):
        np.testing.assert_array_equal(as_vectors(torch.tensor(rows, dtype=kind)), rows)
    for tensor in (
        torch.ones(3, requires_grad=True),
        torch.ones(3, dtype=torch.bfloat16),
    ):
        with pytest.raises(ValueError, match=r"pass X\.detach\(\)"):
            as_vectors(tensor)
