"""What a client makes of an address where no voicejobs service is, and of settings that cannot be sent."""

from pathlib import Path

import pytest

from tests.servers.http import HttpServer, Reply
from voicejobs.client.service import Service, segment
from voicejobs.client.uploads import Notes
from voicejobs.errors import AccessDenied, BadOption, NoSuchRecord, OutputUnwritable, ServerUnreachable
from voicejobs.settings import Settings

PAGE = {"Content-Type": "text/html; charset=utf-8"}


def service(url: str, tmp_path: Path, key: str = "", ca_file: str = "") -> Service:
    """Return a client that has no patience."""
    settings = Settings(tmp_path, tmp_path, server_url=url, server_key=key, server_ca_file=ca_file, server_wait_s=0.1)
    return Service(settings)


@pytest.mark.parametrize(
    "reply",
    [
        Reply(200, b"<html>Welcome</html>", PAGE),
        Reply(200, b"", {"Content-Type": "application/json"}),
        Reply(200, b"[1, 2]"),
        Reply(200, b"null"),
        Reply(200, b'{"x":'),
        Reply(200, bytes(range(256)), {"Content-Type": "application/octet-stream"}),
        Reply(200, b'{"hello": 1}'),
        Reply(301, b"", {"Location": "https://voice.example.org/"}),
    ],
)
def test_what_is_no_service_is_named(reply: Reply, tmp_path: Path) -> None:
    """A page, no JSON, JSON of another kind, and a redirect are told as a wrong address, and never as our fault."""
    with (
        HttpServer(lambda request: reply) as server,
        service(server.url, tmp_path) as client,
        pytest.raises(BadOption) as caught,
    ):
        assert client.get("/api/v1/jobs/job_1")["status"]
    assert "--server" in caught.value.hint


def test_a_page_is_never_taken_for_a_text(tmp_path: Path) -> None:
    """What a proxy answers in place of the service is not written as a transcript."""
    with (
        HttpServer(lambda request: Reply(200, b"<html>Log in</html>", PAGE)) as server,
        service(server.url, tmp_path) as client,
        pytest.raises(BadOption, match="web page"),
    ):
        client.send("GET", "/api/v1/jobs/job_1/transcript.srt")


def test_an_answer_that_cannot_be_unpacked_is_no_answer(tmp_path: Path) -> None:
    """A body that is not encoded as its header says counts as a service that is away."""
    with (
        HttpServer(lambda request: Reply(200, b"no gzip", {"Content-Encoding": "gzip"})) as server,
        service(server.url, tmp_path) as client,
        pytest.raises(ServerUnreachable),
    ):
        client.get("/x")


def test_tls_where_none_is_spoken_is_told(tmp_path: Path) -> None:
    """The hint says what to write instead."""
    with (
        HttpServer(lambda request: Reply(200, b"{}")) as server,
        service(server.url.replace("http:", "https:"), tmp_path) as client,
        pytest.raises(ServerUnreachable) as caught,
    ):
        client.get("/x")
    assert "http://" in caught.value.hint


@pytest.mark.parametrize(
    "url",
    [
        "http://me:secret@127.0.0.1:8000", "http://127.0.0.1:99999", "http://127.0.0.1:0", "http://127.0.0.1:x",
        "http://", "http://[::1", "http://127.0.0.1:8000/?a=secret", "http://127.0.0.1:8000/#secret",
        "http://127.0.0.1:8000/v1", "http://127.0.0.1:8000/api/v1/", "http://a\nb", "http://a b", "http://\u00fc.example",
    ],
)  # fmt: skip
def test_an_address_with_more_or_less_is_refused(url: str, tmp_path: Path) -> None:
    """A port that is none, a user, a query, and the paths of interfaces are refused; no password is repeated."""
    with pytest.raises(BadOption) as caught:
        service(url, tmp_path)
    assert caught.value.hint
    assert "secret" not in caught.value.message


def test_a_missing_key_is_told_by_its_setting(tmp_path: Path) -> None:
    """Whoever types commands sends no headers, whatever the service says of them."""
    body = b'{"code": "key_needed", "detail": "a key is needed", "hint": "Send one: Authorization: Bearer KEY."}'
    with (
        HttpServer(lambda request: Reply(401, body)) as server,
        service(server.url, tmp_path) as client,
        pytest.raises(AccessDenied) as caught,
    ):
        client.get("/x")
    assert "VOICEJOBS_SERVER_KEY" in caught.value.hint


@pytest.mark.parametrize("key", ["vj_live\nx", "vj live", "vj_l\u00efve", "\u00a0"])
def test_a_key_that_no_header_holds_is_refused(key: str, tmp_path: Path) -> None:
    """The setting is named, and the key is not repeated."""
    with pytest.raises(BadOption, match="VOICEJOBS_SERVER_KEY") as caught:
        service("http://127.0.0.1:9", tmp_path, key)
    assert key not in f"{caught.value.message} {caught.value.hint}"


def test_certificates_that_are_none_are_named(tmp_path: Path) -> None:
    """A file that is away, and one without a certificate, are told with the setting and the path."""
    junk = tmp_path / "junk.pem"
    junk.write_text("no certificate")
    for path in (junk, tmp_path / "away.pem"):
        with pytest.raises(BadOption, match="VOICEJOBS_SERVER_CA_FILE") as caught:
            service("https://127.0.0.1:9", tmp_path, ca_file=str(path))
        assert str(path) in caught.value.message


@pytest.mark.parametrize("identity", ["", ".", "..", "../keys", "a/b", "a?b", "a#b", "a b", "a\nb", "%2e%2e", "\u00fc"])
def test_an_id_leads_nowhere_else(identity: str) -> None:
    """What would change the path of a request is no id."""
    with pytest.raises(NoSuchRecord):
        segment(identity)
    assert segment("job_019ac3f0e5a87c21b4de1f60a1b2c3d4")


def test_a_place_where_nothing_can_be_noted_is_named(tmp_path: Path) -> None:
    """A file where the folder of notes should be is told with its path."""
    (tmp_path / "uploads").touch()
    with pytest.raises(OutputUnwritable, match="uploads"):
        Notes(tmp_path / "uploads", "http://x").write("ab", file="file_1")
