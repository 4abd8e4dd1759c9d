"""Files with what people hold, for tests of commands."""

import csv

import numpy as np


def _field(value):
    """A value as a field of CSV."""
    if isinstance(value, list | tuple | np.ndarray):
        return ";".join(map(str, value)) or ";"
    return "" if value is None else value


def written(folder, held, kind):
    """Write what people hold to a file of this kind; returns it with the options that name what is beside it."""
    people = held["X"]
    path = folder / f"people.{kind}"
    options = []
    if "groups" in held:
        np.save(folder / "groups.npy", held["groups"])
        options = ["--private-group", folder / "groups.npy"]
    if isinstance(people, dict):
        count = len(next(iter(people.values())))
        # A column more than is asked for, and another order.
        columns = {"note": ["x"] * count} | dict(reversed(people.items()))
    else:
        columns = {
            f"c{place}": column
            for place, column in enumerate(
                np.reshape(people, (len(people), -1)).T.tolist()
            )
        }
    if kind == "npy":
        np.save(path, people)
    elif kind == "parquet":
        import pyarrow
        import pyarrow.parquet

        plain = {
            name: [cell.tolist() if hasattr(cell, "tolist") else cell for cell in cells]
            for name, cells in columns.items()
        }
        pyarrow.parquet.write_table(pyarrow.table(plain), path)
    else:
        with path.open("w", newline="") as file:
            rows = zip(*columns.values(), strict=True)
            csv.writer(file).writerows(
                [columns, *([_field(cell) for cell in row] for row in rows)]
            )
    return [path, *options]
