"""Sources by path: what lies below the named folders, and nothing that only seems to."""

import os
import socket
import threading
from contextlib import suppress
from pathlib import Path, PurePosixPath

import pytest

from voicejobs.errors import AddressRefused, BadOption, EmptyFile, InputChanged, InputError, NotFound
from voicejobs.outbound.paths import check_path, read_beneath, roots_of

SECRET = b"secret"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a folder with a file in it, beside another folder that holds a secret."""
    folder = tmp_path / "root"
    (folder / "deep" / "er").mkdir(parents=True)
    (folder / "a.wav").write_bytes(b"sound")
    (folder / "deep" / "er" / "b.wav").write_bytes(b"deep sound")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret.wav").write_bytes(SECRET)
    return folder


def _read(root: Path, path: str) -> bytes:
    """Read a file below the root."""
    return b"".join(read_beneath([PurePosixPath(root)], path, "input"))


def test_files_below_a_root_are_read(root: Path) -> None:
    """A file in a named folder, however deep, can be read; the root itself may be a link."""
    assert _read(root, f"{root}/a.wav") == b"sound"
    assert _read(root, f"{root}/deep/er/b.wav") == b"deep sound"
    link = root.parent / "link"
    link.symlink_to(root)
    assert _read(link, f"{link}/a.wav") == b"sound"


@pytest.mark.parametrize(
    "path",
    [
        "{root}/../outside/secret.wav",
        "{root}/deep/../../outside/secret.wav",
        "{root}/./a.wav",
        "{root}//a.wav",
        "{root}/a.wav/",
        "{root}",
        "{root}/",
        "{root}x/a.wav",
        "/etc/hostname",
        "//etc/hostname",
        "/",
        "",
        "a.wav",
        "~/a.wav",
        "file://{root}/a.wav",
        "{root}/a.wav\0.mp3",
        "\\\\server\\share",
        "/proc/self/environ",
        "{upper}/a.wav",
        "{root}/deep",
        "{root}/deep/er/../er/b.wav",
        "{root}/a.wav/..",
        "{root}/%2e%2e/outside/secret.wav",
        "{root}/a.wav/b",
    ],
)
def test_other_paths_are_refused(root: Path, path: str) -> None:
    """A path that leads elsewhere, or is not written in its plain form, is refused."""
    with pytest.raises((AddressRefused, NotFound)):
        _read(root, path.format(root=root, upper=str(root).upper()))


def test_links_are_not_followed(root: Path) -> None:
    """No link is followed, neither as the file nor as a folder on the way, wherever it leads."""
    (root / "link.wav").symlink_to(root.parent / "outside" / "secret.wav")
    (root / "inside.wav").symlink_to(root / "a.wav")
    (root / "folder").symlink_to(root.parent / "outside")
    for name in ("link.wav", "inside.wav", "folder/secret.wav"):
        with pytest.raises(AddressRefused):
            _read(root, f"{root}/{name}")


def test_a_file_with_a_second_name_is_refused(root: Path) -> None:
    """A hard link may be the name of a file that lies outside."""
    os.link(root.parent / "outside" / "secret.wav", root / "hard.wav")
    with pytest.raises(AddressRefused, match="further names"):
        _read(root, f"{root}/hard.wav")


def test_only_regular_files_are_read(root: Path) -> None:
    """A pipe does not make the worker wait, and neither sockets nor folders nor devices are read."""
    os.mkfifo(root / "pipe.wav")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(root / "s"))
        for name in ("pipe.wav", "s", "deep"):
            with pytest.raises(AddressRefused):
                _read(root, f"{root}/{name}")
    with pytest.raises(AddressRefused):
        b"".join(read_beneath([PurePosixPath("/dev")], "/dev/zero", "input"))


def test_what_is_missing_or_empty_is_told(root: Path) -> None:
    """A missing file and an empty one have errors of their own."""
    (root / "empty.wav").touch()
    with pytest.raises(EmptyFile):
        _read(root, f"{root}/empty.wav")
    with pytest.raises(NotFound) as caught:
        _read(root, f"{root}/none.wav")
    assert str(root) not in caught.value.message


def test_a_folder_that_is_swapped_meanwhile_leads_nowhere(root: Path) -> None:
    """Whoever swaps a folder for a link while files are opened never gets a file from outside read."""
    outside, inside = root.parent / "outside", root / "deep" / "er"
    (outside / "b.wav").write_bytes(SECRET)
    spare, link, ended = root / "deep" / "spare", root / "deep" / "link", threading.Event()
    link.symlink_to(outside)

    def swap() -> None:
        while not ended.is_set():
            inside.rename(spare)
            link.rename(inside)
            inside.rename(link)
            spare.rename(inside)

    thread = threading.Thread(target=swap)
    thread.start()
    found = set()
    try:
        for _ in range(2000):
            with suppress(InputError):
                found.add(_read(root, f"{root}/deep/er/b.wav"))
    finally:
        ended.set()
        thread.join()
    assert found <= {b"deep sound"}


def test_a_file_that_grows_meanwhile_is_refused(root: Path) -> None:
    """What changes while it is read is not what anybody meant."""
    path = root / "a.wav"
    chunks = read_beneath([PurePosixPath(root)], str(path), "input")
    next(chunks)
    with path.open("ab") as file:
        file.write(b"more")
    with pytest.raises(InputChanged):
        list(chunks)


def test_reading_stops_where_it_should(root: Path) -> None:
    """Between two chunks the caller may stop it."""

    def stop() -> None:
        raise LookupError

    with pytest.raises(LookupError):
        list(read_beneath([PurePosixPath(root)], f"{root}/a.wav", "input", stop))


def test_without_roots_nothing_is_read(root: Path) -> None:
    """By default no path is allowed."""
    with pytest.raises(AddressRefused):
        check_path(roots_of(""), f"{root}/a.wav")


def test_roots_must_be_plain() -> None:
    """A root that is relative or climbs is a slip of the operator, and said."""
    assert roots_of("/data/audio, /mnt/calls") == [PurePosixPath("/data/audio"), PurePosixPath("/mnt/calls")]
    for setting in ("data", "/data/../etc", "//data"):
        with pytest.raises(BadOption):
            roots_of(setting)
