"""The shuffler: it takes sealed messages, mixes those of many people, forwards them to the collector and forgets them.

It sees who sends and when, but not what. The collector sees what, but not who.
"""

from sstq.service.shuffler.app import create_shuffler_app, run_shuffler
from sstq.service.shuffler.settings import ShufflerSettings

__all__ = ["ShufflerSettings", "create_shuffler_app", "run_shuffler"]
