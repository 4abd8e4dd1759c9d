"""A small PyTorch network, as an example of the functions that `sstq train --model` accepts."""

from __future__ import annotations

try:
    import torch
except ImportError as error:
    raise ImportError("PyTorch networks need PyTorch: pip install 'sstq[torch]'") from error

__all__ = ["convolutional"]


def convolutional(shape: tuple[int, int, int], classes: int) -> torch.nn.Module:
    """Build two convolutions with group normalisation, averages over quarters of the image, and a linear layer.

    Args:
        shape: the shape of an image: channels, rows, columns.
        classes: the number of classes.

    Examples:
        >>> network = convolutional((1, 28, 28), classes=10)
        >>> network(torch.zeros(5, 1, 28, 28)).shape
        torch.Size([5, 10])
        >>> sum(parameter.numel() for parameter in network.parameters())
        1946
    """
    return torch.nn.Sequential(
        torch.nn.Conv2d(shape[0], 8, kernel_size=3, padding=1),
        torch.nn.GroupNorm(2, 8),
        torch.nn.ReLU(),
        torch.nn.Conv2d(8, 16, kernel_size=3, padding=1),
        torch.nn.GroupNorm(2, 16),
        torch.nn.ReLU(),
        torch.nn.AdaptiveAvgPool2d(2),
        torch.nn.Flatten(),
        torch.nn.Linear(4 * 16, classes),
    )
