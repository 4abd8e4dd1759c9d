"""The time of a process: the system's clock, as long as it does not jump.

A clock that is wrong for a while must not close campaigns. So a jump ahead is refused until it has lasted an hour, a
process that starts long after the last hour that its database saw doubts the clock for an hour, and what closing
deletes waits for hours of service, which no clock can skip (`Store.purge`).
"""

import logging
import math
import time
from datetime import UTC, datetime

_JUMP_SECONDS, _LASTING_SECONDS = 300.0, 3600.0
_PLAUSIBLE_HOURS = 24

logger = logging.getLogger("sstq.service")


def steady() -> float:
    """The seconds since some moment; the machine's time may change, but not these."""
    # Linux counts the time that a machine was suspended in this one only.
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class Clock:
    """The time; a jump ahead of more than five minutes counts only after it has lasted an hour.

    So does a start more than a day after `last_hour`, the last hour that the database saw.
    """

    def __init__(self, last_hour: int | None = None) -> None:
        self._ahead = time.time() - steady()
        self._jumped: float | None = None
        self._doubted = -math.inf
        since = 0 if last_hour is None else self.hour() - last_hour
        if since > _PLAUSIBLE_HOURS:
            logger.warning("the clock is %d hours after the last start: nothing is deleted yet", since)
            self._doubted = steady() + _LASTING_SECONDS

    def now(self) -> datetime:
        """The time in UTC."""
        lasted = steady()
        ahead = time.time() - lasted
        if ahead - self._ahead > _JUMP_SECONDS:
            if self._jumped is None:
                self._jumped = lasted
                logger.warning("the system's clock has jumped by %d seconds: not followed yet", ahead - self._ahead)
            if lasted - self._jumped < _LASTING_SECONDS:
                return datetime.fromtimestamp(lasted + self._ahead, UTC)
        self._ahead, self._jumped = ahead, None
        return datetime.fromtimestamp(lasted + ahead, UTC)

    @property
    def doubtful(self) -> bool:
        """Whether the time may be wrong, so that nothing should be deleted because of it."""
        return steady() < self._doubted

    def hour(self) -> int:
        """The hours since 1970: no finer time is stored."""
        return int(self.now().timestamp()) // 3600
