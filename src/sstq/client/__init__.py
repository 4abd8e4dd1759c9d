"""What a device runs: it fetches and checks a campaign, encodes vectors, seals messages, sends them and keeps a ledger.

Install it with ``pip install 'sstq[client]'``: `cryptography` besides the library itself, and no server or database.
"""

from sstq.client.campaigns import Campaign, Shuffling
from sstq.client.sending import Client, DeliveryError

__all__ = ["Campaign", "Client", "DeliveryError", "Shuffling"]
