"""Adding messages to the exact state of an aggregator."""

from typing import Any

from sstq.kernels.target import compiled


@compiled
def add_messages(state: Any, index: Any, code: Any, increments: Any) -> None:
    """state[index[i]] += increments[code[i]] for every message i.

    state is int64 (N, 4) and increments int64 (M, 4), so that a message is one vector addition. All four sums are
    formed before the first is stored, or the compiler would have to fear that the store changes the next increment.
    """
    for i in range(index.size):
        row = index[i]
        increment = code[i]
        count = state[row, 0] + increments[increment, 0]
        first = state[row, 1] + increments[increment, 1]
        second = state[row, 2] + increments[increment, 2]
        third = state[row, 3] + increments[increment, 3]
        state[row, 0] = count
        state[row, 1] = first
        state[row, 2] = second
        state[row, 3] = third
