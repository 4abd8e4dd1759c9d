"""Waiting for what must happen: a busy machine may take long, and only something that hangs takes `PATIENCE`."""

import os
import time

# Seconds. A mutant that lets a test wait in vain must be found before its tests are given up.
PATIENCE = float(os.environ.get("SSTQ_TEST_PATIENCE", "300"))


def until(condition):
    """What the condition returns, once that is true."""
    ends = time.monotonic() + PATIENCE
    while True:
        asked = time.monotonic()
        if found := condition():
            return found
        answered = time.monotonic()
        assert answered < ends, "waited in vain"
        # What is waited for needs the processor: asking takes a third of it at most.
        time.sleep(max(0.02, 2 * (answered - asked)))
