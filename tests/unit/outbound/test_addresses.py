"""Addresses that somebody else names: only public ones are asked, in whatever spelling a private one comes."""

import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from tests.servers.http import HttpServer, Reply, Request
from voicejobs.errors import AddressRefused, AddressUnavailable, BadOption, SourceRefused, SourceTooLarge
from voicejobs.outbound.address import Policy, read_url
from voicejobs.outbound.fetch import Fetcher, Limits, retry_after_s
from voicejobs.settings import Settings

LIMITS = Limits(total_s=5.0, most_bytes=1 << 20)
SETTINGS = Settings(
    Path("/nowhere"),
    Path("/nowhere"),
    source_url_enabled=True,
    source_url_hosts="*",
    source_url_http=True,
    source_url_ports="*",
    webhook_http=True,
    webhook_ports="*",
)
PUBLIC = "93.184.215.14"


@dataclass
class Canary:
    """Listen on all loopback addresses at one port, and count who comes."""

    port: int = 0
    visits: list[object] = field(default_factory=list)

    def run(self, server: socket.socket) -> None:
        """Take connections until the socket is closed."""
        while True:
            try:
                connection, peer = server.accept()
            except OSError:
                return
            self.visits.append(peer)
            connection.close()


@pytest.fixture(scope="module")
def canary() -> Iterator[Canary]:
    """Return the canary of this module; it must never be visited."""
    found = Canary()
    with socket.create_server(("", 0), family=socket.AF_INET6, dualstack_ipv6=True) as server:
        found.port = server.getsockname()[1]
        thread = threading.Thread(target=found.run, args=(server,), daemon=True)
        thread.start()
        yield found
        server.shutdown(socket.SHUT_RDWR)
    thread.join(5)


