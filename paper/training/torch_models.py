"""PyTorch modules as models of the federated loop, with the gradients of all clients from one vectorised call.

The flat vector has the trained parameters (``requires_grad``), in the order of
``module.named_parameters()``, each row by row; a parameter that is used twice occurs once. Frozen parameters and
buffers are constants of the model.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sstq.checks import check_number, check_option
from paper.training.identity import checksum
from paper.training.models import Evaluation

try:
    import torch
except ImportError as error:
    raise ImportError("PyTorch models need PyTorch: pip install 'sstq[torch]'") from error

from sstq.integrations.torch.layout import ParameterLayout
from sstq.integrations.torch.running_statistics import refuse_running_statistics

__all__ = ["TorchModel"]

Floats = NDArray[np.float32]
Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]

# Examples evaluated at a time: few enough for the activations of a convolutional network.
_EVALUATED_AT_A_TIME = 512


def _cross_entropy(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.cross_entropy(outputs, targets)


def _squared_error(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    # One output per example is (n, 1), the targets are (n,): their difference would be (n, n).
    return torch.nn.functional.mse_loss(outputs.reshape(targets.shape), targets.to(outputs.dtype))


_LOSSES: dict[str, Loss] = {"cross-entropy": _cross_entropy, "squared-error": _squared_error}


class TorchModel:
    """A PyTorch module as a flat vector of parameters.

    It computes in float32, on the device of the module's parameters, on a copy: the module itself is never changed, nor
    is PyTorch's global random state. Layers that keep running statistics of the examples (batch normalisation) are
    refused: the statistics are no part of the private message, and would leave with the model in clear. Any other
    buffer is a constant; PyTorch refuses to differentiate a forward pass that changes one in place.

    Gradients are taken in the mode the module is in, so with dropout if it is in training mode as modules are at first;
    its masks depend on `dropout_seed`, the parameters, the targets and `at_a_time` alone. Evaluation is in evaluation
    mode.

    Args:
        module: a function without arguments that builds the module, called again for every start, with its seed;
            or a module, whose own parameters are the start for every seed (it may be pre-trained). Frozen parameters
            that are built at random are those of seed 0.
        loss: "cross-entropy" for labels, "squared-error" for numbers, or a function of outputs and targets that returns
            the mean loss of the examples.
        input_shape: the shape of an example, such as (1, 28, 28); by default unchanged.
        at_a_time: how many clients' gradients are computed together, which bounds memory. 1 uses plain automatic
            differentiation, for modules that `torch.func.vmap` cannot take.
        dropout_seed: the seed of dropout and other randomness in the module.

    Examples:
        >>> import torch
        >>> model = TorchModel(lambda: torch.nn.Linear(4, 3))
        >>> model.dim, model.names
        (15, ('weight', 'bias'))
        >>> x, y = np.ones((5, 2, 4), dtype=np.float32), np.zeros((5, 2), dtype=np.int64)
        >>> model.gradients(model.initial(seed=1), x, y).shape
        (5, 15)
    """

    def __init__(
        self,
        module: torch.nn.Module | Callable[[], torch.nn.Module],
        *,
        loss: str | Loss = "cross-entropy",
        input_shape: tuple[int, ...] | None = None,
        at_a_time: int = 32,
        dropout_seed: int = 0,
    ) -> None:
        if not callable(loss):
            check_option("loss", loss, tuple(_LOSSES))
        self._loss: Loss = loss if callable(loss) else _LOSSES[loss]
        self._loss_name = getattr(loss, "__qualname__", type(loss).__qualname__) if callable(loss) else loss
        self._labels = loss == "cross-entropy"
        self._input_shape = None if input_shape is None else tuple(input_shape)
        self._at_a_time = check_number("at_a_time", at_a_time, 1, 2**31, integer=True)
        self._dropout_seed = check_number("dropout_seed", dropout_seed, 0, 2**63 - 1, integer=True)
        given = isinstance(module, torch.nn.Module)
        kept = copy.deepcopy(module) if given else module
        self._build: Callable[[], torch.nn.Module] = (lambda: copy.deepcopy(kept)) if given else kept
        self._module = _built(self._build, seed=0)
        refuse_running_statistics(self._module)
        self._layout = ParameterLayout.of(self._module)
        self._evaluated = copy.deepcopy(self._module).eval()
        self._device = next(parameter.device for parameter in _trained(self._module).values())

    @property
    def dim(self) -> int:
        """d, the number of trained parameters."""
        return self._layout.dim

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the parameters in the order of the vector."""
        return tuple(_trained(self._module))

    @property
    def layout(self) -> ParameterLayout:
        """The layout of the parameters in the vector."""
        return self._layout

    @property
    def description(self) -> str:
        """The module as PyTorch prints it, a checksum of its initial values, and all options.

        A custom loss function is described by its name.

        Examples:
            >>> import torch
            >>> model, other = TorchModel(lambda: torch.nn.Linear(4, 3)), TorchModel(lambda: torch.nn.Linear(2, 5))
            >>> model.dim == other.dim, model.description == other.description
            (True, False)
        """
        held = hashlib.sha256()
        for name, tensor in (*self._module.named_parameters(), *self._module.named_buffers()):
            held.update(f"{name} {checksum(tensor.detach().cpu().numpy())}\n".encode())
        modes = [name for name, layer in self._module.named_modules() if layer.training]
        held.update(repr((modes, self.names)).encode())
        options = (self._loss_name, self._input_shape, self._at_a_time, self._dropout_seed)
        return f"{self._module} {held.hexdigest()[:16]} {options}"

    def initial(self, seed: int) -> Floats:
        """Return the initial parameters, (d,): those of a module built from the seed, or of the given one."""
        vector: Floats = self._layout.flatten(list(_trained(_built(self._build, seed)).values()))
        return vector

    def gradients(self, parameters: Floats, x: Floats, y: NDArray[Any]) -> Floats:
        """Return the gradient of each client's mean loss, (clients, d)."""
        named = self._named(parameters)

        def client_loss(trained: dict[str, torch.Tensor], rows: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
            outputs = torch.func.functional_call(self._module, trained, (rows,))
            return self._loss(outputs, targets)

        gradient = torch.func.grad(client_loss)
        of_clients = torch.func.vmap(gradient, in_dims=(None, 0, 0), randomness="different")
        gradients = np.empty((len(x), self.dim), dtype=np.float32)
        with _seeded(self._seed_of(parameters, y), self._device):
            for start in range(0, len(x), self._at_a_time):
                part = slice(start, start + self._at_a_time)
                rows, targets = self._examples(x[part], 2), self._targets(y[part])
                if self._at_a_time == 1:
                    found = {name: g[None] for name, g in gradient(named, rows[0], targets[0]).items()}
                else:
                    found = of_clients(named, rows, targets)
                flat = torch.cat([found[name].flatten(1) for name in named], dim=1)
                gradients[part] = flat.cpu().numpy()
        return gradients

    def evaluate(self, parameters: Floats, x: Floats, y: NDArray[Any]) -> Evaluation:
        """Return the mean loss and, for "cross-entropy", the share of correct labels."""
        named, loss, right = self._named(parameters), 0.0, 0
        with torch.no_grad():
            for start in range(0, len(x), _EVALUATED_AT_A_TIME):
                part = slice(start, start + _EVALUATED_AT_A_TIME)
                rows, targets = self._examples(x[part], 1), self._targets(y[part])
                outputs = torch.func.functional_call(self._evaluated, named, (rows,))
                loss += float(self._loss(outputs, targets)) * len(rows)
                if self._labels:
                    right += int((outputs.argmax(dim=1) == targets).sum())
        return Evaluation(loss / len(x), right / len(x) if self._labels else None)

    def trained_module(self, parameters: Floats) -> torch.nn.Module:
        """Return a copy of the module with these parameters, in evaluation mode, to save or to use.

        Examples:
            >>> import torch
            >>> model = TorchModel(lambda: torch.nn.Linear(2, 1))
            >>> model.trained_module(np.ones(3, dtype=np.float32))(torch.ones(1, 2)).item()
            3.0
        """
        module = copy.deepcopy(self._evaluated)
        with torch.no_grad():
            for parameter, value in zip(_trained(module).values(), self._named(parameters).values(), strict=True):
                parameter.copy_(value)
        return module

    def _named(self, parameters: Floats) -> dict[str, torch.Tensor]:
        tensors = self._layout.unflatten(np.asarray(parameters, dtype=np.float32))
        return dict(zip(self.names, (tensor.to(self._device) for tensor in tensors), strict=True))

    def _examples(self, x: NDArray[Any], leading: int) -> torch.Tensor:
        shape = x.shape[leading:] if self._input_shape is None else self._input_shape
        return torch.from_numpy(np.array(x, dtype=np.float32)).reshape(*x.shape[:leading], *shape).to(self._device)

    def _targets(self, y: NDArray[Any]) -> torch.Tensor:
        whole = np.issubdtype(y.dtype, np.integer)
        return torch.from_numpy(np.array(y, dtype=np.int64 if whole else np.float32)).to(self._device)

    def _seed_of(self, parameters: Floats, y: NDArray[Any]) -> int:
        """A seed that differs between rounds and groups of clients, but is the same if a round is repeated."""
        digest = hashlib.sha256(self._dropout_seed.to_bytes(8, "little"))
        for numbers in (parameters, y):
            digest.update(np.ascontiguousarray(numbers).tobytes())
        return int.from_bytes(digest.digest()[:7], "little")


def _trained(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: parameter for name, parameter in module.named_parameters() if parameter.requires_grad}


def _built(build: Callable[[], Any], seed: int) -> torch.nn.Module:
    with _seeded(seed, torch.device("cpu")):
        module = build()
    if not isinstance(module, torch.nn.Module):
        raise ValueError(f"module must be or build a torch.nn.Module, got {type(module).__name__}")
    return module.float()


@contextmanager
def _seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Seed PyTorch's global generators within the block, and restore them afterwards."""
    with torch.random.fork_rng(devices=[] if device.type == "cpu" else [device], device_type=_kind(device)):
        torch.manual_seed(seed)
        yield


def _kind(device: torch.device) -> str:
    return "cuda" if device.type == "cpu" else str(device.type)
