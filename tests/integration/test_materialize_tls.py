"""Connectors behind gRPC with TLS: who is trusted is served, who is not is told so."""

from __future__ import annotations

import datetime as dt
import ipaddress
import json
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from headwater.base.errors import InvalidUsage
from headwater.materialize.controller import Materializations
from headwater.materialize.definition import Binding
from headwater.materialize.drivers.sqlite import SqliteDriver
from headwater.materialize.options import InvalidOption
from headwater.materialize.options import endpoint as into
from headwater.materialize.protocol import messages as m
from headwater.materialize.transport import grpc_call
from headwater.materialize.transport.grpc_call import PeerFailed
from headwater.materialize.transport.grpc_server import GrpcServer
from headwater.materialize.transport.grpc_stream import GrpcStream
from headwater.materialize.transport.tls import ClientTls, ServerTls
from headwater.persist.client import open_location
from headwater.persist.evolution import updates_schema

pytestmark = pytest.mark.server

WAIT_SECONDS = 120.0
SCHEMA = pa.schema([pa.field("k", pa.int64()), pa.field("v", pa.string())])


@dataclass(frozen=True)
class Authority:
    """Somebody who signs."""

    folder: Path
    name: str

    def __post_init__(self) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        self._write(key, self._sign(self.name, key, self.name, key, authority=True), self.name)

    @property
    def ca(self) -> str:
        return str(self.folder / f"{self.name}.pem")

    def signed(self, name: str) -> tuple[str, str]:
        """Return the files of a certificate for 127.0.0.1, and of its key."""
        own = serialization.load_pem_private_key(
            (self.folder / f"{self.name}.key").read_bytes(), None
        )
        assert isinstance(own, ec.EllipticCurvePrivateKey)
        key = ec.generate_private_key(ec.SECP256R1())
        self._write(key, self._sign(name, key, self.name, own, authority=False), name)
        return str(self.folder / f"{name}.pem"), str(self.folder / f"{name}.key")

    def _sign(
        self,
        name: str,
        key: ec.EllipticCurvePrivateKey,
        issuer: str,
        by: ec.EllipticCurvePrivateKey,
        *,
        authority: bool,
    ) -> x509.Certificate:
        named = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        signer = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)])
        now = dt.datetime.now(dt.UTC)
        place = x509.SubjectAlternativeName(
            [x509.IPAddress(ipaddress.ip_address("127.0.0.1")), x509.DNSName(name)]
        )
        return (
            x509.CertificateBuilder(signer, named, key.public_key(), x509.random_serial_number())
            .not_valid_before(now - dt.timedelta(days=1))
            .not_valid_after(now + dt.timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
            .add_extension(place, critical=False)
            .sign(by, hashes.SHA256())
        )

    def _write(
        self, key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate, name: str
    ) -> None:
        pem = serialization.Encoding.PEM
        (self.folder / f"{name}.pem").write_bytes(certificate.public_bytes(pem))
        (self.folder / f"{name}.key").write_bytes(
            key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        )


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("ours"), "ours")


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("theirs"), "theirs")


@contextmanager
def _serving(tls: ServerTls) -> Iterator[str]:
    server = GrpcServer(SqliteDriver, "127.0.0.1:0", tls)
    try:
        yield f"127.0.0.1:{server.port}"
    finally:
        server.stop()


def _greeted(address: str, tls: ClientTls | None) -> None:
    stream = GrpcStream(address, tls=tls)
    try:
        stream.send(m.Spec())
        assert isinstance(stream.receive(), m.Specified)
        stream.end()
    finally:
        stream.abort()


def test_who_is_trusted_is_served_and_who_is_not_is_told(
    ours: Authority, theirs: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate, key = ours.signed("connector")
    client = ours.signed("runtime")
    stranger = theirs.signed("stranger")
    monkeypatch.setattr(grpc_call, "CONNECT_SECONDS", WAIT_SECONDS)
    with _serving(ServerTls(certificate, key)) as address:
        _greeted(address, ClientTls(ours.ca))
        _greeted(address, ClientTls(ours.ca, *client))
        _greeted(address, ClientTls(ours.ca, name="connector"))
        monkeypatch.setattr(grpc_call, "CONNECT_SECONDS", 0.1)
        for wrong in (ClientTls(theirs.ca), ClientTls("system"), ClientTls(ours.ca, name="else")):
            with pytest.raises(PeerFailed, match=r"cannot be reached: \S"):
                GrpcStream(address, tls=wrong)
        with pytest.raises(PeerFailed, match="cannot be reached"):
            GrpcStream(address)
    monkeypatch.setattr(grpc_call, "CONNECT_SECONDS", WAIT_SECONDS)
    with _serving(ServerTls(certificate, key, client_ca=ours.ca)) as address:
        _greeted(address, ClientTls(ours.ca, *client))
        # In TLS 1.3 a client hears after its own part is done that it was refused.
        monkeypatch.setattr(grpc_call, "CONNECT_SECONDS", 0.1)
        for refused in (ClientTls(ours.ca), ClientTls(ours.ca, *stranger)):
            with pytest.raises(PeerFailed):
                _greeted(address, refused)


def test_files_that_are_not_there_are_named(ours: Authority) -> None:
    with pytest.raises(InvalidUsage, match="cannot read the certificates to trust '/dev/null/x'"):
        ClientTls("/dev/null/x").credentials()
    with pytest.raises(InvalidUsage, match="give both"):
        ServerTls(ours.ca, "").credentials()


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"COMMAND": "x", "TLS_CA": "system"}, "only beside ENDPOINT"),
        ({"ENDPOINT": "h:1", "TLS_NAME": "n"}, "TLS_CA"),
        ({"ENDPOINT": "h:1", "TLS_CA": "c", "TLS_KEY": "k"}, "together"),
    ],
)
def test_options_that_do_not_go_together_are_refused(options: dict[str, str], told: str) -> None:
    with pytest.raises(InvalidOption, match=told):
        into("connector", options)


def test_a_materialization_through_a_connector_that_asks_for_a_certificate(
    ours: Authority, tmp_path: Path
) -> None:
    certificate, key = ours.signed("process")
    own, own_key = ours.signed("runtime")
    command = [sys.executable, "-m", "headwater", "connector", "sqlite", "--grpc", "127.0.0.1:0"]
    command += ["--tls-certificate", certificate, "--tls-key", key, "--tls-client-ca", ours.ca]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        port = json.loads(process.stderr.readline())["port"]
        options = {
            "ENDPOINT": f"127.0.0.1:{port}",
            "TLS_CA": ours.ca,
            "TLS_CERTIFICATE": own,
            "TLS_KEY": own_key,
            "CONFIG": json.dumps({"path": str(tmp_path / "e.db")}),
        }
        with open_location(tmp_path / "data") as client:
            write, read = client.create_or_load("c", SCHEMA, key=("k",))
            running = Materializations(client, retry_seconds=0.05)
            bindings = (Binding("c", read.id, "rows", ("k",)),)
            running.install("m", into("connector", options), bindings)
            found = running.get("m")
            assert found is not None
            columns = [[1], ["a"], [1], [1]]
            rows = pa.table(columns, schema=updates_schema(SCHEMA))
            write.compare_and_append(rows, 0, 2).result()
            deadline = time.monotonic() + WAIT_SECONDS
            while found.status.checkpoint != 2:
                assert time.monotonic() < deadline, found.status
                time.sleep(0.02)
            running.stop()
    finally:
        process.kill()
        process.communicate()
    with closing(sqlite3.connect(tmp_path / "e.db")) as db:
        assert db.execute("SELECT k, v FROM rows").fetchall() == [(1, "a")]
