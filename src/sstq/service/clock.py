"""The time of a process: the system's clock, as long as it does not jump.

A clock that is wrong for a while must not close campaigns. So a jump ahead is refused until it has lasted an hour, also
if the process was started again meanwhile, and what closing deletes waits for hours of service, which no clock can skip
(`Store.purge`). The witness is the machine's steady clock. It starts anew with the machine, so a process on another
machine, or on one that was started again, doubts the time for an hour.
"""

import json
import logging
import math
import secrets
import time
from datetime import UTC, datetime
from pathlib import Path

_JUMP_SECONDS = 300.0
_LASTING_SECONDS = 3600.0
_MACHINE = Path("/proc/sys/kernel/random/boot_id")

logger = logging.getLogger("sstq.service")


def steady() -> float:
    """The seconds since some moment; the machine's time may change, but not these."""
    # Linux counts the time that a machine was suspended in this one only.
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


def machine() -> str:
    """A name of this machine until it is started again, for which `steady` goes on; a new one where there is none."""
    try:
        return _MACHINE.read_text(encoding="ascii").strip()
    except OSError:
        return secrets.token_hex(16)


class Clock:
    """The time; a jump ahead of more than five minutes in an hour counts only after it has lasted an hour.

    Args:
        witness: what `witness` of the last process said; None if there is nothing that a wrong time could harm.
    """

    def __init__(self, witness: bytes | None = None) -> None:
        self._machine = machine()
        self._anchored = steady()
        # The time beyond `steady` that nothing has spoken against.
        self._ahead = time.time() - self._anchored
        self._jumped: float | None = None
        self._doubted = -math.inf
        seen, ahead = (
            (self._machine, self._ahead) if witness is None else json.loads(witness)
        )
        if seen == self._machine:
            self._ahead = ahead
        else:
            logger.warning(
                "the machine was started since the last process: its clock is doubted for an hour"
            )
            self._doubted = self._anchored + _LASTING_SECONDS

    def now(self) -> datetime:
        """The time in UTC."""
        lasted = steady()
        ahead = time.time() - lasted
        if ahead - self._ahead > _JUMP_SECONDS:
            if self._jumped is None:
                self._jumped = lasted
                logger.warning(
                    "the system's clock has jumped by %d seconds: not followed yet",
                    ahead - self._ahead,
                )
            if lasted - self._jumped < _LASTING_SECONDS:
                return datetime.fromtimestamp(lasted + self._ahead, UTC)
            self._move(lasted, ahead)
        elif ahead < self._ahead or lasted - self._anchored >= _LASTING_SECONDS:
            # Not at every small step: many of them are a jump.
            self._move(lasted, ahead)
        self._jumped = None
        return datetime.fromtimestamp(lasted + ahead, UTC)

    def _move(self, lasted: float, ahead: float) -> None:
        self._anchored = lasted
        self._ahead = ahead

    @property
    def doubtful(self) -> bool:
        """Whether the time may be wrong, so that nothing should be closed for good or deleted because of it."""
        self.now()
        return steady() < self._doubted or self._jumped is not None

    @property
    def witness(self) -> bytes:
        """What the next process needs to know, unless the time is doubtful."""
        return json.dumps([self._machine, self._ahead]).encode()

    def hour(self) -> int:
        """The hours since 1970: no finer time is stored."""
        return int(self.now().timestamp()) // 3600
