"""Run the notebooks of the documentation and keep what they print: python -m tests.notebooks"""

from pathlib import Path

import nbformat
from nbclient import NotebookClient

from tests.patience import PATIENCE

NOTEBOOKS = sorted((Path(__file__).parents[1] / "docs" / "notebooks").glob("*.ipynb"))


def run(path: Path, folder: Path) -> nbformat.NotebookNode:
    """The notebook with fresh outputs; it works in `folder`. CellExecutionError if a cell fails."""
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(
        notebook, timeout=PATIENCE, resources={"metadata": {"path": str(folder)}}
    ).execute()
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)  # times: they would change with every run
    return notebook


if __name__ == "__main__":
    import tempfile

    for path in NOTEBOOKS:
        with tempfile.TemporaryDirectory() as folder:
            nbformat.write(run(path, Path(folder)), path)
        print(path.name)  # noqa: T201
