"""Pulling from the model hub: resume, wrong content, a hub out of reach."""

import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from voicejobs.errors import ModelUnavailable
from voicejobs.models import hub as hub_module
from voicejobs.models.catalogue import ModelEntry
from voicejobs.models.installed import MARKER, resolve
from voicejobs.models.pull import pull
from voicejobs.settings import Settings

MakeEntry = Callable[..., ModelEntry]
PULL_SCRIPT = """
import sys
from hashlib import sha256
from pathlib import Path
from voicejobs.models.catalogue import HubSource, ModelEntry, ModelFile
from voicejobs.models.pull import pull
from voicejobs.settings import Settings
FILES = {"config.json": b'{"a": 1}', "model.bin": bytes(range(256)) * 4096}
files = tuple(ModelFile(name, sha256(data).hexdigest(), len(data)) for name, data in FILES.items())
source = HubSource("owner/small", "abc123", "sub/")
entry = ModelEntry("small", "fake", "abc123", "CC0-1.0", "here", files, (source,))
pull(entry, Settings(Path(sys.argv[1]), Path(sys.argv[1]), hub_url=sys.argv[2]))
"""


def start_pull(settings: Settings) -> "subprocess.Popen[bytes]":
    """Pull the small model in a process of its own."""
    return subprocess.Popen([sys.executable, "-c", PULL_SCRIPT, str(settings.models_dir), settings.hub_url])


def test_pull_brings_verified_files(settings: Settings, make_entry: MakeEntry, hub: Any) -> None:
    """A pull leaves the files, the marker and nothing else in the model's folder."""
    files = pull(make_entry(), settings)
    assert sorted(path.name for path in files.dir.iterdir()) == ["config.json", "model.bin", MARKER]
    assert (files.dir / "model.bin").read_bytes() == hub.files["/owner/small/resolve/abc123/sub/model.bin"]
    assert resolve(make_entry(), settings) == files


def test_second_pull_asks_nobody(settings: Settings, make_entry: MakeEntry, hub: Any) -> None:
    """What is here and right is not fetched again."""
    pull(make_entry(), settings)
    asked = len(hub.requests)
    pull(make_entry(), settings)
    assert len(hub.requests) == asked


def test_broken_connection_is_taken_up_where_it_broke(settings: Settings, make_entry: MakeEntry, hub: Any) -> None:
    """Within one pull, a cut body is followed by a request for the rest only."""
    hub.cut_after = 400_000
    pull(make_entry(), settings)
    assert hub.gets("model.bin") == ["", "bytes=400000-", "bytes=800000-"]


def test_server_without_ranges_starts_over(settings: Settings, make_entry: MakeEntry, hub: Any) -> None:
    """Where the server sends the whole file in spite of `Range`, the bytes at hand are dropped."""
    entry = make_entry()
    hub.ranges = False
    folder = settings.models_dir / entry.name
    folder.mkdir(parents=True)
    (folder / "model.bin.part").write_bytes(bytes(range(256)) * 16)
    pull(entry, settings)
    assert hub.gets("model.bin") == ["bytes=4096-"]


def test_killed_pull_goes_on_where_it_stopped(settings: Settings, make_entry: MakeEntry, hub: Any) -> None:
    """After `kill -9` in the middle of a download the next pull asks for the rest only, and is not locked out."""
    hub.stall_after = 1 << 19
    part = settings.models_dir / "small" / "model.bin.part"
    with start_pull(settings) as process:
        deadline = time.monotonic() + 20
        while not (part.exists() and part.stat().st_size) and time.monotonic() < deadline:
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
    kept = part.stat().st_size
    assert kept
    hub.stall_after = None
    with pytest.raises(ModelUnavailable, match=r"lacks model\.bin"):
        resolve(make_entry(), settings)
    pull(make_entry(), settings)
    assert hub.gets("model.bin")[-1] == f"bytes={kept}-"


def test_rotten_beginning_is_dropped_and_fetched_again(settings: Settings, make_entry: MakeEntry, hub: Any) -> None:
    """A part whose bytes are wrong costs one more download, and is never put in place."""
    entry = make_entry()
    folder = settings.models_dir / entry.name
    folder.mkdir(parents=True)
    (folder / "model.bin.part").write_bytes(b"rotten")
    pull(entry, settings)
    assert hub.gets("model.bin") == ["bytes=6-", ""]


def test_wrong_hash_is_refused(settings: Settings, make_entry: MakeEntry, hub: Any) -> None:
    """A file of the right length and another content is not put in place, and the pull says which file it was."""
    path = "/owner/small/resolve/abc123/sub/model.bin"
    hub.files[path] = b"x" * len(hub.files[path])
    with pytest.raises(ModelUnavailable, match=r"model\.bin.*SHA-256"):
        pull(make_entry(), settings)
    assert not (settings.models_dir / "small" / "model.bin").exists()
    assert not (settings.models_dir / "small" / MARKER).exists()


