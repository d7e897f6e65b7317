"""Keys, and which addresses may be served without protection."""

from pathlib import Path

import pytest

from voicejobs.errors import BadOption
from voicejobs.rpc.access import Keys, key_in
from voicejobs.rpc.engines import EnginePlan
from voicejobs.rpc.server import ServerOptions, Tls, check_exposure, is_public

LONG = "0123456789abcdef"


@pytest.mark.parametrize(
    ("address", "public"),
    [
        ("127.0.0.1:50051", False),
        ("127.8.8.8:1", False),
        ("localhost:0", False),
        ("[::1]:50051", False),
        ("unix:/run/x.sock", False),
        ("unix:relative.sock", False),
        ("0.0.0.0:50051", True),
        ("[::]:50051", True),
        ("10.0.0.1:50051", True),
        ("192.168.1.1:50051", True),
        ("[::ffff:10.0.0.1]:1", True),
        ("engine.example.org:50051", True),
        ("localhost.example.org:50051", True),
    ],
)
def test_only_loopback_and_unix_sockets_are_private(address: str, *, public: bool) -> None:
    """Whatever others may reach counts as public, names included."""
    assert is_public(address) is public


@pytest.mark.parametrize(
    "address",
    ["", "50051", ":50051", "localhost", "localhost:", "127.0.0.1:http", "127.0.0.1:65536", "127.0.0.1:\u0661"],
)
def test_what_is_no_address_is_refused(address: str) -> None:
    """An address has a host and a port in digits, 65535 at most."""
    with pytest.raises(BadOption):
        is_public(address)


@pytest.mark.parametrize(
    ("keys", "tls", "ca", "leave", "allowed"),
    [
        (False, False, False, False, False),
        (True, False, False, False, False),
        (False, True, False, False, False),
        (True, True, False, False, True),
        (False, True, True, False, True),
        (True, True, True, False, True),
        (False, False, False, True, True),
    ],
)
def test_a_public_address_needs_tls_and_a_way_to_know_clients(
    *, keys: bool, tls: bool, ca: bool, leave: bool, allowed: bool
) -> None:
    """TLS with keys or with certificates of clients protects; only an explicit option lets it be without."""
    files = Tls(Path("a"), Path("b"), Path("c") if ca else None) if tls else None
    options = ServerOptions(EnginePlan(), "0.0.0.0:1", tls=files, allow_public=leave)
    known = Keys(f"a={LONG}" if keys else "")
    if allowed:
        check_exposure(options, known)
    else:
        with pytest.raises(BadOption):
            check_exposure(options, known)
    check_exposure(ServerOptions(EnginePlan(), "127.0.0.1:1"), known)


def test_keys_are_found_by_their_hash() -> None:
    """Entries stand in lines or behind commas; comments and blanks say nothing; unknown keys have no name."""
    keys = Keys(f"# people\n alice={LONG}1 , bob={LONG}2\n\ncarol=sha256:{'0' * 64}\n")
    assert bool(keys)
    assert [keys.name_of(f"{LONG}{n}") for n in (1, 2, 3)] == ["alice", "bob", None]
    assert keys.name_of("") is None
    assert not Keys("# nobody\n")


@pytest.mark.parametrize(
    "text",
    ["short=secret", f"{LONG}{LONG}", "x=sha256:nothex", f"two words={LONG}", f"={LONG}", f"x=sha256:{'A' * 64}"],
)
def test_bad_keys_are_refused_and_not_shown(text: str) -> None:
    """A key without a name, too short, or with a broken hash is an error that does not repeat it."""
    with pytest.raises(BadOption) as refused:
        Keys(text)
    secret = text.partition("=")[2] or text
    assert secret not in f"{refused.value.message} {refused.value.hint}"


@pytest.mark.parametrize(
    ("metadata", "key"),
    [
        ((("authorization", "Bearer abc"),), "abc"),
        ((("authorization", "bearer  abc "),), "abc"),
        ((("authorization", "Basic abc"),), ""),
        ((("authorization", "abc"),), ""),
        ((("x-api-key", "abc"),), "abc"),
        ((("authorization", "Bearer "), ("x-api-key", "abc")), "abc"),
        ((("other", "abc"),), ""),
        ((), ""),
    ],
)
def test_keys_come_as_bearer_or_as_x_api_key(metadata: tuple[tuple[str, str], ...], key: str) -> None:
    """No other form is a key."""
    assert key_in(metadata) == key
