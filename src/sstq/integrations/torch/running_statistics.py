"""Refusing layers that keep statistics of the examples, which are not private."""

from __future__ import annotations

import torch

__all__ = ["refuse_running_statistics"]


def refuse_running_statistics(module: torch.nn.Module) -> None:
    """Raise ValueError for PyTorch layers that keep running statistics, or send them to other machines.

    Batch normalisation stores the means and variances of the examples in buffers. They are no part of a private
    message: they would leave with the model in clear. In evaluation mode (``layer.eval()``) they are constants, and
    without them (``track_running_stats=False``) there is nothing to leave; both are allowed, as long as it is so:
    ``module.train()`` changes the mode of all layers, so call this again where they are used. ``SyncBatchNorm``, which
    sends statistics to other machines, is refused in any mode. Buffers that layers of your own write to are not found.

    Examples:
        >>> import torch
        >>> refuse_running_statistics(torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2)))
        Traceback (most recent call last):
        ...
        ValueError: layer '1' (BatchNorm1d) keeps running statistics of the examples, ...: use GroupNorm, or ...
        >>> refuse_running_statistics(torch.nn.GroupNorm(1, 2))
    """
    for name, layer in module.named_modules():
        if isinstance(layer, torch.nn.SyncBatchNorm):
            raise ValueError(
                f"layer {name!r} (SyncBatchNorm) sends statistics of the examples to other machines in clear as soon "
                "as it is in training mode: use GroupNorm"
            )
        if layer.training and getattr(layer, "track_running_stats", False):
            raise ValueError(
                f"layer {name!r} ({type(layer).__name__}) keeps running statistics of the examples, which are not "
                "private and would leave with the model in clear: use GroupNorm, or freeze the layer's statistics "
                "with .eval()"
            )
