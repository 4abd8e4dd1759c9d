import numpy as np
import pytest
import torch
from torch import nn

import sstq
from sstq.integrations.torch import (
    encode_gradients,
    encode_update,
    set_gradients,
    trainable_parameters,
)
from sstq.messages.arrays import as_vectors


def clean(dim, clip=100.0):
    """Its message is the vector itself, so that one can see what would have been encoded."""
    return sstq.mechanism("clean", dim=dim, clip=clip)


def sent(messages, mechanism):
    return mechanism.decode(messages)[0]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_tensors_of_any_kind_go_there_and_back(dtype, seed):
    matrix = torch.randn(4, 3, generator=torch.Generator().manual_seed(seed)).to(dtype)
    tensors = [matrix.T.requires_grad_(), torch.tensor(2.5, dtype=dtype, requires_grad=True)]
    assert not tensors[0].is_contiguous()
    mechanism = clean(13)
    message = encode_update(tensors, [torch.zeros(3, 4), torch.zeros(())], mechanism)
    set_gradients(tensors, sent(message, mechanism))
    for tensor in tensors:
        assert tensor.grad.dtype == dtype
        # Clean sends float32, and its clip is computed in it.
        torch.testing.assert_close(tensor.detach().float(), tensor.grad.float(), rtol=1e-6, atol=0)


def test_frozen_repeated_and_empty_parameters():
    shared, frozen, empty = torch.ones(2, requires_grad=True), torch.ones(5), torch.ones(0, 3, requires_grad=True)
    assert trainable_parameters([shared, frozen, empty, shared]) == [shared, empty]
    optimizer = torch.optim.SGD([{"params": [shared]}, {"params": []}, {"params": [empty]}], lr=0.1)
    assert trainable_parameters(optimizer) == [shared, empty]
    tied = nn.Sequential(nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False))
    tied[1].weight = tied[0].weight
    assert len(trainable_parameters(tied)) == 1


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
        trainable_parameters(source)


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
def test_what_is_not_finite_is_sent_as_zero(bad):
    parameter = torch.ones(3, requires_grad=True)
    parameter.grad = torch.tensor([1.0, bad, 2.0])
    # A seed shows that the bytes are those of the zero vector, so that nothing tells the two apart.
    private, zero = sstq.FrameUnit(3, 2.0), torch.zeros(3, requires_grad=True)
    expected = encode_gradients([zero], private, 1).to_bytes()
    assert encode_gradients([parameter], private, 1).to_bytes() == expected
    assert encode_update([zero], [torch.tensor([0.0, bad, 0.0])], private, 1).to_bytes() == expected


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
    for tensor in (torch.ones(3, requires_grad=True), torch.ones(3, dtype=torch.bfloat16)):
        with pytest.raises(ValueError, match=r"pass X\.detach\(\)"):
            as_vectors(tensor)