def test_body_longer_than_the_catalogue_says_does_not_fill_the_disk(
    settings: Settings, make_entry: MakeEntry, hub: Any
) -> None:
    """A source that sends more than the size of the file is cut off."""
    path = "/owner/small/resolve/abc123/sub/model.bin"
    hub.files[path] += b"more"
    with pytest.raises(ModelUnavailable, match="longer"):
        pull(make_entry(), settings)
    assert not (settings.models_dir / "small" / "model.bin").exists()


def test_offline_asks_no_hub(settings: Settings, make_entry: MakeEntry, hub: Any) -> None:
    """With the setting `offline` not one request is made."""
    offline = Settings(settings.state_dir, settings.models_dir, hub_url=hub.url, offline=True)
    with pytest.raises(ModelUnavailable, match="VOICEJOBS_OFFLINE"):
        pull(make_entry(), offline)
    assert not hub.requests


def test_silent_hub_costs_two_seconds_once(settings: Settings, make_entry: MakeEntry, hub: Any) -> None:
    """A hub that accepts and never answers is given up within two seconds, and not asked again by this process."""
    hub.silent = True
    started = time.monotonic()
    with pytest.raises(ModelUnavailable, match="out of reach"):
        pull(make_entry(), settings)
    assert time.monotonic() - started < 2.0
    started = time.monotonic()
    with pytest.raises(ModelUnavailable, match="out of reach"):
        pull(make_entry(), settings)
    assert time.monotonic() - started < 0.2
    assert len(hub.requests) == 1


def test_name_resolution_that_hangs_costs_two_seconds(
    settings: Settings, make_entry: MakeEntry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A resolver that does not answer, which no socket timeout bounds, costs no more than a silent hub."""
    released = threading.Event()

    def hang(*args: object, **options: object) -> object:
        released.wait(20)
        raise socket.gaierror(socket.EAI_AGAIN, "no answer")

    monkeypatch.setattr(socket, "getaddrinfo", hang)
    started = time.monotonic()
    assert not hub_module.reachable("http://hub.invalid")
    assert time.monotonic() - started < 2.0
    released.set()


def test_proxy_of_the_environment_is_used(
    settings: Settings, make_entry: MakeEntry, hub: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With HTTP_PROXY set, a hub that only the proxy can name is reached through it."""
    monkeypatch.setenv("HTTP_PROXY", hub.url)
    pull(make_entry(), Settings(settings.state_dir, settings.models_dir, hub_url="http://hub.invalid"))
    assert any(path.startswith("http://hub.invalid/owner/small") for _, path, _ in hub.requests)


def test_two_pulls_at_the_same_time_do_the_work_once(settings: Settings, make_entry: MakeEntry, hub: Any) -> None:
    """Of three processes that pull one model together, one downloads and the others find it there."""
    processes = [start_pull(settings) for _ in range(3)]
    assert [process.wait(30) for process in processes] == [0, 0, 0]
    assert hub.gets("model.bin") == [""]
    assert resolve(make_entry(), settings).dir == settings.models_dir / "small"


def test_missing_file_names_what_to_do(settings: Settings, make_entry: MakeEntry, hub: Any, tmp_path: Path) -> None:
    """When no source delivers, the error carries every reason and the hint the folder to copy the files to."""
    hub.files.clear()
    with pytest.raises(ModelUnavailable, match="404") as caught:
        pull(make_entry(), settings)
    assert str(tmp_path / "models" / "small") in caught.value.hint


def test_redirect_to_another_host_keeps_the_range(settings: Settings, make_entry: MakeEntry, hub: Any) -> None:
    """The hub sends large files to other hosts; the rest of a cut-off file is asked for there too."""
    hub.redirects = True
    hub.cut_after = 600_000
    pull(make_entry(), settings)
    assert [path.startswith("/cdn") for _, path, wanted in hub.requests if wanted] == [False, True]


def test_hub_that_goes_away_is_asked_once(settings: Settings, make_entry: MakeEntry) -> None:
    """When connections are refused in the middle of a pull, the other files are not tried on it."""
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"
        hub_module._reachable[url] = True
        with pytest.raises(ModelUnavailable, match="went out of reach"):
            pull(make_entry(), Settings(settings.state_dir, settings.models_dir, hub_url=url))
    assert not hub_module.reachable(url)


@pytest.mark.parametrize("proxy", ["socks5://127.0.0.1:1", "nonsense://127.0.0.1:1", "http://127.0.0.1:1"])
def test_proxy_that_does_not_work_is_a_hub_out_of_reach(proxy: str, hub: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy setting that cannot be used costs the hub, and not the pull."""
    monkeypatch.setenv("HTTP_PROXY", proxy)
    assert not hub_module.reachable("http://hub.invalid")
