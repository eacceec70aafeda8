"""SCRAM-SHA-256 against the example of RFC 7677, PostgreSQL's verifiers, and liars."""

from __future__ import annotations

import base64
import hashlib
import hmac
from pathlib import Path

import pytest

from headwater.adapter.errors import ProtocolError
from headwater.adapter.pgwire.scram import (
    Exchange,
    InvalidVerifier,
    NotProved,
    Verifier,
    mock_verifier,
    prepared,
)
from headwater.adapter.pgwire.users import UserList, new_verifier, read_users, write_users
from headwater.base.errors import InvalidUsage

SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
SERVER_NONCE = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
CLIENT_FIRST = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
CLIENT_FINAL = (
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
    b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
)


def test_the_example_of_the_rfc() -> None:
    exchange = Exchange(Verifier.of_password("pencil", SALT), SERVER_NONCE)
    assert exchange.first(CLIENT_FIRST) == (
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    )
    assert exchange.final(CLIENT_FINAL) == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def test_another_password_or_a_changed_message_is_no_proof() -> None:
    wrong = Exchange(Verifier.of_password("pencils", SALT), SERVER_NONCE)
    wrong.first(CLIENT_FIRST)
    with pytest.raises(NotProved):
        wrong.final(CLIENT_FINAL)
    for changed in (
        CLIENT_FINAL.replace(b"dHzb", b"dHzc"),
        CLIENT_FINAL.replace(b"rOpr", b"rOps"),
    ):
        exchange = Exchange(Verifier.of_password("pencil", SALT), SERVER_NONCE)
        exchange.first(CLIENT_FIRST)
        with pytest.raises(NotProved):
            exchange.final(changed)


@pytest.mark.parametrize(
    "first",
    [
        b"",
        b"n,,",
        b"n,a=admin,n=,r=x",
        b"n,,n=user",
        b"n,,r=x,n=user",
        b"n,,n=u,r=",
        b"n,,n=u,r=\x01",
        b"p=tls-unique,,n=,r=x",
        b"z,,n=,r=x",
        b"\xff",
    ],
)
def test_malformed_first_messages(first: bytes) -> None:
    with pytest.raises(ProtocolError):
        Exchange(Verifier.of_password("pencil", SALT, 1), "n").first(first)


@pytest.mark.parametrize(
    "final", [b"", b"c=biws", b"c=biws,r=xn,p=!", b"r=xn,c=biws,p=AAAA", b"c=eSws,r=xn,p=AAAA"]
)
def test_malformed_final_messages(final: bytes) -> None:
    exchange = Exchange(Verifier.of_password("pencil", SALT, 1), "n")
    exchange.first(b"n,,n=,r=x")
    with pytest.raises(ProtocolError):
        exchange.final(final)


def proof(password: str, first_bare: str, server_first: str, without_proof: str) -> str:
    """What a client computes, written once more from the RFC."""
    salt = base64.b64decode(server_first.split("s=")[1].split(",", maxsplit=1)[0])
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), salt, 4096)
    client_key = hmac.digest(salted, b"Client Key", "sha256")
    message = f"{first_bare},{server_first},{without_proof}".encode()
    signature = hmac.digest(hashlib.sha256(client_key).digest(), message, "sha256")
    mixed = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    return f"{without_proof},p={base64.b64encode(mixed).decode()}"


def test_the_channel_is_bound() -> None:
    channel = bytes(range(32))
    flag = "p=tls-server-end-point,,"
    for bound, proved in ((channel, True), (b"another" + channel[7:], False)):
        exchange = Exchange(new_verifier("x"), "server", channel=channel, plus_offered=True)
        server_first = exchange.first(f"{flag}n=,r=client".encode()).decode()
        binding = base64.b64encode(flag.encode() + bound).decode()
        final = proof("x", "n=,r=client", server_first, f"c={binding},r=clientserver")
        if proved:
            assert exchange.final(final.encode()).startswith(b"v=")
        else:
            with pytest.raises(ProtocolError):
                exchange.final(final.encode())


def test_a_client_that_was_told_there_is_no_channel_binding_is_refused() -> None:
    with pytest.raises(ProtocolError, match="negotiation"):
        Exchange(new_verifier("x"), "n", plus_offered=True).first(b"y,,n=,r=x")
    Exchange(new_verifier("x"), "n").first(b"y,,n=,r=x")  # There is none: it was told the truth.


def test_a_user_who_does_not_exist_has_always_the_same_salt_and_no_password() -> None:
    mock = mock_verifier(b"secret", "nobody")
    assert mock == mock_verifier(b"secret", "nobody")
    assert mock.salt != mock_verifier(b"secret", "somebody").salt
    assert mock.salt != mock_verifier(b"other", "nobody").salt
    assert (len(mock.salt), mock.iterations) == (16, new_verifier("x").iterations)


@pytest.mark.parametrize(
    ("password", "normal"),
    [
        ("plain", "plain"),
        ("I\u00adX", "IX"),
        ("\u00aa", "a"),
        ("a\u00a0b", "a b"),
        ("\u2168", "IX"),
        ("\u0627\u0031", "\u0627\u0031"),  # forbidden (right to left ending in a digit): as it is
        ("a\u0007\u00e9", "a\u0007\u00e9"),
    ],
)
def test_passwords_are_prepared_as_postgresql_does(password: str, normal: str) -> None:
    assert prepared(password) == normal


def test_a_verifier_has_postgresqls_text() -> None:
    kept = Verifier.of_password("pencil", SALT)
    assert str(kept) == (
        "SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ=="
        "$WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY="
        ":wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU="
    )
    assert Verifier.of_text(str(kept)) == kept
    assert "WG5d" not in repr(kept)
    for wrong in ("", "md5abc", "SCRAM-SHA-256$0:QQ==$QQ==:QQ==", str(kept)[:-8], "a$b$c"):
        with pytest.raises(InvalidVerifier):
            Verifier.of_text(wrong)


def test_users_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "users"
    kept = {"alice": new_verifier("a"), 'o"dd name': new_verifier("b")}
    write_users(path, kept)
    assert path.stat().st_mode & 0o077 == 0
    assert read_users(path) == kept
    assert UserList.of_file(path).verifier("alice") == kept["alice"]
    assert UserList.of_file(path).verifier("bob") is None
    for wrong in ("alice secret\n", '"a" "secret"\n', f'"a" "{kept["alice"]}"\n' * 2):
        path.write_text(wrong)
        with pytest.raises(InvalidUsage, match="line"):
            read_users(path)
    with pytest.raises(InvalidUsage, match="cannot be read"):
        read_users(tmp_path / "missing")
