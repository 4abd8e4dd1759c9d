"""The proxies of deploy/ as they are, but for addresses and a certificate of the tests."""

import datetime
import ipaddress
import shutil
import socket
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from tests.patience import until
from tests.service.serving import free_port

DEPLOY = Path(__file__).parents[2] / "deploy"
PROXIES = ("caddy", "nginx")


def is_installed(proxy: str) -> bool:
    """Whether Debian's package of this name, or another, is on this machine."""
    return shutil.which(proxy, path="/usr/sbin:/usr/bin:/usr/local/bin") is not None


def certificate(folder: Path) -> tuple[Path, Path]:
    """A certificate for 127.0.0.1 that signs itself, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name(
        [x509.NameAttribute(x509.NameOID.COMMON_NAME, "proxy of the tests")]
    )
    now = datetime.datetime.now(datetime.UTC)
    builder = x509.CertificateBuilder(
        name, name, key.public_key(), x509.random_serial_number()
    )
    builder = builder.not_valid_before(now - datetime.timedelta(hours=1))
    builder = builder.not_valid_after(now + datetime.timedelta(hours=9))
    host = x509.SubjectAlternativeName(
        [x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    )
    signed = builder.add_extension(host, critical=False).sign(key, hashes.SHA256())
    chain = folder / "chain.pem"
    secret = folder / "key.pem"
    chain.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    pem = serialization.PrivateFormat.PKCS8
    plain = serialization.NoEncryption()
    secret.write_bytes(key.private_bytes(serialization.Encoding.PEM, pem, plain))
    return chain, secret


@contextmanager
def proxied(
    proxy: str, upstream: str, folder: Path, changes: dict[str, str] | None = None
) -> Iterator[tuple[str, Path]]:
    """Run the proxy in front of an address such as 127.0.0.1:8080; yields its URL and the certificate to trust.

    `changes` are of its file.
    """
    port = free_port()
    folder.mkdir()
    chain, key = certificate(folder)
    if proxy == "caddy":
        own = {
            "\tservers": f"\tadmin off\n\tauto_https disable_redirects\n\tstorage file_system {folder}\n\tservers",
            "{$SSTQ_DOMAIN:collect.example} {": f"https://127.0.0.1:{port} {{\n\ttls {chain} {key}",
            "{$SSTQ_UPSTREAM:127.0.0.1:8080}": upstream,
        }
        name = "Caddyfile"
        command = [
            "caddy",
            "run",
            "--adapter",
            "caddyfile",
            "--config",
            str(folder / name),
        ]
    else:
        own = {
            "/run/nginx.pid": str(folder / "pid"),
            "/var/log/nginx/error.log": str(folder / "error.log"),
            "listen 443 ssl http2;": f"listen 127.0.0.1:{port} ssl http2;",
            "        listen [::]:443 ssl http2;\n": "",
            "/etc/ssl/collect/chain.pem": str(chain),
            "/etc/ssl/collect/key.pem": str(key),
            "127.0.0.1:8080": upstream,
        }
        name = "nginx.conf"
        command = [
            "/usr/sbin/nginx",
            "-c",
            str(folder / name),
            "-p",
            str(folder),
            "-g",
            "daemon off;",
        ]
    text = (DEPLOY / name).read_text()
    for old, new in (own | (changes or {})).items():
        assert old in text, old
        text = text.replace(old, new)
    (folder / name).write_text(text)
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            command,
            stdout=log,
            stderr=log,
            env={"HOME": str(folder), "PATH": "/usr/sbin:/usr/bin"},
        )
    try:
        until(lambda: _answers(port, chain) or process.poll() is not None)
        assert process.poll() is None, (folder / "log").read_text()
        yield f"https://127.0.0.1:{port}", chain
    finally:
        process.terminate()
        process.wait()


def _answers(port: int, chain: Path) -> bool:
    try:
        with (
            socket.create_connection(("127.0.0.1", port), 5) as line,
            ssl.create_default_context(cafile=str(chain)).wrap_socket(
                line, server_hostname="127.0.0.1"
            ),
        ):
            return True
    except OSError:
        return False
