"""Spelling: strings as short rows of symbols, which a cohort can be asked about some at a time.

Symbol 0 is the end. Each letter of the alphabet is one symbol. Any other character is its bytes in UTF-8, of two
symbols each: an escape and one of the others. Every row of symbols is that of at most one string.
"""

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from sstq.checks import check_option
from sstq.studies.questions import require

END = 0
LETTERS = "abcdefghijklmnopqrstuvwxyz"
CASES = ("lower", "keep")
_MOST_LETTERS = 100


@dataclass(frozen=True)
class Spelling:
    """How strings are spelled.

    Attributes:
        alphabet: the letters that are one symbol.
        case: "lower" for strings in lower case, "keep" for strings as they are. Then they are normalised (NFC).

    Examples:
        >>> spelling = Spelling("abc")
        >>> spelling.symbols("cab"), spelling.symbols("é"), spelling.text(spelling.symbols("é"))
        ((3, 1, 2), (14, 16, 13, 8), 'é')
    """

    alphabet: str = LETTERS
    case: str = "lower"

    def __post_init__(self) -> None:
        check_option("case", self.case, CASES)
        fine = (
            isinstance(self.alphabet, str)
            and len(set(self.alphabet)) == len(self.alphabet) <= _MOST_LETTERS
        )
        require(
            fine,
            f"alphabet must be up to {_MOST_LETTERS} different letters, got {self.alphabet!r}",
        )
        kept = all(self.normalised(letter) == letter for letter in self.alphabet)
        require(
            kept,
            f"alphabet must be letters that normalisation keeps, got {self.alphabet!r}",
        )

    @cached_property
    def size(self) -> int:
        """The number of symbols: the end, the letters, and enough escapes for 256 bytes."""
        size = len(self.alphabet) + 2
        while (size - 1 - len(self.alphabet)) * (size - 1) < 256:
            size += 1
        return size

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {letter: number for number, letter in enumerate(self.alphabet, 1)}

    def normalised(self, value: Any) -> str | None:
        """Return a string as it is counted; None for what is no string, or has no UTF-8."""
        if not isinstance(value, str):
            return None
        text = unicodedata.normalize(
            "NFC", value.lower() if self.case == "lower" else value
        )
        # Half of a surrogate pair has no UTF-8.
        return None if any("\ud800" <= letter <= "\udfff" for letter in text) else text

    def symbols(self, text: str) -> tuple[int, ...]:
        """Return the symbols of a normalised string, without the end."""
        spelled: list[int] = []
        for letter in text:
            if letter in self._numbers:
                spelled.append(self._numbers[letter])
                continue
            for byte in letter.encode():
                escape, place = divmod(byte, self.size - 1)
                spelled += [1 + len(self.alphabet) + escape, 1 + place]
        return tuple(spelled)

    def text(self, symbols: Sequence[int]) -> str | None:
        """Return the string of symbols, up to the end; None if there is none."""
        end = list(symbols).index(END) if END in symbols else len(symbols)
        spelled = bytearray()
        rest = iter(symbols[:end])
        for symbol in rest:
            escape = symbol - 1 - len(self.alphabet)
            if escape < 0:
                spelled += self.alphabet[escape].encode()
            else:
                byte = escape * (self.size - 1) + next(rest, 1) - 1
                spelled.append(min(255, byte))
        text = spelled.decode(errors="replace")
        # Rows that spell nothing, or something in another way than devices do, are those of no string.
        is_spelled = self.normalised(text) == text and not any(symbols[end:])
        same = is_spelled and self.symbols(text) == tuple(symbols[:end])
        return text if same else None
