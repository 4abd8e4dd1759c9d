"""What a person holds: vectors, groups, categories or records, in arrays, tables and files.

Every mechanism has an `input`, which is one of these. Commands, the client and tests ask it, and never which kind of
mechanism they have.
"""

from sstq.inputs.base import Held, Input
from sstq.inputs.categories import Category
from sstq.inputs.people import People, Piece
from sstq.inputs.records import Column, Record
from sstq.inputs.reports import (
    ClippedWarning,
    LocalReport,
    LocalWarning,
    UnknownLabelWarning,
)
from sstq.inputs.vectors import GroupedVectors, Vectors

__all__ = [
    "Category",
    "ClippedWarning",
    "Column",
    "GroupedVectors",
    "Held",
    "Input",
    "LocalReport",
    "LocalWarning",
    "People",
    "Piece",
    "Record",
    "UnknownLabelWarning",
    "Vectors",
]
