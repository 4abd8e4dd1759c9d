"""The collection service: campaigns over HTTP, a database that loses nothing, estimates while messages arrive.

It needs ``pip install 'sstq[service]'``.
"""

from sstq.service.app import create_app, run
from sstq.service.campaigns import Campaign
from sstq.service.client import Client
from sstq.service.settings import Settings

__all__ = ["Campaign", "Client", "Settings", "create_app", "run"]
