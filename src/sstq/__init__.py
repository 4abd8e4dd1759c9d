"""Mean estimation of high-dimensional vectors under pure local differential privacy, in about 20 bits a client.

The public names are loaded on first use, so that `import sstq` and `sstq --help` answer at once.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sstq.aggregation import Aggregator as Aggregator
    from sstq.aggregation import Estimate as Estimate
    from sstq.codebooks import Codebook as Codebook
    from sstq.densities import Density as Density
    from sstq.frames import FourierFrame as FourierFrame
    from sstq.frames import HadamardFrame as HadamardFrame
    from sstq.frames import OrthogonalFrame as OrthogonalFrame
    from sstq.message_files import read_messages as read_messages
    from sstq.message_files import write_messages as write_messages
    from sstq.messages import Messages as Messages
    from sstq.schemes import SSTQ as SSTQ
    from sstq.schemes import ExpectedError as ExpectedError
    from sstq.schemes import LocalReport as LocalReport
    from sstq.schemes import Mechanism as Mechanism
    from sstq.schemes import from_json as from_json
    from sstq.schemes import mechanism as mechanism
    from sstq.schemes import mechanisms as mechanisms
    from sstq.schemes.frameunit_sums import FrameBiasWarning as FrameBiasWarning
    from sstq.streams import mix_seed as mix_seed

__version__ = "0.1.0"

_HOMES = {
    "Aggregator": "sstq.aggregation",
    "Codebook": "sstq.codebooks",
    "Density": "sstq.densities",
    "Estimate": "sstq.aggregation",
    "ExpectedError": "sstq.schemes",
    "FourierFrame": "sstq.frames",
    "FrameBiasWarning": "sstq.schemes.frameunit_sums",
    "HadamardFrame": "sstq.frames",
    "LocalReport": "sstq.schemes",
    "Mechanism": "sstq.schemes",
    "Messages": "sstq.messages",
    "OrthogonalFrame": "sstq.frames",
    "SSTQ": "sstq.schemes",
    "from_json": "sstq.schemes",
    "mechanism": "sstq.schemes",
    "mechanisms": "sstq.schemes",
    "mix_seed": "sstq.streams",
    "read_messages": "sstq.message_files",
    "write_messages": "sstq.message_files",
}

__all__ = [*_HOMES]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        value = getattr(import_module(_HOMES[name]), name)
        globals()[name] = value
        return value
    # Submodules, too, so that sstq.kashin works after `import sstq` alone.
    if not name.startswith("_") and find_spec(f"sstq.{name}") is not None:
        return import_module(f"sstq.{name}")
    raise AttributeError(f"module 'sstq' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
