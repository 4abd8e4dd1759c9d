"""Pictures of the demo and of training. Needs the [plots] extra."""

from paper.plots.digits import draw_digits
from paper.plots.training import draw_training

__all__ = ["draw_digits", "draw_training"]
