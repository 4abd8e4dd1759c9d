"""Flower integration: one line on the client and one on the server make an app's training private.

`SstqMod` goes first in the list of mods of ``@app.train``: it encodes the client's update as one private message and
charges the node's ledger. `SstqStrategy` wraps any strategy: it asks for such messages, adds them up and gives the
inner strategy their mean.

Needs the extra: ``pip install 'sstq[flower]'``.
"""

try:
    import flwr as _flwr  # noqa: F401
except ImportError as error:
    raise ImportError(
        "sstq.integrations.flower needs Flower: pip install 'sstq[flower]'"
    ) from error

from sstq.integrations.flower.mod import SstqMod
from sstq.integrations.flower.strategy import SstqStrategy

__all__ = ["SstqMod", "SstqStrategy"]