# {p} stands for the port of the canary. All of these mean this machine, or its network, to some program.
SPELLINGS = [
    "http://127.0.0.1:{p}/",
    "http://127.0.0.1.:{p}/",
    "http://127.0.0.01:{p}/",
    "http://127.000.000.001:{p}/",
    "http://127.1:{p}/",
    "http://127.0.1:{p}/",
    "http://127.255.255.254:{p}/",
    "http://2130706433:{p}/",
    "http://02130706433:{p}/",
    "http://017700000001:{p}/",
    "http://0177.0.0.1:{p}/",
    "http://0177.0.0.01:{p}/",
    "http://0x7f000001:{p}/",
    "http://0x7f.0.0.1:{p}/",
    "http://0x7f.0x0.0x0.0x1:{p}/",
    "http://0X7F000001:{p}/",
    "http://127.0.0.0x1:{p}/",
    "http://127.0x1:{p}/",
    "http://4294967297:{p}/",
    "http://0:{p}/",
    "http://0.0.0.0:{p}/",
    "http://00:{p}/",
    "http://0x0:{p}/",
    "http://[::1]:{p}/",
    "http://[::]:{p}/",
    "http://[0:0:0:0:0:0:0:1]:{p}/",
    "http://[0000::0001]:{p}/",
    "http://[::ffff:127.0.0.1]:{p}/",
    "http://[::ffff:7f00:1]:{p}/",
    "http://[0:0:0:0:0:ffff:7f00:0001]:{p}/",
    "http://[::127.0.0.1]:{p}/",
    "http://[::7f00:1]:{p}/",
    "http://[64:ff9b::127.0.0.1]:{p}/",
    "http://[64:ff9b:1::7f00:1]:{p}/",
    "http://[2002:7f00:1::]:{p}/",
    "http://[2001:0:4136:e378:8000:63bf:80ff:fffe]:{p}/",
    "http://[fe80::5efe:127.0.0.1]:{p}/",
    "http://[2606:4700::5efe:7f00:1]:{p}/",
    "http://[::1%25lo]:{p}/",
    "http://[fe80::1%25eth0]:{p}/",
    "http://[fd00::1]:{p}/",
    "http://[fec0::1]:{p}/",
    "http://[ff02::1]:{p}/",
    "http://[::ffff:0:127.0.0.1]:{p}/",
    "http://[127.0.0.1]:{p}/",
    "http://[localhost]:{p}/",
    "http://::1:{p}/",
    "http://10.0.0.1:{p}/",
    "http://172.16.0.1:{p}/",
    "http://192.168.1.1:{p}/",
    "http://100.64.0.1:{p}/",
    "http://169.254.169.254:{p}/latest/meta-data/",
    "http://[fd00:ec2::254]:{p}/",
    "http://192.0.0.8:{p}/",
    "http://192.88.99.1:{p}/",
    "http://198.18.0.1:{p}/",
    "http://224.0.0.1:{p}/",
    "http://240.0.0.1:{p}/",
    "http://255.255.255.255:{p}/",
    "http://localhost:{p}/",
    "http://LOCALHOST:{p}/",
    "http://localhost.:{p}/",
    "http://user@127.0.0.1:{p}/",
    "http://example.org@127.0.0.1:{p}/",
    "http://example.org:80@127.0.0.1:{p}/",
    "http://127.0.0.1:{p}@example.org/",
    "http://127.0.0.1:{p}\\@example.org/",
    "http://example.org\\@127.0.0.1:{p}/",
    "http://127.0.0.1:{p}#@example.org/",
    "http://example.org#@127.0.0.1:{p}/",
    "http://127\u30020\u30020\u30021:{p}/",
    "http://127\uff0e0\uff0e0\uff0e1:{p}/",
    "http://127\uff610\uff610\uff611:{p}/",
    "http://\uff11\uff12\uff17.\uff10.\uff10.\uff11:{p}/",
    "http://\u2460\u2461\u2466.\u24ea.\u24ea.\u2460:{p}/",
    "http://\u24db\u24de\u24d2\u24d0\u24db\u24d7\u24de\u24e2\u24e3:{p}/",
    "http://127%2e0%2e0%2e1:{p}/",
    "http://%31%32%37.0.0.1:{p}/",
    "http://%6c%6f%63%61%6c%68%6f%73%74:{p}/",
    "http:127.0.0.1:{p}/",
    "http:/127.0.0.1:{p}/",
    "http:///127.0.0.1:{p}/",
    "http:\\\\127.0.0.1:{p}\\",
    "//127.0.0.1:{p}/",
    "127.0.0.1:{p}/",
    " http://127.0.0.1:{p}/",
    "http://127.0.0.1 :{p}/",
    "ht\ttp://127.0.0.1:{p}/",
    "http://127.0.0.1\n:{p}/",
    "http://127.0.0.1\r\nHost: x:{p}/",
    "http://127.0.0.1\x00.example.org:{p}/",
    "http://127.0.0.1,example.org:{p}/",
    "http://[::1]{p}/",
    "http://-127.0.0.1:{p}/",
    "http://.127.0.0.1:{p}/",
    "http://127..0.0.1:{p}/",
    "ftp://127.0.0.1:{p}/",
    "gopher://127.0.0.1:{p}/_",
    "file:///etc/hostname?{p}",
    "file://127.0.0.1:{p}/etc/hostname",
    "data:audio/wav,{p}",
    "unix:///tmp/{p}",
    "jar:http://127.0.0.1:{p}/!/",
    "httpx://127.0.0.1:{p}/",
]


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_no_spelling_of_a_private_address_is_asked(canary: Canary, spelling: str) -> None:
    """No spelling of this machine or its networks is asked, neither for a source nor as a webhook."""
    url = spelling.format(p=canary.port)
    with pytest.raises(AddressRefused), Fetcher(Policy.of_sources(SETTINGS)).download(url, LIMITS) as download:
        list(download.chunks)
    with pytest.raises(AddressRefused):
        Fetcher(Policy.of_webhooks(SETTINGS)).post(url, {}, b"{}", total_s=5)
    assert canary.visits == []


