"""Make what a deployment needs: a certificate for the SuperLink, and a pair of keys for each SuperNode.

    python certificates.py FOLDER --nodes 3 --host superlink.example.org

Needs `cryptography`, which Flower brings along.
"""

from __future__ import annotations

import argparse
import ipaddress
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

LOOPBACK = ("localhost", "127.0.0.1", "::1")


def make_certificates(
    folder: Path, hosts: tuple[str, ...] = (), days: int = 365
) -> None:
    """Write ca.crt, server.crt and server.key: an authority, and the certificate that it gives the SuperLink.

    The authority's own key is not kept, so nobody can make a second certificate that the nodes would trust. Its price:
    a renewal means a new ca.crt on every node.

    Args:
        folder: is made if missing.
        hosts: names and addresses of the SuperLink, beside those of this machine itself. SuperLink's own processes
            reach it by 127.0.0.1, so that one is always in the certificate.
        days: until they expire.
    """
    folder.mkdir(parents=True, exist_ok=True)
    authority_key = ec.generate_private_key(ec.SECP384R1())
    server_key = ec.generate_private_key(ec.SECP384R1())
    authority_name = _name("flower-fashion authority")
    identifier = x509.SubjectKeyIdentifier.from_public_key(authority_key.public_key())
    authority = (
        _builder(authority_name, authority_name, authority_key.public_key(), days)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(identifier, critical=False)
        .sign(authority_key, hashes.SHA384())
    )
    server = (
        _builder(
            _name("flower-fashion SuperLink"),
            authority_name,
            server_key.public_key(),
            days,
        )
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(
            x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False
        )
        .add_extension(
            x509.SubjectAlternativeName([_host(name) for name in (*hosts, *LOOPBACK)]),
            critical=False,
        )
        .add_extension(
            x509.SubjectKeyIdentifier.from_public_key(server_key.public_key()),
            critical=False,
        )
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier),
            critical=False,
        )
        .sign(authority_key, hashes.SHA384())
    )
    (folder / "ca.crt").write_bytes(authority.public_bytes(serialization.Encoding.PEM))
    (folder / "server.crt").write_bytes(server.public_bytes(serialization.Encoding.PEM))
    _write_secret(
        folder / "server.key",
        _private_bytes(server_key, serialization.PrivateFormat.PKCS8),
    )


def make_node_key(path: Path) -> None:
    """Write a SuperNode's private key, and beside it the public one (.pub) that is registered with the SuperLink."""
    path.parent.mkdir(parents=True, exist_ok=True)
    key = ec.generate_private_key(ec.SECP384R1())
    _write_secret(path, _private_bytes(key, serialization.PrivateFormat.OpenSSH))
    public = key.public_key().public_bytes(
        serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    )
    path.with_name(f"{path.name}.pub").write_bytes(public + b"\n")


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, days: int
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        # clocks of other machines may be a little behind
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=days))
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _host(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _private_bytes(
    key: ec.EllipticCurvePrivateKey, form: serialization.PrivateFormat
) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, form, serialization.NoEncryption()
    )


def _write_secret(path: Path, content: bytes) -> None:
    """Write a file that only its owner may read, from its first byte on."""
    path.unlink(missing_ok=True)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)


def main() -> None:
    """Make the files that the command line asks for."""
    parser = argparse.ArgumentParser(
        description="Make the SuperLink's certificate and the SuperNodes' keys."
    )
    parser.add_argument("folder", type=Path, help="where to; made if missing")
    parser.add_argument(
        "--nodes", type=int, default=3, help="how many pairs of keys (default: 3)"
    )
    parser.add_argument(
        "--host",
        action="append",
        default=[],
        help="a name or address of the SuperLink; repeatable",
    )
    parser.add_argument(
        "--days",
        type=int,
        default=365,
        help="until the certificates expire (default: 365)",
    )
    arguments = parser.parse_args()
    make_certificates(arguments.folder, tuple(arguments.host), arguments.days)
    for number in range(1, arguments.nodes + 1):
        make_node_key(arguments.folder / f"node-{number}")
    for path in sorted(arguments.folder.iterdir()):
        print(path)


if __name__ == "__main__":
    main()
