"""Opening files of object stores as if they were here: s3://, gs://, https:// and what fsspec knows."""

from typing import Any, BinaryIO, cast


def open_object(address: str) -> BinaryIO:
    """Open an object for reading, by pyarrow's own file systems or fsspec's; OSError if that is not possible."""
    try:
        import pyarrow
        from pyarrow import fs

        try:
            system, name = fs.FileSystem.from_uri(address)
        except (pyarrow.ArrowInvalid, pyarrow.ArrowNotImplementedError):
            from fsspec.core import url_to_fs

            other_system, name = url_to_fs(address)
            system = fs.PyFileSystem(fs.FSSpecHandler(other_system))
    except ImportError as error:
        raise ImportError(
            f"{address} needs pyarrow and fsspec: pip install 'sstq[data]' fsspec; {error}"
        ) from error
    return cast("BinaryIO", _Object(system.open_input_file(name), address))


class _Object:
    """An open object with the name that errors give."""

    def __init__(self, opened: Any, name: str) -> None:
        self._opened = opened
        self.name = name

    def __getattr__(self, attribute: str) -> Any:
        return getattr(self._opened, attribute)

    def __enter__(self) -> "_Object":
        return self

    def __exit__(self, *_: object) -> None:
        self._opened.close()
