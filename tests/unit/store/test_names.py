"""What the store writes as text: ids, owners, paths, JSON."""

import json
import os
import subprocess
import sys
import time
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from voicejobs.store import owners
from voicejobs.store.ids import new_id
from voicejobs.store.leases import dump, storable
from voicejobs.store.owners import Owner, is_alive, process_start
from voicejobs.store.paths import decode_path, display_name, encode_path

NAME_BYTES = st.binary(min_size=1, max_size=60).filter(lambda name: b"\0" not in name)


def test_ids_are_uuids_that_sort_by_time() -> None:
    """Ids are a prefix and a UUID of version 7 that carries the time; later ones sort behind earlier ones."""
    before_ms = time.time_ns() // 1_000_000
    ids = []
    for _ in range(5):
        ids.append(new_id("job"))
        time.sleep(0.002)
    assert ids == sorted(ids)
    for one in ids:
        prefix, _, digits = one.partition("_")
        uuid = UUID(digits)
        assert (prefix, uuid.version, uuid.variant) == ("job", 7, "specified in RFC 4122")
        assert 0 <= (uuid.int >> 80) - before_ms < 60_000
    assert len({new_id("x") for _ in range(10_000)}) == 10_000


def test_an_owner_comes_back_from_its_text() -> None:
    """What `str` writes `parse` reads; anything else is no owner."""
    us = Owner.of_this_process()
    assert Owner.parse(str(us)) == us
    assert len(str(us)) <= 128, "as long as the column"
    odd = Owner("a/b", "c", 1, "2")
    assert Owner.parse(str(odd)) == odd
    for text in ("", "worker", "a/b/c", "a/b/pid/1", "a/b/-1/1"):
        assert Owner.parse(text) is None


def test_a_process_is_dead_once_it_has_ended_even_unreaped() -> None:
    """A running process lives; an ended one that nobody has reaped does not; a reused pid has another start."""
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    started = process_start(child.pid)
    us = Owner.of_this_process()

    def is_proven_dead() -> bool:
        return Owner(us.host, us.boot, child.pid, started).is_proven_dead

    assert is_alive(child.pid, started)
    assert not is_alive(child.pid, started + "0")
    assert not is_proven_dead()
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert not is_alive(child.pid, started)
    assert is_proven_dead()
    child.communicate()
    assert process_start(child.pid) == ""


def test_nothing_is_proven_about_other_machines_and_containers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process elsewhere, or in another namespace of pids on a machine of the same name, is not called dead."""
    us = Owner.of_this_process()
    assert not us.is_proven_dead
    name, _, pids = us.host.rpartition(":")
    for host in ("elsewhere", f"{name}:{int(pids) + 1}", name):
        assert not Owner(host, "earlier", us.pid, "1").is_proven_dead
    assert Owner(us.host, "earlier", us.pid, us.started).is_proven_dead
    owners._host.cache_clear()
    monkeypatch.setattr("socket.gethostname", lambda: "a/strange/" + "x" * 200)
    try:
        strange = Owner.of_this_process()
        assert Owner.parse(str(strange)) == strange
        assert len(str(strange)) <= 128
    finally:
        owners._host.cache_clear()


@settings(deadline=None)
@given(NAME_BYTES)
def test_any_name_of_a_file_survives(name: bytes) -> None:
    """A path of any bytes comes back from JSON as the same bytes."""
    path = os.fsdecode(b"/" + name)
    values = json.loads(json.dumps(encode_path(path)).encode("utf-8"))
    assert os.fsencode(decode_path(values)) == b"/" + name


@settings(deadline=None)
@given(NAME_BYTES)
def test_any_name_can_be_shown(name: bytes) -> None:
    """The shown name is printable, and UTF-8 can hold it; plain names are shown as they are."""
    shown = display_name(os.fsdecode(name))
    assert shown.isprintable()
    shown.encode("utf-8")
    assert display_name("Gruß 你好.wav") == "Gruß 你好.wav"
    assert display_name(os.fsdecode(b"a\xff\n.wav")) == "a\\xff\\n.wav"


@settings(deadline=None)
@given(st.text(st.characters(codec=None)))
def test_any_text_fits_the_databases(text: str) -> None:
    """JSON of any text can be stored and read back unchanged; other text loses only what no database takes."""
    written = dump({"text": text})
    written.encode("utf-8")
    assert "\0" not in written
    assert json.loads(written) == {"text": text}
    assert "\0" not in storable(text)
    storable(text).encode("utf-8")


def test_numbers_that_json_lacks_are_refused() -> None:
    """NaN in a row would be read by nobody."""
    with pytest.raises(ValueError, match="JSON"):
        dump({"value": float("nan")})
