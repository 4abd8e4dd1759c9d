"""Adding messages to an aggregator's exact state."""

from typing import Any


def add_messages(state: Any, index: Any, code: Any, increments: Any) -> None:
    """state[index[i]] += increments[code[i]] for every message i.

    A message is one vector addition. All four sums are formed before the first is stored: for all the compiler knows, a
    store may change the next increment.
    """
    for i in range(index.size):
        row, kind = index[i], code[i]
        a, b = state[row, 0] + increments[kind, 0], state[row, 1] + increments[kind, 1]
        c, d = state[row, 2] + increments[kind, 2], state[row, 3] + increments[kind, 3]
        state[row, 0], state[row, 1], state[row, 2], state[row, 3] = a, b, c, d
