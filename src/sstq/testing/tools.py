"""What the checks of mechanisms and studies share."""

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from sstq.mechanisms.base import Mechanism
from sstq.messages.batch import Messages


def run_check(check: Callable[..., Any], *given: Any, seed: int) -> Any:
    """Run a check; an AssertionError gets its name and the seed."""
    try:
        return check(*given, seed)
    except AssertionError as error:
        raise AssertionError(f"{check.__name__} (seed {seed}): {error}") from error


def require(condition: Any, problem: str) -> None:
    """An assert that optimized Python keeps, too."""
    if not condition:
        raise AssertionError(problem)


def raises(
    kind: type[Exception], call: Callable[..., Any], *given: Any, **options: Any
) -> None:
    """The call raises such an error."""
    try:
        call(*given, **options)
    except kind:
        return
    raise AssertionError(f"no {kind.__name__} for {f'{given} {options}'[:200]}")


def some_messages(mechanism: Mechanism, count: int, rng: Any = None) -> Messages:
    """Messages of so many people, who hold the same whatever the seed."""
    people = mechanism.input.trial(np.random.default_rng(count), count)
    return mechanism.encode(**people, rng=rng)


def require_alike(first: Mechanism, second: Mechanism, seed: int) -> None:
    """Both encode the same people to the same bytes."""
    same = (
        some_messages(first, 20, seed).to_bytes()
        == some_messages(second, 20, seed).to_bytes()
    )
    require(same, "both must encode alike")


def variant(mechanism: Mechanism, factor: float) -> Mechanism:
    """The mechanism with another clip, or with another ε if it has none."""
    option = "clip" if has_clip(mechanism) else "epsilon"
    return mechanism.replace(**{option: factor * getattr(mechanism, option)})


def has_clip(mechanism: Mechanism) -> bool:
    """Whether clip is one of its options."""
    return "clip" in inspect.signature(type(mechanism)).parameters