def test_the_canary_sings(canary: Canary) -> None:
    """The canary that nobody visited would have told of a visit, by either family of addresses."""
    for host in ("127.0.0.1", "::1"):
        with socket.create_connection((host, canary.port), timeout=5) as visitor:
            assert visitor.recv(1) == b""
    assert len(canary.visits) == 2
    canary.visits.clear()


@pytest.mark.parametrize(
    "found",
    [
        ["127.0.0.1"],
        [PUBLIC, "127.0.0.1"],
        ["::1", PUBLIC],
        [PUBLIC, "::ffff:127.0.0.1"],
        ["64:ff9b::7f00:1"],
        ["2002:7f00:1::1"],
        ["fe80::1%lo"],
        [PUBLIC, "10.0.0.8"],
        [],
    ],
)
def test_a_name_counts_by_all_of_its_addresses(canary: Canary, found: list[str]) -> None:
    """A name of which one address is not public is not asked at all."""
    fetcher = Fetcher(Policy.of_sources(SETTINGS), lambda host, port: found)
    with pytest.raises(AddressRefused), fetcher.download(f"http://rebind.example:{canary.port}/", LIMITS):
        pass
    assert canary.visits == []


def test_a_name_is_resolved_once_and_what_was_checked_is_asked(canary: Canary, monkeypatch: pytest.MonkeyPatch) -> None:
    """A resolver that tells another address the second time changes nothing: there is no second time."""
    answers = [[PUBLIC], ["127.0.0.1"], ["127.0.0.1"]]
    asked: list[tuple[str, int]] = []

    def connect(address: tuple[str, int], *arguments: object, **named: object) -> socket.socket:
        asked.append(address)
        raise ConnectionRefusedError

    monkeypatch.setattr(socket, "create_connection", connect)
    fetcher = Fetcher(Policy.of_sources(SETTINGS), lambda host, port: answers.pop(0))
    with pytest.raises(AddressUnavailable), fetcher.download(f"http://rebind.example:{canary.port}/", LIMITS):
        pass
    assert asked == [(PUBLIC, canary.port)]
    assert len(answers) == 2
    assert canary.visits == []


def _opened(**settings: object) -> Settings:
    """Return settings under which a server of a test may be asked by the name `server.example`."""
    return replace(SETTINGS, source_url_networks="127.0.0.2/32", source_url_hosts="server.example", **settings)  # type: ignore[arg-type]


def _local(host: str, port: int) -> list[str]:
    """Resolve the name of the server of a test, and any other name to the canary."""
    return ["127.0.0.2"] if host == "server.example" else ["127.0.0.1"]


@pytest.fixture
def server() -> Iterator[HttpServer]:
    """Return a server that does what the path says; it lies on another loopback address than the canary."""

    replies = {
        "/again/": Reply(307, headers={"Location": "/again/"}),
        "/packed": Reply(headers={"Content-Encoding": "gzip"}, body=b"x"),
        "/endless": Reply(body=[b"x" * 1000] * 5000),
        "/large": Reply(body=b"x" * ((1 << 20) + 1)),
        "/cut": Reply(body=[b"x" * 1000], broken=True),
        "/slow": Reply(body=[b"x"] * 100, before=lambda: threading.Event().wait(0.1)),
    }

    def respond(request: Request) -> Reply:
        path = request.path
        if path.startswith("/to/"):
            return Reply(302, headers={"Location": path.removeprefix("/to/")})
        if path.startswith("/status/"):
            return Reply(int(path.rpartition("/")[2]), headers={"Retry-After": "7"})
        return replies.get(path, Reply(headers={"Content-Type": "audio/wav"}, body=b"sound"))

    with HttpServer(respond, host="127.0.0.2") as found:
        yield found


def _get(server: HttpServer, path: str, limits: Limits = LIMITS, settings: Settings | None = None) -> bytes:
    """Fetch a path of the server by its name."""
    url = server.url.replace("127.0.0.2", "server.example") + path
    fetcher = Fetcher(Policy.of_sources(settings or _opened()), _local)
    with fetcher.download(url, limits) as download:
        return b"".join(download.chunks)


