"""The option --set: arguments of mechanisms that have no option of their own."""

from __future__ import annotations

from typing import Any

from sstq.cli.usage import WrongUsage

__all__ = ["parse_settings"]


def parse_settings(texts: list[str], options: set[str]) -> dict[str, Any]:
    """Read ARGUMENT=VALUE pairs; values that look like numbers become numbers.

    Args:
        texts: the pairs.
        options: arguments that have their own option, which must be used instead.

    Examples:
        >>> parse_settings(["bits=2", "split=hemisphere"], set())
        {'bits': 2, 'split': 'hemisphere'}
    """
    settings: dict[str, Any] = {}
    for text in texts:
        argument, separator, value = text.partition("=")
        if not separator or not argument:
            raise WrongUsage(f"--set must be ARGUMENT=VALUE, got {text!r}")
        argument = argument.replace("-", "_")
        if argument in options:
            raise WrongUsage(f"--set {argument}: use --{argument.replace('_', '-')}")
        if argument in settings:
            raise WrongUsage(f"--set {argument} is given twice")
        settings[argument] = _number_or_word(value)
    return settings


def _number_or_word(text: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
