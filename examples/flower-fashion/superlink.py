"""A SuperLink of one's own on a free port of this machine, and the `flwr` command for it."""

from __future__ import annotations

import json
import os
import ssl
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from certificates import make_certificates
from processes import NotAsExpectedError, Process, free_ports, stop, wait_until

APP = Path(__file__).resolve().parent
_CONNECTION = "example"  # how the command line calls this SuperLink


class SuperLink:
    """Starts a SuperLink, runs the app on it, and stops it.

    Args:
        folder: for all files. Whatever runs has a FLWR_HOME of its own there, as if on a machine of its own.
        timeout: seconds to wait for anything.
        simulation: whether the nodes are simulated. If not, they must come by TLS and prove who they are.
    """

    def __init__(self, folder: Path, timeout: float, *, simulation: bool) -> None:
        self.folder = folder
        self.timeout = timeout
        self._simulation = simulation
        self._process: Process | None = None
        self._commands: list[Process] = []
        (self.port,) = free_ports(1)

    @property
    def address(self) -> str:
        """Where nodes find it."""
        return f"127.0.0.1:{self.port}"

    @property
    def ca_certificate(self) -> Path:
        """What nodes need to know it."""
        return self.folder / "certificates" / "ca.crt"

    def start(self) -> None:
        """Start it, wait until it answers, and tell the `flwr` command where it is."""
        command = ["flower-superlink", "--host", "127.0.0.1", "--port", str(self.port)]
        command += ["--disable-runtime-dependency-installation"]
        connection: dict[str, Any] = {"address": self.address}
        if self._simulation:
            command += ["--simulation", "--insecure"]
            connection["insecure"] = True
        else:
            make_certificates(self.ca_certificate.parent)
            command += ["--ssl-ca-certfile", str(self.ca_certificate)]
            command += [
                "--ssl-certfile",
                str(self.ca_certificate.with_name("server.crt")),
            ]
            command += [
                "--ssl-keyfile",
                str(self.ca_certificate.with_name("server.key")),
            ]
            command += ["--enable-supernode-auth"]
            connection["root-certificates"] = str(self.ca_certificate)
        settings = "".join(
            f"{key} = {json.dumps(value)}\n" for key, value in connection.items()
        )
        (self._home("flwr") / "config.toml").write_text(
            f"[superlink.{_CONNECTION}]\n{settings}"
        )
        self._process = self.start_process("superlink", command)
        wait_until(
            "the SuperLink answers", self._answers, [self._process], self.timeout
        )

    def register(self, name: str, public_key: Path) -> None:
        """Allow the holder of the private key to take part."""
        self._flwr(
            "supernode", "register", str(public_key), _CONNECTION, "--name", name
        )

    def run(
        self,
        config: Mapping[str, Any],
        nodes: Sequence[Process] = (),
        simulated_nodes: int = 0,
    ) -> str:
        """Run the app to its end, showing its log; returns how it ended, by the word of the SuperLink.

        Args:
            config: changes of the run's configuration.
            nodes: what must not end before.
            simulated_nodes: how many, in a simulation.
        """
        command = [
            "flwr",
            "run",
            str(APP),
            _CONNECTION,
            "--stream",
            "--run-config",
            as_toml(config),
        ]
        if self._simulation:
            command += [
                "--federation-config",
                f"num-supernodes={simulated_nodes} client-resources-num-cpus=1",
            ]
        run = self.start_process("run", command, home="flwr")
        self._commands.append(run)
        shown = 0

        def ended() -> bool:
            nonlocal shown
            over = run.exit_code is not None
            text = run.text()
            sys.stdout.write(text[shown:])
            sys.stdout.flush()
            shown = len(text)
            return over

        wait_until(
            "the run has ended",
            ended,
            [*filter(None, [self._process]), *nodes],
            self.timeout,
        )
        if run.exit_code:
            raise NotAsExpectedError(
                f"flwr run failed (exit code {run.exit_code}); see {run.log}"
            )
        # Its exit code is 0 also when the app failed.
        listing = self._flwr("list", _CONNECTION, "--limit", "1", "--format", "json")
        (latest,) = json.loads(listing[listing.index("{") :])["runs"]
        return str(latest["status"])

    def stop(self) -> None:
        """Stop it, and with it a run that goes on."""
        stop([*self._commands, *filter(None, [self._process])])

    def start_process(
        self, name: str, command: Sequence[str], home: str | None = None
    ) -> Process:
        """Start one of Flower's programs with a home of its own (unless it shares another's), and show the command."""
        print("$", *command, flush=True)
        logs = self.folder / "logs"
        logs.mkdir(parents=True, exist_ok=True)
        return Process(name, command, self._environment(home or name), logs)

    def _flwr(self, *arguments: str) -> str:
        """What a `flwr` command prints."""
        process = self.start_process(
            "-".join(["flwr", *arguments[:2]]), ["flwr", *arguments], home="flwr"
        )
        self._commands.append(process)
        wait_until(
            "flwr has ended", lambda: process.exit_code is not None, [], self.timeout
        )
        if process.exit_code:
            raise NotAsExpectedError(f"flwr {arguments[0]} failed: {process.text()}")
        return process.text()

    def _answers(self) -> bool:
        scheme = "http" if self._simulation else "https"
        trust = (
            None
            if self._simulation
            else ssl.create_default_context(cafile=str(self.ca_certificate))
        )
        directly = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=trust)
        )
        try:
            with directly.open(f"{scheme}://{self.address}/health", timeout=5) as reply:
                return bool(reply.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    def _home(self, name: str) -> Path:
        home = self.folder / name / "home"
        home.mkdir(parents=True, exist_ok=True)
        return home

    def _environment(self, home: str) -> dict[str, str]:
        ours = {
            "FLWR_HOME": str(self._home(home)),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "PYTHONUNBUFFERED": "1",
            # Flower starts its own programs by name.
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
            # Not a Ray cluster that happens to be there already.
            "RAY_ADDRESS": "local",
            # A proxy is for the world outside.
            "NO_PROXY": "127.0.0.1",
            "no_proxy": "127.0.0.1",
        }
        return os.environ | ours


def as_toml(config: Mapping[str, Any]) -> str:
    """Return a configuration the way Flower's command lines want it: key=value, separated by blanks.

    Examples:
        >>> as_toml({"dataset": "digits", "epsilon": 3.0})
        'dataset="digits" epsilon=3.0'
    """
    return " ".join(f"{key}={json.dumps(value)}" for key, value in config.items())