def test_a_source_is_fetched_with_its_own_name(server: HttpServer) -> None:
    """The server is asked with the name that was given, and sees neither cookies nor an offer to pack."""
    assert _get(server, "/a.wav?signature=s") == b"sound"
    (request,) = server.requests
    assert request.path == "/a.wav?signature=s"
    assert request.headers["host"].startswith("server.example:")
    assert request.headers["accept-encoding"] == "identity"
    assert not {"cookie", "authorization", "referer"} & set(request.headers)


def test_a_redirect_is_followed_to_where_one_may_go(server: HttpServer) -> None:
    """A redirect within what is allowed is followed."""
    assert _get(server, "/to//b.wav") == b"sound"
    assert [request.path for request in server.requests] == ["/to//b.wav", "/b.wav"]


@pytest.mark.parametrize(
    "target",
    [
        "http://127.0.0.1:{p}/",
        "http://[::1]:{p}/",
        "http://localhost:{p}/",
        "//127.0.0.1:{p}/",
        "http://2130706433:{p}/",
        "http://other.example:{p}/",
        "file:///etc/hostname",
        "http://user@server.example/",
    ],
)
@pytest.mark.parametrize("hosts", ["server.example", "*"])
def test_a_redirect_is_checked_like_a_named_address(
    server: HttpServer, canary: Canary, target: str, hosts: str
) -> None:
    """A redirect to where one may not go is refused, whichever hosts may be asked."""
    settings = replace(_opened(), source_url_hosts=hosts)
    with pytest.raises(AddressRefused):
        _get(server, "/to/" + target.format(p=canary.port), settings=settings)
    assert canary.visits == []


def test_a_chain_of_redirects_ends(server: HttpServer) -> None:
    """After three redirects it is over."""
    with pytest.raises(SourceRefused, match="after 3 redirects"):
        _get(server, "/again/")
    assert len(server.requests) == 4


def test_a_redirect_to_plain_http_needs_leave(server: HttpServer) -> None:
    """Where only https is allowed, an http address is refused before anybody is asked."""
    with pytest.raises(AddressRefused, match="not https"):
        _get(server, "/", settings=replace(_opened(), source_url_http=False))
    assert server.requests == []


@pytest.mark.parametrize(
    ("path", "error"),
    [
        ("/status/404", SourceRefused),
        ("/status/401", SourceRefused),
        ("/status/204", SourceRefused),
        ("/status/206", SourceRefused),
        ("/status/302", SourceRefused),
        ("/status/500", AddressUnavailable),
        ("/status/503", AddressUnavailable),
        ("/status/429", AddressUnavailable),
        ("/packed", SourceRefused),
        ("/endless", SourceTooLarge),
        ("/large", SourceTooLarge),
        ("/cut", AddressUnavailable),
    ],
)
def test_what_goes_wrong_has_its_error(server: HttpServer, path: str, error: type[Exception]) -> None:
    """What may pass is transient, the rest is final; sizes count as bytes come, whatever a header says."""
    with pytest.raises(error) as caught:
        _get(server, path)
    if path in {"/status/503", "/status/429"}:
        assert caught.value.details["retry_after_s"] == 7  # type: ignore[attr-defined]


def test_a_server_that_drips_is_left_in_time(server: HttpServer) -> None:
    """The time for all of it holds, though each byte comes soon after the one before."""
    with pytest.raises(AddressUnavailable, match=r"time for it is over|timed out"):
        _get(server, "/slow", Limits(total_s=0.4, most_bytes=1000))


def test_a_resolver_that_hangs_is_left_in_time() -> None:
    """Resolving counts as well: the resolver of the system may take minutes."""
    ended = threading.Event()

    def hang(host: str, port: int) -> list[str]:
        ended.wait(20)
        return [PUBLIC]

    with pytest.raises(AddressUnavailable, match="no answer within"):
        Fetcher(Policy.of_webhooks(SETTINGS), hang).post("http://slow.example/", {}, b"", total_s=0.2)
    ended.set()


