"""Waiting for what must happen: a busy machine may take long, and only something that hangs takes `PATIENCE`."""

import time

PATIENCE = 300.0  # seconds


def until(condition):
    """What the condition returns, once that is true."""
    ends = time.monotonic() + PATIENCE
    while not (found := condition()):
        assert time.monotonic() < ends, "waited in vain"
        time.sleep(0.02)
    return found
