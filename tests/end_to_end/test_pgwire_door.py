"""The door: users, passwords, TLS, addresses. Real clients, a real certificate, a real liar."""

from __future__ import annotations

import shutil
import signal
import socket
import ssl
import struct
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID
from typer.testing import CliRunner

from headwater.adapter.pgwire import NotLoopback, WireServer
from headwater.adapter.pgwire import tls as wire_tls
from headwater.adapter.pgwire.users import UserList, new_verifier
from headwater.base.errors import InvalidUsage
from headwater.cli.main import app
from headwater.server.config import Address
from headwater.server.http import HttpServer
from tests.end_to_end.memory_backend import WAIT_SECONDS, Memory

pytestmark = [pytest.mark.server, pytest.mark.usefixtures("quiet")]

USERS = UserList({"alice": new_verifier("sesame ☃"), "bob": new_verifier("b")})


@contextmanager
def serving(memory: Memory, **options: Any) -> Iterator[WireServer]:
    with WireServer("127.0.0.1", 0, memory, **options) as running:
        yield running
    assert memory.sessions_open == 0


def connect(server: WireServer, **options: Any) -> psycopg.Connection[Any]:
    return psycopg.connect(
        port=server.port,
        connect_timeout=WAIT_SECONDS,
        autocommit=True,
        **{
            "host": server.host,
            "user": "alice",
            "password": "sesame ☃",
            "dbname": "headwater",
            **options,
        },
    )


def one(server: WireServer, **options: Any) -> Any:
    with connect(server, **options) as connection:
        return connection.execute("select one").fetchone()


