"""What the command takes as its inputs, and what it leaves aside."""

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from tests.acceptance.harness import write_recording
from voicejobs.cli.inputs import RECORDINGS, Argument, Found, Search, Selection, find_inputs, holds_any
from voicejobs.cli.lists import expand_lists, split_list
from voicejobs.cli.patterns import Pattern
from voicejobs.errors import BadOption


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty folder that is the current one."""
    (tmp_path / "in").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path / "in"


def put(folder: Path, *names: str) -> None:
    """Write small files."""
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(b"some bytes")


def find(*paths: str, search: Search | None = None) -> Selection:
    """Find inputs."""
    return find_inputs(expand_lists(paths), search)


def names(selection: Selection) -> list[str]:
    """Return the places of the inputs below what was named."""
    return [one.relative for one in selection.found]


def codes(selection: Selection) -> dict[str, str]:
    """Return the codes of the inputs that were found with an error, by place."""
    return {one.relative: one.error.code for one in selection.found if one.error}


def test_a_folder_gives_its_recordings_in_the_order_of_their_names(folder: Path) -> None:
    """Files of a folder come before its folders; endings count in any case."""
    put(folder, "b/x.mp3", "b.wav", "a.WAV", "b/c/y.m4a", "notes.txt")
    selection = find("in")
    assert names(selection) == ["a.WAV", "b.wav", "b/x.mp3", "b/c/y.m4a"]
    assert selection.passed_over == {"other": 1}


def test_no_recursive_stays_at_the_top(folder: Path) -> None:
    """Folders in it are counted, not searched."""
    put(folder, "a.wav", "b/x.wav")
    selection = find("in", search=Search(recursive=False))
    assert names(selection) == ["a.wav"]
    assert selection.passed_over == {"folder": 1}


def test_what_nobody_means_is_passed_over(folder: Path) -> None:
    """Hidden files, those of macOS, and links to folders."""
    put(folder, "a.wav", "._a.wav", ".hidden/a.wav", "__MACOSX/a.wav", ".DS_Store", ".voicejobs/a.wav")
    (folder / "loop").symlink_to(folder)
    selection = find("in")
    assert names(selection) == ["a.wav"]
    assert selection.passed_over == {"hidden": 5, "link": 1}


def test_archives_are_skipped_with_a_reason(folder: Path) -> None:
    """They are never opened."""
    put(folder, "a.wav", "bomb.zip", "old.tar.gz")
    assert {(one.name, one.reason) for one in find("in").skipped} == {
        ("bomb.zip", "archive"),
        ("old.tar.gz", "archive"),
    }


def test_a_file_without_an_ending_is_told_by_its_first_bytes(folder: Path) -> None:
    """A recording is taken, a README is not."""
    write_recording(folder / "a.wav", np.zeros(100, np.int16)).rename(folder / "recording")
    put(folder, "README")
    assert names(find("in")) == ["recording"]


def test_links_to_files_are_followed_and_broken_ones_are_errors_later(folder: Path) -> None:
    """A link that leads nowhere, or to itself, is named like audio: it is taken, and refused when it is read."""
    put(folder, "a.wav")
    (folder / "b.wav").symlink_to("a.wav")
    (folder / "gone.wav").symlink_to("nowhere")
    (folder / "self.wav").symlink_to("self.wav")
    assert names(find("in")) == ["a.wav", "b.wav", "gone.wav", "self.wav"]


@pytest.mark.timeout(20)
def test_pipes_sockets_and_devices_are_never_opened(folder: Path) -> None:
    """In a folder they are skipped with a reason, by name they are refused."""
    put(folder, "a.wav")
    os.mkfifo(folder / "pipe.wav")
    os.mkfifo(folder / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(folder / "s.wav"))
        selection = find("in")
        named = find("in/pipe.wav", "in/s.wav", os.devnull)
    assert names(selection) == ["a.wav"]
    assert {(one.name, one.reason) for one in selection.skipped} == {("pipe.wav", "special"), ("s.wav", "special")}
    assert codes(named) == {"pipe.wav": "not_audio", "s.wav": "not_audio", "null": "not_audio"}


@pytest.mark.skipif(os.geteuid() == 0, reason="root may list everything")
def test_a_folder_that_may_not_be_listed_costs_the_others_nothing(folder: Path) -> None:
    """It is an error of its own."""
    put(folder, "a.wav", "locked/b.wav", "z/c.wav")
    (folder / "locked").chmod(0)
    try:
        selection = find("in")
    finally:
        (folder / "locked").chmod(0o700)
    assert names(selection) == ["a.wav", "locked", "z/c.wav"]
    assert codes(selection) == {"locked": "unreadable"}


def test_a_path_that_is_not_there_costs_the_others_nothing(folder: Path) -> None:
    """A mistyped name, a pattern without a match, an empty argument: each is an error of its own."""
    put(folder, "a.wav")
    selection = find("in/a.wav", "in/b.wav", "in/*.mp3", "", "in/a.wav/x")
    assert codes(selection) == {"b.wav": "not_found", "in/*.mp3": "not_found", "": "not_found", "x": "not_found"}
    assert names(selection)[0] == "a.wav"


def test_a_file_is_taken_once_however_it_is_named(folder: Path) -> None:
    """By its folder, by itself, by a pattern, and by another spelling of the path."""
    put(folder, "a.wav", "b.wav")
    selection = find("in", "in/a.wav", "in/*", "./in/../in/b.wav", str(folder / "a.wav"))
    assert names(selection) == ["a.wav", "b.wav"]


def test_a_pattern_takes_recordings_and_the_folders_it_matches(folder: Path) -> None:
    """Their places count from the folder before the first wildcard."""
    put(folder, "2024-01/a.wav", "2024-02/deep/b.wav", "2023/c.wav", "2024.wav", "2024.txt")
    assert names(find("in/2024*")) == ["2024.wav", "2024-01/a.wav", "2024-02/deep/b.wav"]
    assert names(find("in/**/*.wav")) == ["2024.wav", "2023/c.wav", "2024-01/a.wav", "2024-02/deep/b.wav"]
    assert names(find("in/*/*.wav")) == ["2023/c.wav", "2024-01/a.wav"]


def test_an_ending_that_a_pattern_spells_out_is_taken(folder: Path) -> None:
    """A recorder's own ending is no obstacle then."""
    put(folder, "a.dat", "b.wav", "c.txt")
    assert names(find("in/*.dat")) == ["a.dat"]
    assert names(find("in", search=Search(include=(Pattern("*.dat", anywhere=True),)))) == ["a.dat"]


