"""Mean estimation of high-dimensional vectors under pure local differential privacy, in about 20 bits a client.

The public names are loaded on first use, so that `import sstq` and `sstq --help` answer at once.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sstq.aggregation import Aggregator as Aggregator
    from sstq.aggregation import Estimate as Estimate
    from sstq.frames.tight import FourierFrame as FourierFrame
    from sstq.frames.tight import HadamardFrame as HadamardFrame
    from sstq.frames.tight import OrthogonalFrame as OrthogonalFrame
    from sstq.mechanisms import SSTQ as SSTQ
    from sstq.mechanisms import ExpectedError as ExpectedError
    from sstq.mechanisms import LocalReport as LocalReport
    from sstq.mechanisms import Mechanism as Mechanism
    from sstq.mechanisms import from_json as from_json
    from sstq.mechanisms import mechanism as mechanism
    from sstq.mechanisms import mechanisms as mechanisms
    from sstq.mechanisms.frameunit.sums import FrameBiasWarning as FrameBiasWarning
    from sstq.messages.batch import Messages as Messages
    from sstq.messages.files import read_messages as read_messages
    from sstq.messages.files import write_messages as write_messages
    from sstq.randomness.streams import mix_seed as mix_seed
    from sstq.scalar.codebooks import Codebook as Codebook
    from sstq.scalar.densities import Density as Density

__version__ = "0.1.0"

_HOMES = {
    "Aggregator": "sstq.aggregation",
    "Codebook": "sstq.scalar.codebooks",
    "Density": "sstq.scalar.densities",
    "Estimate": "sstq.aggregation",
    "ExpectedError": "sstq.mechanisms",
    "FourierFrame": "sstq.frames.tight",
    "FrameBiasWarning": "sstq.mechanisms.frameunit.sums",
    "HadamardFrame": "sstq.frames.tight",
    "LocalReport": "sstq.mechanisms",
    "Mechanism": "sstq.mechanisms",
    "Messages": "sstq.messages.batch",
    "OrthogonalFrame": "sstq.frames.tight",
    "SSTQ": "sstq.mechanisms",
    "from_json": "sstq.mechanisms",
    "mechanism": "sstq.mechanisms",
    "mechanisms": "sstq.mechanisms",
    "mix_seed": "sstq.randomness.streams",
    "read_messages": "sstq.messages.files",
    "write_messages": "sstq.messages.files",
}

__all__ = [*_HOMES]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        value = getattr(import_module(_HOMES[name]), name)
        globals()[name] = value
        return value
    # Submodules, too, so that sstq.frames.kashin works after `import sstq` alone.
    if not name.startswith("_") and find_spec(f"sstq.{name}") is not None:
        return import_module(f"sstq.{name}")
    raise AttributeError(f"module 'sstq' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
