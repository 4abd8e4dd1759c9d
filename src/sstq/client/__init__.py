"""What a device runs: it fetches and checks a campaign, encodes vectors, seals messages, sends them and keeps a ledger.

Install it with ``pip install 'sstq[client]'``: `cryptography` besides the library itself, and no server or database.
"""

try:
    import cryptography  # noqa: F401
except ImportError as error:
    raise ImportError(
        "sstq.client needs cryptography: pip install 'sstq[client]'"
    ) from error

from sstq.client.campaigns import Campaign, Shuffling
from sstq.client.sending import Client, DeliveryError

__all__ = ["Campaign", "Client", "DeliveryError", "Shuffling"]
