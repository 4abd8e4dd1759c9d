"""The shuffler: it receives sealed messages, mixes those of many people, forwards them and deletes its copies.

It sees who sends and when, but not what. The collector sees what was sent, but not by whom.
"""

from sstq.service.settings import ShufflerSettings
from sstq.service.shuffler.app import create_shuffler_app, run_shuffler

__all__ = ["ShufflerSettings", "create_shuffler_app", "run_shuffler"]
