"""The same network in PyTorch, whose parameters are a state dict."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from flwr.app import ArrayRecord
from torch import nn

from flower_fashion.data import Examples
from flower_fashion.task import Evaluation, batches


@dataclass(frozen=True)
class TorchNetwork:
    """One hidden layer of rectified units behind the interface of `task.Network`."""

    inputs: int
    hidden: int
    classes: int

    def initial(self, seed: int) -> ArrayRecord:
        """The parameters to start from: He's weights and biases of zero, as in NumPy."""
        generator = torch.Generator().manual_seed(seed)
        module = self._module()
        for layer in (module[0], module[2]):
            nn.init.kaiming_normal_(
                layer.weight, nonlinearity="relu", generator=generator
            )
            nn.init.zeros_(layer.bias)
        return ArrayRecord(module.state_dict())

    def fit(
        self,
        arrays: ArrayRecord,
        examples: Examples,
        config: Mapping[str, Any],
        seed: list[int],
    ) -> ArrayRecord:
        """The parameters after a few steps of gradient descent."""
        module = self._module(arrays)
        optimizer = torch.optim.SGD(module.parameters(), lr=float(config["local-rate"]))
        for images, labels in batches(examples, config, seed):
            optimizer.zero_grad()
            nn.functional.cross_entropy(
                module(torch.from_numpy(images)), torch.from_numpy(labels)
            ).backward()
            optimizer.step()
        return ArrayRecord(module.state_dict())

    def evaluate(self, arrays: ArrayRecord, examples: Examples) -> Evaluation:
        """Loss and accuracy."""
        labels = torch.from_numpy(examples.labels)
        with torch.no_grad():
            logits = self._module(arrays)(torch.from_numpy(examples.images))
            loss = float(nn.functional.cross_entropy(logits, labels))
        return Evaluation(
            loss, float(np.mean((logits.argmax(dim=1) == labels).numpy()))
        )

    def _module(self, arrays: ArrayRecord | None = None) -> nn.Sequential:
        module = nn.Sequential(
            nn.Linear(self.inputs, self.hidden),
            nn.ReLU(),
            nn.Linear(self.hidden, self.classes),
        )
        if arrays is not None:
            module.load_state_dict(arrays.to_torch_state_dict())
        return module


def make(inputs: int, hidden: int, classes: int) -> TorchNetwork:
    """Return the network for images of so many pixels."""
    return TorchNetwork(inputs, hidden, classes)