def test_a_name_with_wildcards_in_it_is_itself_first(folder: Path) -> None:
    """`take[1].wav` is a file where there is one."""
    put(folder, "take[1].wav", "take1.wav")
    assert names(find("in/take[1].wav")) == ["take[1].wav"]


def test_include_and_exclude(folder: Path) -> None:
    """What is excluded is left aside even if it is included, a folder with all that is in it."""
    put(folder, "a.wav", "b.wav", "drafts/c.wav", "x/drafts/d.wav", "x/e.mp3")
    wav = (Pattern("*.wav", anywhere=True),)
    drafts = (Pattern("drafts", anywhere=True), Pattern("b.*", anywhere=True))
    selection = find("in", search=Search(include=wav, exclude=drafts))
    assert names(selection) == ["a.wav"]
    assert {(one.name, one.reason) for one in selection.skipped} == {
        ("b.wav", "excluded"), ("drafts/", "excluded"), ("x/drafts/", "excluded"), ("x/e.mp3", "not_included"),
    }  # fmt: skip
    assert names(find("in/a.wav", "in/b.wav", search=Search(exclude=drafts))) == ["a.wav"]


def test_small_files_are_left_aside(folder: Path) -> None:
    """By --min-size, with a reason; an empty one as well."""
    put(folder, "a.wav")
    (folder / "b.wav").write_bytes(b"x" * 2000)
    (folder / "c.wav").touch()
    selection = find("in", search=Search(min_size=1024))
    assert names(selection) == ["b.wav"]
    assert {one.reason for one in selection.skipped} == {"too_small"}


