"""Inputs and outputs that no folder can hold: links in circles, pipes, devices, odd names, full disks, moving files.

Each costs an error of its own, by a documented code, and nothing else.
"""

import os
import re
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.acceptance.conftest import MakeTree
from tests.acceptance.harness import (
    RATE_HZ,
    ROOT,
    Outcome,
    Tree,
    example_speech,
    files_below,
    powerless,
    wait_for,
    write_recording,
)

pytestmark = [pytest.mark.services, pytest.mark.timeout(120)]
SOME_FAILED, FULL, UNWRITABLE, REFUSED, ALL_FAILED = 3, 5, 7, 7, 8


def talk(path: Path, seconds: float = 2.0, start: int = 0) -> Path:
    """Write a short recording of speech."""
    begin = start * 1000
    return write_recording(path, example_speech()[begin : begin + int(seconds * RATE_HZ)])


def complaint(done: Outcome, name: str, code: str) -> str:
    """Return the line that names a file with a code; there must be one, with a hint, and the code is documented."""
    lines = done.stderr.splitlines()
    found = [number for number, line in enumerate(lines) if name in line and line.rstrip().endswith(f"[{code}]")]
    assert found, f"nothing says {name!r} [{code}] in:\n{done.stderr}"
    assert lines[found[0] + 1].startswith("  "), f"no hint under: {lines[found[0]]}"
    assert f"### `{code}`" in (ROOT / "docs" / "errors.md").read_text(encoding="utf-8")
    return lines[found[0]]


def outputs(tree: Tree) -> list[str]:
    """Return the names of all files below the output folder."""
    return sorted(files_below(tree.out))


# --- what is no file


def test_links_in_circles_cost_only_themselves(tree: Tree, tmp_path: Path) -> None:
    """A link to itself is named with its error, a link to a folder above is not followed, and a good link is a file."""
    folder = tmp_path / "in"
    talk(folder / "ok.wav")
    (folder / "loop.wav").symlink_to("loop.wav")
    (folder / "here.wav").symlink_to("there.wav")
    (folder / "there.wav").symlink_to("here.wav")
    (folder / "gone.wav").symlink_to("nothing.wav")
    (folder / "up").symlink_to("..")
    (folder / "linked.wav").symlink_to(talk(tmp_path / "elsewhere.wav", start=2))
    done = tree.transcribe(folder)
    assert done.code == SOME_FAILED, done.stderr
    for name in ("loop.wav", "here.wav", "there.wav"):
        complaint(done, name, "unreadable")
    complaint(done, "gone.wav", "not_found")
    assert outputs(tree) == ["linked.txt", "ok.txt"]


