"""A state larger than a piece, in a process of its own, whose memory is measured: `python -m benchmarks.pieces URL N`.

N messages on 2^16 frames are stored and folded a million at a time, and the state is saved to a file. At last it is
compared with that of one pass over all of them, which takes the memory that the collector must not take.
"""

import json
import resource
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import sqlalchemy as sa

import sstq
from sstq.service.database import pieces
from sstq.service.store import Store, Upload

STEP = 10**6
MECHANISM = sstq.FrameUnit(dim=20, epsilon=2.0, frames=1 << 16)


def body(step: int) -> bytes:
    """A million messages: every code occurs, so that random bytes are random messages."""
    return np.random.default_rng(step).bytes(STEP * MECHANISM.message_bits // 8)


def main(url: str, messages: int) -> None:
    """Print what was measured as JSON."""
    store, begun = Store(url), time.perf_counter()
    store.create("many", MECHANISM, "{}")
    with tempfile.TemporaryDirectory(prefix="sstq-pieces-") as folder:
        for step in range(messages // STEP):
            store.receive([Upload("many", step.to_bytes(16, "big"), STEP, body(step))])
            while store.fold("many"):
                pass
        path = Path(folder) / "state.npz"
        store.save_state("many", path)
        seconds = time.perf_counter() - begun
        memory = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        query = sa.select(sa.func.count(), sa.func.max(sa.func.length(pieces.c.sums)))
        count, largest = store.database.read(lambda connection: connection.execute(query).one())
        store.close()
        found, expected = MECHANISM.load_aggregator(path), MECHANISM.aggregator()
    for step in range(messages // STEP):
        expected.update(MECHANISM.messages_from_bytes(body(step), STEP))
    same = found.count == expected.count and np.array_equal(found.sums(), expected.sums())
    print(
        json.dumps(
            {
                "state": expected.sums().nbytes,
                "pieces": count,
                "largest": largest,
                "memory": memory,
                "seconds": seconds,
                "wrong": 0 if same else 1,
            }
        )
    )


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