@pytest.fixture(scope="module", params=["rsa", "ec"])
def certificate(request: pytest.FixtureRequest, tmp_path_factory: Any) -> tuple[Path, Path]:
    key: Any
    digest: Any
    if request.param == "rsa":
        key, digest = rsa.generate_private_key(65537, 2048), hashes.SHA256()
    else:
        key, digest = ec.generate_private_key(ec.SECP256R1()), hashes.SHA384()
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    others: list[x509.GeneralName] = [
        x509.DNSName("localhost"),
        x509.IPAddress(ip_address("127.0.0.1")),
    ]
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName(others), critical=False)
        .sign(key, digest)
    )
    folder: Path = tmp_path_factory.mktemp("certificate")
    plain = (Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (folder / "key.pem").write_bytes(key.private_bytes(*plain))
    (folder / "certificate.pem").write_bytes(made.public_bytes(Encoding.PEM))
    return folder / "certificate.pem", folder / "key.pem"


# --- users ----------------------------------------------------------------------------------------


def test_the_password_is_wanted_and_checked(memory: Memory) -> None:
    with serving(memory, users=USERS) as server:
        assert one(server) == (1,)
        assert one(server, user="bob", password="b") == (1,)
        for wrong in (
            {"password": "sesame"},
            {"password": "b"},
            {"user": "mallory"},
            {"user": "mallory", "password": "b"},
        ):
            with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
                one(server, **wrong)
        with pytest.raises(psycopg.OperationalError, match="no password supplied"):
            one(server, password="")
        assert one(server) == (1,)  # Those did not disturb anybody.
        with connect(server) as connection:
            assert connection.execute("select current_user").fetchone() == ("alice",)


def test_psql_with_a_password(memory: Memory) -> None:
    psql = shutil.which("psql")
    if psql is None:
        pytest.skip("psql is not on this machine (Debian: postgresql-client)")
    with serving(memory, users=USERS) as server:
        command = [psql, "-X", "-At", "-h", server.host, "-p", str(server.port), "-U", "bob",
                   "-d", "headwater", "-w", "-c", "select one"]  # fmt: skip
        for password, outcome in (("b", 0), ("c", 2)):
            done = subprocess.run(
                command, env={"PGPASSWORD": password}, timeout=WAIT_SECONDS,
                check=False, capture_output=True, text=True,
            )  # fmt: skip
            assert done.returncode == outcome, done.stderr


def test_an_address_others_can_reach_needs_users(memory: Memory) -> None:
    for host in ("0.0.0.0", "192.0.2.1", "example.org", "", "::"):
        for users in (None, UserList({})):
            with pytest.raises(NotLoopback) as refused:
                WireServer(host, 0, memory, users=users)
            assert "headwater user" in str(refused.value)
            assert "127.0.0.1" in str(refused.value)
    with WireServer("0.0.0.0", 0, memory, users=USERS) as server:
        assert one(server, host="127.0.0.1") == (1,)


@pytest.fixture
def own_signals() -> Iterator[None]:
    """`headwater serve` takes the signals of its process, which here is ours."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("own_signals")
def test_users_are_made_by_the_command_line(memory: Memory, tmp_path: Path) -> None:
    path = tmp_path / "users"
    run = CliRunner()
    made = run.invoke(app, ["user", "carol", "--users", str(path)], input="geheim\n")
    assert made.exit_code == 0, made.output
    assert "geheim" not in path.read_text() + made.output
    with serving(memory, users=UserList.of_file(path)) as server:
        assert one(server, user="carol", password="geheim") == (1,)
    assert run.invoke(app, ["user", "carol", "--users", str(path), "--remove"]).exit_code == 0
    assert len(UserList.of_file(path)) == 0
    for arguments, sentence in (
        (["user", "carol", "--users", str(path), "--remove"], "no user"),
        (["user", "carol", "--users", str(path)], "empty password"),
        (["serve", "--data", str(tmp_path / "d"), "--host", "0.0.0.0"], "headwater user NAME"),
        (["serve", "--data", str(tmp_path / "d"), "--tls-required"], "--tls-certificate"),
        (["serve", "--data", str(tmp_path / "d"), "--users", str(tmp_path / "no")], "users"),
    ):
        refused = run.invoke(app, arguments, input="\n")
        assert refused.exit_code != 0
        assert sentence in refused.output
    assert not (tmp_path / "d").exists()


# --- TLS ------------------------------------------------------------------------------------------


def test_encrypted_connections(memory: Memory, certificate: tuple[Path, Path]) -> None:
    with serving(memory, users=USERS, tls=wire_tls.of_files(*certificate)) as server:
        for options in (
            {"sslmode": "disable"},
            {"sslmode": "require"},
            {"sslmode": "verify-full", "sslrootcert": str(certificate[0])},
            {"sslmode": "require", "channel_binding": "require"},
            {"sslmode": "require", "channel_binding": "disable"},
        ):
            with connect(server, **options) as connection:
                assert connection.execute("select one").fetchone() == (1,)
                assert connection.pgconn.ssl_in_use == (options["sslmode"] != "disable")


def test_plain_connections_are_refused_when_told_so(
    memory: Memory, certificate: tuple[Path, Path]
) -> None:
    tls = wire_tls.of_files(*certificate, required=True)
    with serving(memory, tls=tls) as server:
        with pytest.raises(psycopg.OperationalError, match="encrypted connections only"):
            one(server, sslmode="disable")
        assert one(server, sslmode="prefer") == (1,)
        with connect(server, sslmode="require") as connection:
            connection.cancel_safe(timeout=WAIT_SECONDS)  # Encrypted too.


def test_stopping_while_a_refused_client_keeps_its_end_open(
    memory: Memory, certificate: tuple[Path, Path]
) -> None:
    tls = wire_tls.of_files(*certificate, required=True)
    with (
        serving(memory, tls=tls) as server,
        socket.create_connection((server.host, server.port), WAIT_SECONDS) as client,
    ):
        startup = struct.pack("!i", 196608) + b"user\0headwater\0\0"
        client.sendall(struct.pack("!i", len(startup) + 4) + startup)
        last_words = b"".join(iter(lambda: client.recv(1_000), b""))
        assert b"encrypted connections only" in last_words
        server.stop()  # Nothing can be said after the last words; it must not be tried.


def test_without_a_certificate_there_is_no_encryption(memory: Memory) -> None:
    with serving(memory) as server:
        with pytest.raises(psycopg.OperationalError, match="does not support SSL"):
            one(server, sslmode="require")
        assert one(server, sslmode="prefer") == (1,)


def test_much_data_over_tls_in_both_directions(
    memory: Memory, certificate: tuple[Path, Path]
) -> None:
    with (
        serving(memory, tls=wire_tls.of_files(*certificate)) as server,
        connect(server, sslmode="require") as connection,
    ):
        connection.execute("create table t (s text)")
        lines = b"".join(b"%07d%s\n" % (number, b"x" * 200) for number in range(20_000))
        with connection.cursor().copy("copy t from stdin") as copy:
            copy.write(lines)
        with connection.cursor().copy("copy t to stdout") as copy:
            assert b"".join(copy) == lines


def test_an_encrypted_client_that_does_not_read_is_left_behind(
    memory: Memory, certificate: tuple[Path, Path]
) -> None:
    memory.tables["t"] = pa.table({"s": ["x" * 10_000] * 20_000})
    trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    with serving(memory, tls=wire_tls.of_files(*certificate)) as server:
        plain = socket.create_connection((server.host, server.port), WAIT_SECONDS)
        plain.sendall(struct.pack("!ii", 8, 80877103))
        assert plain.recv(1) == b"S"
        with trusting.wrap_socket(plain) as client:
            startup = struct.pack("!i", 196608) + b"user\0headwater\0\0"
            query = b"select * from t\0"
            client.sendall(struct.pack("!i", len(startup) + 4) + startup)
            client.sendall(b"Q" + struct.pack("!i", len(query) + 4) + query)
            while memory.rows_given == 0:
                client.recv(100)
            server.stop()  # It returns, although nobody takes the rest.
    assert memory.streams_open == 0


def test_files_that_are_no_certificate_are_refused(
    certificate: tuple[Path, Path], tmp_path: Path
) -> None:
    rubbish = tmp_path / "rubbish"
    rubbish.write_text("rubbish")
    for pair in ((rubbish, certificate[1]), (certificate[0], rubbish), (rubbish / "no", rubbish)):
        with pytest.raises(InvalidUsage, match="PEM"):
            wire_tls.of_files(*pair)
    assert wire_tls.channel_of(b"\x30\x03abc") is None
    assert wire_tls.channel_of(b"") is None


# --- the console's port ---------------------------------------------------------------------------


def test_the_console_is_encrypted_with_the_same_certificate(certificate: tuple[Path, Path]) -> None:
    async def page(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"hello"})
        else:
            while True:  # Life of the server: nothing to do.
                message = await receive()
                await send({"type": f"{message['type']}.complete"})
                if message["type"] == "lifespan.shutdown":
                    return

    server = HttpServer(Address("127.0.0.1", 0), lambda: page, *certificate)
    server.start()
    try:
        trusted = ssl.create_default_context(cafile=str(certificate[0]))
        with urllib.request.urlopen(server.url, context=trusted) as answer:
            assert (answer.read(), server.url[:8]) == (b"hello", "https://")
    finally:
        server.stop()