@pytest.fixture
def listening(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return a socket in the file system."""
    path = tmp_path / "phone.wav"
    monkeypatch.chdir(tmp_path)  # a socket's name may not be long
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("phone.wav")
        yield path


def test_pipes_sockets_and_devices_that_are_named_are_refused_at_once(
    tree: Tree, tmp_path: Path, listening: Path
) -> None:
    """A fifo without a writer, a socket and /dev/zero never end; each is refused, and the file beside them is done."""
    os.mkfifo(tmp_path / "pipe.wav")
    ok = talk(tmp_path / "ok.wav")
    began = time.monotonic()
    done = tree.transcribe("/dev/zero", "/dev/null", tmp_path / "pipe.wav", listening, "/proc/self/mem", ok)
    assert time.monotonic() - began < 20
    assert done.code == SOME_FAILED, done.stderr
    for name in ("/dev/zero", "/dev/null", "pipe.wav", "phone.wav"):
        complaint(done, name, "not_audio")
    assert "/proc/self/mem" in done.stderr or "mem" in done.stderr
    assert outputs(tree) == ["ok.txt"]


def test_pipes_and_sockets_in_a_folder_are_left_aside(tree: Tree, tmp_path: Path, listening: Path) -> None:
    """What is no file in a folder is no error either."""
    os.mkfifo(tmp_path / "pipe.wav")
    talk(tmp_path / "ok.wav")
    tree.out.mkdir()
    done = tree.transcribe(tmp_path)
    assert done.code == 0, done.stderr
    assert outputs(tree) == ["ok.txt"]


def test_an_unreadable_folder_is_named(make_tree: MakeTree, tmp_path: Path) -> None:
    """A folder that cannot be listed, or only be listed, costs an error that names it, wherever it stands."""
    talk(tmp_path / "in" / "ok.wav")
    talk(tmp_path / "in" / "closed" / "a.wav")
    talk(tmp_path / "in" / "listed" / "b.wav")
    modes = {tmp_path / "in" / "closed": 0o000, tmp_path / "in" / "listed": 0o444}
    tree = make_tree()
    tree.launcher = powerless()
    for path, mode in modes.items():
        path.chmod(mode)
    try:
        done = tree.transcribe(tmp_path / "in", tmp_path / "in" / "closed" / "a.wav")
    finally:
        for path in modes:
            path.chmod(0o700)
    assert done.code == SOME_FAILED, done.stderr
    complaint(done, "closed", "unreadable")
    complaint(done, "b.wav", "unreadable")
    complaint(done, "a.wav", "unreadable")
    assert outputs(tree) == ["ok.txt"] or outputs(tree) == ["in/ok.txt"]


# --- names


def test_any_name_that_a_file_can_have_works(tree: Tree, tmp_path: Path) -> None:
    """Names that are no UTF-8, hold newlines, blanks, dashes, dots, controls or 255 bytes: one output for each."""
    folder = tmp_path / "in"
    folder.mkdir()
    talk(tmp_path / "talk.wav")
    names = [
        b"caf\xe9.wav", b"\xff\xfe.wav", b"two\nlines.wav", b"tab\there.wav", b"-n.wav", b"--force.wav", b" .wav",
        b"a..wav", b"x" * 251 + b".wav", ("é" * 125).encode() + b"y.wav", b"[a-z]*?.wav", b"{stem}.wav",
        b"%s%d%n.wav", b"@list.txt.wav", b"bell\x07.wav", b"\x1b[31mred.wav", b"CON.wav", b"trailing .wav",
    ]  # fmt: skip
    for name in names:
        os.link(tmp_path / "talk.wav", os.fsencode(folder) + b"/" + name)
    done = tree.transcribe(folder)
    assert done.code == 0, done.stderr
    assert len(outputs(tree)) == len(names)
    assert "\x1b" not in done.stderr, "a name must not colour the terminal"
    assert "\x07" not in done.stderr


def test_what_is_wrong_with_a_file_of_any_name_is_said_on_one_line(tree: Tree, tmp_path: Path) -> None:
    """A newline or an escape in a name cannot forge a line of ours or move the cursor."""
    names = [b"two\nlines [ok].wav", b"\x1b[2Jclear.wav", b"caf\xe9.wav"]
    paths = [os.fsencode(tmp_path) + b"/" + name for name in names]
    for path in paths:
        Path(os.fsdecode(path)).touch()
    done = tree.transcribe(*[os.fsdecode(path) for path in paths])
    assert done.code == ALL_FAILED, done.stderr
    assert len(re.findall(r"\[empty_file\]", done.stderr)) == len(names)
    assert "\x1b" not in done.stderr
    for line in done.stderr.splitlines():
        assert not line.startswith("lines"), done.stderr


def test_an_empty_name_and_a_missing_one_are_errors(tree: Tree, tmp_path: Path) -> None:
    """What is not there is said, and costs the others nothing."""
    ok = talk(tmp_path / "ok.wav")
    done = tree.transcribe(tmp_path / "missing.wav", tmp_path / "no folder" / "a.wav", ok / "below.wav", "x" * 300, ok)
    assert done.code == SOME_FAILED, done.stderr
    for name in ("missing.wav", "a.wav", "below.wav"):
        complaint(done, name, "not_found")
    assert "xxxx" in done.stderr
    assert outputs(tree) == ["ok.txt"]


def test_a_slip_in_a_name_is_shown(tree: Tree, tmp_path: Path) -> None:
    """Where a file is missing, one of nearly the same name beside it is named."""
    talk(tmp_path / "interview.wav")
    done = tree.transcribe(tmp_path / "intervew.wav")
    assert done.code == REFUSED, done.stderr
    assert f"Did you mean {tmp_path / 'interview.wav'}?" in done.stderr


def test_a_clip_after_the_end_is_told(tree: Tree, tmp_path: Path) -> None:
    """A clip that begins after the end of the recording gives no text, and a warning."""
    done = tree.transcribe(talk(tmp_path / "short.wav"), "--clip", "1:00:00-1:00:10")
    assert done.code == 0, done.stderr
    assert "a clip begins after its end in 1" in done.stderr


def test_two_inputs_with_one_stem_have_two_outputs(tree: Tree, tmp_path: Path) -> None:
    """Whether the same stem comes from another ending, another folder or another case: nothing is overwritten."""
    paths = [
        talk(tmp_path / "a" / "talk.wav"), talk(tmp_path / "a" / "talk.flac", start=1),
        talk(tmp_path / "b" / "talk.wav", start=2), talk(tmp_path / "b" / "TALK.wav", start=3),
        talk(tmp_path / "b" / "talk.wav.wav", start=4),
    ]  # fmt: skip
    done = tree.transcribe(*paths)
    assert done.code == 0, done.stderr
    found = files_below(tree.out)
    assert len(found) == len(paths)
    assert len(set(found.values())) == len(paths), "each has its own text"


# --- moving files


def test_a_file_that_is_still_being_written_is_not_taken(tree: Tree, tmp_path: Path) -> None:
    """A recording that grows while the command runs is refused, or whole; the file beside it is done."""
    ok, growing = talk(tmp_path / "ok.wav"), talk(tmp_path / "growing.wav")
    stop = threading.Event()

    def write() -> None:
        with growing.open("ab") as stream:
            while not stop.is_set():
                stream.write(bytes(3200))
                stream.flush()
                time.sleep(0.05)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        done = tree.transcribe(ok, growing)
    finally:
        stop.set()
        writer.join()
    assert done.code == SOME_FAILED, done.stderr
    complaint(done, "growing.wav", "input_changed")
    assert outputs(tree) == ["ok.txt"]
    assert tree.transcribe(ok, growing).code == 0, "once it is whole it is taken"
    assert outputs(tree) == ["growing.txt", "ok.txt"]


def test_a_file_that_is_replaced_after_it_was_read_is_not_taken_for_itself(tree: Tree, tmp_path: Path) -> None:
    """What is submitted and then replaced, or removed, is an error of its own: no transcript of another content."""
    long = [write_recording(tmp_path / f"{n}.flac", np.full(1800 * RATE_HZ, n, np.int16)) for n in range(3)]
    victims = [talk(tmp_path / "replaced.wav"), talk(tmp_path / "removed.wav", start=1)]
    process = tree.start("transcribe", *long, *victims, "-o", tree.out, "--engine", "fake", "--no-progress")
    wait_for(lambda: (tree.state / "voicejobs.db").exists() and len(tree.show("job", "list")) >= 5, "the submission")
    talk(tmp_path / "other.wav", start=5).replace(victims[0])
    victims[1].unlink()
    _, stderr = process.communicate(timeout=100)
    states = {job["name"]: (job["state"], job["error_code"]) for job in tree.show("job", "list")}
    if states["replaced.wav"][0] == states["removed.wav"][0] == "succeeded":
        pytest.skip("both were done before they were touched")
    done = Outcome(process.returncode, "", stderr.decode())
    assert done.code == SOME_FAILED, done.stderr
    complaint(done, "replaced.wav", "input_changed")
    complaint(done, "removed.wav", "not_found")
    assert sum(state == "succeeded" for state, _ in states.values()) == len(long)


# --- outputs


def test_an_output_folder_that_cannot_be_written_is_found_before_the_work(make_tree: MakeTree, tmp_path: Path) -> None:
    """A folder without the right to write, or a file in its place: nothing is submitted, and the folder is named."""
    tree = make_tree()
    tree.launcher = powerless()
    ok = talk(tmp_path / "ok.wav")
    tree.out.mkdir(mode=0o500)
    done = tree.transcribe(ok)
    assert done.code == UNWRITABLE, done.stderr
    assert str(tree.out) in done.stderr
    tree.out.rmdir()
    tree.out.write_text("mine")
    done = tree.transcribe(ok)
    assert done.code == UNWRITABLE, done.stderr
    assert str(tree.out) in done.stderr
    assert tree.out.read_text() == "mine"
    assert not (tree.state / "voicejobs.db").exists(), "no work was begun"


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Return a folder on a file system of one megabyte; skip where none can be made."""
    folder = tmp_path / "small"
    folder.mkdir()
    mount = shutil.which("mount")
    made = (
        mount and subprocess.run([mount, "-t", "tmpfs", "-o", "size=1m", "none", folder], check=False).returncode == 0
    )
    if not made:
        pytest.skip("only root can make a small file system")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


def test_a_full_output_folder_is_found_before_the_work(tree: Tree, tmp_path: Path, small_disk: Path) -> None:
    """Where not a byte is left nothing is submitted."""
    (small_disk / "ballast").write_bytes(b"x" * (1 << 20))
    done = tree.run("transcribe", talk(tmp_path / "ok.wav"), "-o", small_disk, "--engine", "fake", "--no-progress")
    assert done.code == FULL, done.stderr
    assert "No space left" in done.stderr
    assert str(small_disk) in done.stderr


def test_an_output_folder_that_fills_up_waits_for_space(tree: Tree, tmp_path: Path, small_disk: Path) -> None:
    """Work waits while the disk is full and goes on by itself; no output is cut off, none is lost."""
    ballast = small_disk / "ballast"
    ballast.write_bytes(b"x" * ((1 << 20) - (1 << 12)))
    # Each output is larger than what is left, so that the probe before the work fits and the outputs do not.
    speech = np.tile(example_speech(), 60)
    files = [write_recording(tmp_path / f"{number}.flac", np.roll(speech, number * 999)) for number in range(2)]
    options = ("-o", small_disk, "--engine", "fake", "-f", "json", "--word-timestamps", "--no-progress")
    process = tree.start("transcribe", *files, *options)

    def waits_for_space() -> bool:
        if process.poll() is not None or not (tree.state / "voicejobs.db").exists():
            return process.poll() is not None
        return any("disk_full" in str(tree.show("job", "show", job["id"])) for job in tree.show("job", "list"))

    wait_for(waits_for_space, "the full disk")
    assert process.poll() is None, process.communicate()[1].decode()
    assert not list(small_disk.glob("*.json"))
    ballast.unlink()
    _, stderr = process.communicate(timeout=90)
    assert process.returncode == 0, stderr.decode()
    assert sorted(path.name for path in small_disk.iterdir()) == ["0.json", "1.json"]


def test_a_file_of_the_user_in_the_way_stays(tree: Tree, tmp_path: Path) -> None:
    """What voicejobs did not write it does not replace, unless told to; the other files are done."""
    files = [talk(tmp_path / "a.wav"), talk(tmp_path / "b.wav", start=1)]
    tree.out.mkdir()
    (tree.out / "a.txt").write_text("my own words")
    done = tree.transcribe(*files)
    assert done.code == SOME_FAILED, done.stderr
    complaint(done, "a.txt", "output_exists")
    assert (tree.out / "a.txt").read_text() == "my own words"
    assert outputs(tree) == ["a.txt", "b.txt"]
    assert tree.transcribe(*files, "--force").code == 0
    assert (tree.out / "a.txt").read_text() != "my own words"


def test_a_link_of_the_user_in_the_way_stays(tree: Tree, tmp_path: Path) -> None:
    """A link where an output belongs is not written through."""
    path = talk(tmp_path / "a.wav")
    tree.out.mkdir()
    (tmp_path / "precious.txt").write_text("precious")
    (tree.out / "a.txt").symlink_to(tmp_path / "precious.txt")
    done = tree.transcribe(path)
    assert done.code == ALL_FAILED, done.stderr
    complaint(done, "a.txt", "output_exists")
    assert (tmp_path / "precious.txt").read_text() == "precious"


def test_a_folder_in_the_way_of_an_output_is_named(tree: Tree, tmp_path: Path) -> None:
    """A folder called like an output costs that file, and that one only."""
    (tree.out / "a.txt").mkdir(parents=True)
    done = tree.transcribe(talk(tmp_path / "a.wav"), talk(tmp_path / "b.wav", start=1))
    assert done.code == SOME_FAILED, done.stderr
    assert "a.txt" in done.stderr
    assert (tree.out / "b.txt").is_file()


def test_inputs_inside_the_output_folder_are_taken_and_outputs_are_not(tree: Tree, tmp_path: Path) -> None:
    """Input and output folder may lie in each other, or be one: a second run finds everything done."""
    folder = tmp_path / "all"
    talk(folder / "a.wav")
    talk(folder / "deep" / "b.wav", start=1)
    options = ["--engine", "fake", "--no-progress", "-f", "txt,json"]
    assert tree.run("transcribe", folder, "-o", folder, *options).code == 0
    first = files_below(folder)
    assert sorted(first) == ["a.json", "a.txt", "a.wav", "deep/b.json", "deep/b.txt", "deep/b.wav"]
    done = tree.run("transcribe", folder, "-o", folder, *options)
    assert done.code == 0, done.stderr
    assert files_below(folder) == first
    assert tree.run("transcribe", folder, "-o", folder / "text", *options).code == 0
    assert tree.run("transcribe", folder / "deep", "-o", folder, *options).code == 0
    assert "text/text" not in str(sorted(files_below(folder)))
    assert (folder / "b.txt").is_file()


# --- many


@pytest.mark.timeout(300)
def test_a_thousand_tiny_files(tree: Tree, tmp_path: Path) -> None:
    """A thousand recordings of a tenth of a second in forty folders, one of them empty, are all accounted for."""
    folder = tmp_path / "in"
    count = 1000
    speech = example_speech()
    for number in range(count):
        write_recording(folder / f"{number % 40:02}" / f"{number:04}.wav", speech[number * 20 : number * 20 + 1600])
    (folder / "07" / "0007.wav").write_bytes(b"")
    done = tree.transcribe(folder, timeout_s=290)
    assert done.code == SOME_FAILED, done.stderr[-2000:]
    complaint(done, "0007.wav", "empty_file")
    assert len(files_below(tree.out)) == count - 1
