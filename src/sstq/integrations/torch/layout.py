"""Converting a model's trainable parameters to one vector and back: which ones, and in which order."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

__all__ = ["ParameterLayout", "Parameters", "trainable_parameters"]

Parameters: TypeAlias = torch.nn.Module | torch.optim.Optimizer | Iterable[torch.Tensor]
"""A source of parameters: a module, an optimizer, or the tensors themselves."""


def trainable_parameters(source: Parameters) -> list[torch.Tensor]:
    """Return the trainable parameters in a fixed order, each once.

    Frozen parameters (``requires_grad`` is False) are left out, so nothing is sent for them and no noise reaches
    them. A parameter that is used in several places, or listed twice, counts once. All this is the model's structure
    and not its data, so clients and server agree on it.

    Args:
        source: a module, in the order of its ``parameters()``; an optimizer, in the order of its groups, of which some
            may be empty; or tensors, in their own order. Client and server must use the same one.

    Examples:
        >>> import torch
        >>> layer = torch.nn.Linear(3, 2)
        >>> layer.bias.requires_grad_(False).shape
        torch.Size([2])
        >>> [tuple(parameter.shape) for parameter in trainable_parameters([layer.weight, layer.bias, layer.weight])]
        [(2, 3)]
    """
    found = {id(parameter): parameter for parameter in _all(source) if parameter.requires_grad}
    for parameter in found.values():
        if not parameter.dtype.is_floating_point:
            raise ValueError(f"parameters must be real floating-point numbers, got one of dtype {parameter.dtype}")
    if not sum(parameter.numel() for parameter in found.values()):
        raise ValueError("parameters must hold at least one trainable number, got none (requires_grad is False?)")
    return list(found.values())


@dataclass(frozen=True)
class ParameterLayout:
    """The layout of tensors in a vector: one after the other, each row by row.

    Attributes:
        shapes: the shapes of the tensors, in order.

    Examples:
        >>> import torch
        >>> layout = ParameterLayout.of(torch.nn.Linear(3, 2))
        >>> layout.shapes, layout.dim
        (((2, 3), (2,)), 8)
        >>> vector = layout.flatten([torch.ones(2, 3), None])
        >>> vector
        array([1., 1., 1., 1., 1., 1., 0., 0.], dtype=float32)
        >>> [tuple(tensor.shape) for tensor in layout.unflatten(vector)]
        [(2, 3), (2,)]
    """

    shapes: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, parameters: Parameters) -> ParameterLayout:
        """Return the layout of the trainable parameters."""
        return cls(tuple(tuple(parameter.shape) for parameter in trainable_parameters(parameters)))

    @property
    def sizes(self) -> tuple[int, ...]:
        """The number of elements of each tensor; a scalar has 1."""
        return tuple(math.prod(shape) for shape in self.shapes)

    @property
    def dim(self) -> int:
        """The length of the vector."""
        return sum(self.sizes)

    def flatten(self, tensors: Sequence[torch.Tensor | None]) -> NDArray[Any]:
        """Return the tensors as one new vector, float64 if any of them is and float32 otherwise; None means zeros.

        Tensors may be of any floating-point type, on any device, sparse, and not contiguous.
        """
        shapes = tuple(None if tensor is None else tuple(tensor.shape) for tensor in tensors)
        if len(shapes) != len(self.shapes) or any(
            found not in (None, expected) for found, expected in zip(shapes, self.shapes, strict=True)
        ):
            raise ValueError(f"tensors must have the shapes {self.shapes}, got {shapes}")
        wide = any(tensor is not None and tensor.dtype == torch.float64 for tensor in tensors)
        vector = np.zeros(self.dim, dtype=np.float64 if wide else np.float32)
        for tensor, place in zip(tensors, self._places(), strict=True):
            if tensor is not None:
                dense = tensor.detach().to_dense() if tensor.layout != torch.strided else tensor.detach()
                vector[place] = dense.to("cpu", torch.float64 if wide else torch.float32).reshape(-1).numpy()
        return vector

    def unflatten(self, vector: ArrayLike) -> list[torch.Tensor]:
        """Return the tensors of a vector, float64 if it is and float32 otherwise; they share no memory with it."""
        numbers = np.asarray(vector)
        if numbers.shape != (self.dim,):
            raise ValueError(f"vector must have shape ({self.dim},), got {numbers.shape}")
        copy = torch.from_numpy(numbers.astype(np.float64 if numbers.dtype == np.float64 else np.float32, copy=True))
        return [copy[place].reshape(shape) for place, shape in zip(self._places(), self.shapes, strict=True)]

    def _places(self) -> list[slice]:
        ends = np.cumsum(self.sizes).tolist()
        return [slice(end - size, end) for end, size in zip(ends, self.sizes, strict=True)]


def _all(source: Parameters) -> list[torch.Tensor]:
    if isinstance(source, torch.nn.Module):
        return list(source.parameters())
    if isinstance(source, torch.optim.Optimizer):
        return [parameter for group in source.param_groups for parameter in group["params"]]
    if isinstance(source, torch.Tensor):
        raise ValueError("parameters must be a module, an optimizer or several tensors, got one tensor")
    return list(source)