def test_the_output_folder_is_no_input_unless_it_is_named(folder: Path) -> None:
    """It may lie in the folder that is searched."""
    put(folder, "a.wav", "out/b.wav")
    search = Search(barred=str(folder / "out"))
    selection = find("in", search=search)
    assert names(selection) == ["a.wav"]
    assert [(one.name, one.reason) for one in selection.skipped] == [("out/", "output_folder")]
    assert holds_any(search.barred, RECORDINGS)
    assert names(find("in/out", search=search)) == ["b.wav"]
    assert names(find("in/out", "in", search=search)) == ["out/b.wav", "in/a.wav"]
    assert names(find("in", search=Search(barred=str(folder)))) == ["a.wav", "out/b.wav"]


def test_several_folders_keep_their_names_in_front(folder: Path) -> None:
    """Where the names are the same, as much of the path as tells them apart."""
    put(folder, "mon/a.wav", "tue/a.wav", "x/rec/a.wav", "y/rec/a.wav")
    assert names(find("in/mon", "in/tue")) == ["mon/a.wav", "tue/a.wav"]
    assert names(find("in/x/rec", "in/y/rec/")) == ["x/rec/a.wav", "y/rec/a.wav"]
    assert names(find("in/mon", "./in/mon/")) == ["a.wav"]


def test_standard_input_is_what_the_search_says(folder: Path) -> None:
    """A file that is called `-` is named by its folder."""
    put(folder, "-")
    stdin = Found("/spool/x", "stdin")
    assert find("-", search=Search(stdin=lambda: stdin)).found == [stdin]
    assert names(find("in/-")) == ["-"]


def test_a_list_names_paths_as_they_are(folder: Path, tmp_path: Path) -> None:
    """Blank lines, CR LF and a byte order mark count for nothing, wildcards and signs stand for themselves."""
    put(folder, "a.wav", "b.wav", "take[1].wav")
    (tmp_path / "list.txt").write_bytes(b"\xef\xbb\xbfin/a.wav\r\n\r\nin/take[1].wav\r\nin/*.wav\r\n")
    selection = find("@list.txt")
    assert names(selection) == ["a.wav", "take[1].wav", "*.wav"]
    assert codes(selection) == {"*.wav": "not_found"}
    with pytest.raises(BadOption):
        find("@nowhere.txt")
    with pytest.raises(BadOption):
        find("-", "@-")


def test_a_list_may_be_separated_by_nul() -> None:
    """Then names may hold line ends; bytes that are no UTF-8 stay."""
    assert split_list(b"a\nb.wav\0caf\xe9.wav\0") == ["a\nb.wav", os.fsdecode(b"caf\xe9.wav")]


def test_a_file_whose_name_begins_with_the_sign_of_a_list_is_a_file(folder: Path, tmp_path: Path) -> None:
    """Where there is no such list."""
    put(tmp_path, "@talk.wav")
    assert expand_lists(["@talk.wav"]) == [Argument("@talk.wav")]
    assert names(find("./@talk.wav")) == ["@talk.wav"]


def test_a_deep_tree_is_searched_to_its_leaves(folder: Path) -> None:
    """Deeper than Python would recurse, up to what a path can hold."""
    depth = 1500
    place = os.open(folder, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("d", dir_fd=place)
        below = os.open("d", os.O_RDONLY, dir_fd=place)
        os.close(place)
        place = below
    os.close(os.open("a.wav", os.O_CREAT | os.O_WRONLY, dir_fd=place))
    os.close(place)
    assert sys.getrecursionlimit() < depth
    try:
        assert [len(name) for name in names(find("in"))] == [2 * depth + len("a.wav")]
    finally:  # pytest removes old folders by recursion
        subprocess.run(["rm", "-rf", str(folder / "d")], check=True)


def test_ten_thousand_files_are_found_in_a_moment(folder: Path) -> None:
    """Neither the search nor the naming grows with the square."""
    for number in range(100):
        (folder / f"{number:03}").mkdir()
    for number in range(10_000):
        (folder / f"{number % 100:03}" / f"{number}.wav").touch()
    began = time.perf_counter()
    assert len(find("in", search=Search(exclude=(Pattern("x/**"),))).found) == 10_000
    assert time.perf_counter() - began < 10