def test_proxies_of_the_environment_are_not_used(server: HttpServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy would resolve the name once more, and ask whom it likes."""
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9/")
    assert _get(server, "/a.wav") == b"sound"


@pytest.mark.parametrize(
    ("hosts", "host", "allowed"),
    [
        ("media.example", "media.example", True),
        ("media.example", "MEDIA.example", True),
        ("media.example", "evil-media.example", False),
        ("media.example", "a.media.example", False),
        ("*.media.example", "a.media.example", True),
        ("*.media.example", "a.b.media.example", True),
        ("*.media.example", "media.example", False),
        ("*.media.example", "evilmedia.example", False),
        ("a.example, b.example", "b.example", True),
        ("", "a.example", False),
        ("*", "a.example", True),
    ],
)
def test_hosts_must_be_on_the_list(hosts: str, host: str, allowed: bool) -> None:
    """A host is allowed by its name, or by a name that it lies below; an empty list allows none."""
    policy = Policy.of_sources(replace(SETTINGS, source_url_hosts=hosts))
    if allowed:
        assert policy.check(f"https://{host}/x").host == host.lower()
    else:
        with pytest.raises(AddressRefused, match="not on the list"):
            policy.check(f"https://{host}/x")


def test_ports_must_be_on_the_list() -> None:
    """By default the ports of the web are asked, and no others."""
    policy = Policy.of_webhooks(replace(SETTINGS, webhook_ports="80,443"))
    assert policy.check("https://a.example/x").port == 443
    assert policy.check("http://a.example:443/").port == 443
    for port in ("22", "6379", "8080", "0", "65536", "-1", "x"):
        with pytest.raises(AddressRefused):
            policy.check(f"https://a.example:{port}/")


@pytest.mark.parametrize(
    "changes",
    [
        {"webhook_ports": "0"},
        {"webhook_ports": "http"},
        {"webhook_networks": "10.0.0.1/8"},
        {"webhook_networks": "lan"},
    ],
)
def test_settings_of_a_wrong_form_are_told(changes: dict[str, str]) -> None:
    """A list that cannot be read is an error, and never an empty list."""
    with pytest.raises(BadOption, match="VOICEJOBS_WEBHOOK_"):
        Policy.of_webhooks(replace(SETTINGS, **changes))  # type: ignore[arg-type]


def test_an_address_is_shown_without_what_may_be_secret() -> None:
    """Neither errors nor names of jobs show the query of an address, in which signatures stand."""
    url = read_url("https://a.example:8443/x/y.wav?token=secret")
    assert (url.shown, url.origin) == ("https://a.example:8443/x/y.wav", "https://a.example:8443")
    assert str(url) == "https://a.example:8443/x/y.wav?token=secret"
    with pytest.raises(AddressRefused) as caught:
        read_url("https://user:secret@a.example/")
    assert "secret" not in caught.value.message


def test_public_addresses_pass() -> None:
    """Public addresses pass in their plain form, and those that a gateway of NAT64 makes of public ones."""
    policy = Policy.of_sources(SETTINGS)
    for host in (PUBLIC, "[2606:4700::1111]", "[64:ff9b::5db8:d70e]", "xn--bcher-kva.example"):
        assert policy.check(f"https://{host}/").scheme == "https"


def test_retry_after_has_two_forms() -> None:
    """Seconds and dates are understood, within a day; all else is as if it were not there."""
    assert retry_after_s("7") == 7
    assert retry_after_s("99999999999") == 86_400
    assert retry_after_s("Wed, 21 Oct 2015 07:28:00 GMT") == 0
    assert retry_after_s("Wed, 21 Oct 2099 07:28:00 GMT") == 86_400
    assert retry_after_s("soon") is None
    assert retry_after_s("") is None
