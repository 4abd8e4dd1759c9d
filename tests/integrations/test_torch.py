from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import sstq
from sstq.integrations.torch import (
    ParameterLayout,
    UpdateReport,
    encode_gradients,
    encode_update,
    set_gradients,
    trainable_parameters,
)

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
    private = sstq.FrameUnit(3, 2.0)
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
