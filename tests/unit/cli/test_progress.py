"""What people see of a run."""

import io
from typing import Any

import pytest

from voicejobs.cli.globals import Globals
from voicejobs.cli.progress import Bars, Failures, Lines, Plain, describe, human_view, summary_line, whole
from voicejobs.cli.report import ActiveFile, FileReport, Snapshot, Summary

FACTS: dict[str, Any] = {
    "files": 1,
    "engine": "fake",
    "model": "",
    "formats": ["txt"],
    "output_dir": "out",
    "options": {},
}
ERROR = {"code": "not_audio", "message": "a.wav is\x1b[2J no sound", "hint": "Look.", "details": {}}
REPORTS = (
    FileReport("a.wav", "succeeded", audio_s=61.0),
    FileReport("b.wav", "succeeded", audio_s=2.0, warnings=("no_speech",)),
    FileReport("c.wav", "failed", error=ERROR),
    FileReport("d.zip", "skipped", reason="archive"),
    FileReport("e.wav", "skipped", reason="excluded"),
    FileReport("f.wav", "done"),
)
WHOLE = Snapshot(10, 3, 32.0, 200.0, is_estimate=True, speed=12.34, eta_s=14.0)


def said(view: Any, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Return the lines that a view writes about a run."""
    with view:
        view.start(FACTS)
        for report in REPORTS:
            view.file(report)
        view.warn("disk_full", "No space")
        view.summary(Summary("out"))
    out, err = capsys.readouterr()
    assert out == ""
    return [line.split()[0] for line in err.splitlines()]


def test_quiet_shows_failures_alone(capsys: pytest.CaptureFixture[str]) -> None:
    """With their hints."""
    assert said(Failures(Globals(quiet=True)), capsys) == ["failed", "Look."]


def test_no_progress_shows_failures_warnings_and_the_summary(capsys: pytest.CaptureFixture[str]) -> None:
    """And what was skipped for a reason that nobody gave."""
    assert said(Plain(Globals()), capsys) == ["failed", "Look.", "skipped", "warning", "0"]


def test_lines_show_each_ended_file(capsys: pytest.CaptureFixture[str]) -> None:
    """Without a terminal there is one line for each."""
    assert said(Lines(Globals()), capsys) == ["done", "done", "failed", "Look.", "skipped", "warning", "0"]


def test_verbose_shows_every_file(capsys: pytest.CaptureFixture[str]) -> None:
    """What was there already, too, and what is going to be done."""
    words = ["1", "done", "done", "failed", "Look.", "skipped", "skipped", "as", "warning", "0"]
    assert said(Lines(Globals(verbose=1)), capsys) == words


def test_a_line_comes_every_ten_seconds_where_nothing_ends(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says how far the whole is, and names what is at work."""
    now = 100.0
    monkeypatch.setattr("voicejobs.cli.progress.time.monotonic", lambda: now)
    view = Lines(Globals())
    working = Snapshot(10, 3, 32.0, 200.0, True, 12.34, 14.0, (ActiveFile("j", "a.wav", "recognise", 30.0, 90.0),))
    for _ in range(250):
        now += 0.1
        view.progress(working)
    lines = capsys.readouterr().err.splitlines()
    assert lines == 2 * ["3/10 files, 0:32 of ~3:20, 12.3x realtime, ~0:14 left; a.wav recognise 0:30 of 1:30"]


def test_what_is_unknown_is_not_shown() -> None:
    """Neither a total nor a speed nor a time is made up."""
    assert whole(Snapshot(10, 0, 0.0, None, is_estimate=True, speed=None, eta_s=None)) == "0/10 files, 0:00"


def test_control_characters_are_escaped() -> None:
    """In messages, too, which may hold names and words of others."""
    _, _, text = describe(REPORTS[2])
    assert "\x1b" not in text
    assert "\\x1b[2J" in text


def test_the_summary_says_where_the_files_are() -> None:
    """How many, how fast, and what a reader should know."""
    summary = Summary("out", elapsed_s=10.0)
    summary.note(FileReport("a", "succeeded", audio_s=60.0, outputs=({"format": "txt"}, {"format": "srt"})))
    for report in REPORTS[1:]:
        summary.note(report)
    assert summary_line(summary) == (
        "2 transcribed, 1 done before, 2 skipped, 1 failed: 1:02 of audio in 10.0 s, 6.2x realtime; "
        "2 files in out; no speech in 1"
    )


@pytest.mark.parametrize(
    ("live", "is_terminal", "kind"), [(True, True, Bars), (False, True, Lines), (True, False, Lines)]
)
def test_bars_need_a_terminal_that_can_be_redrawn(
    live: bool, is_terminal: bool, kind: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under CI, with TERM=dumb and in a pipe there are lines."""
    stream = io.StringIO()
    monkeypatch.setattr(stream, "isatty", lambda: is_terminal)
    monkeypatch.setattr("sys.stderr", stream)
    assert type(human_view(Globals(live=live), no_progress=False)) is kind
    assert type(human_view(Globals(live=live), no_progress=True)) is Plain
    assert type(human_view(Globals(live=live, quiet=True), no_progress=False)) is Failures


@pytest.mark.parametrize("width", [200, 80, 30, 5, 1])
def test_no_row_of_the_bars_is_wider_than_the_terminal(width: int) -> None:
    """However narrow it is, and whatever a file is called: a row that wraps could not be taken back."""
    from rich.cells import cell_len

    view = Bars(Globals())
    console = view._bars.console
    console._width, console.file = width, io.StringIO()
    names = ("\u4f1a\u8bae" * 40, "a[b]c" * 20, "\U0001f3a4 x", "")
    active = tuple(ActiveFile(str(n), name, "recognise", 30.0, 90.0, 2.0, 30.0) for n, name in enumerate(names))
    view.progress(Snapshot(10, 3, 32.0, 200.0, True, 12.3, 14.0, active))
    view.progress(WHOLE)
    view.progress(Snapshot(10, 3, 32.0, 200.0, True, 12.3, 14.0, active))
    with console.capture() as captured:
        console.print(view._bars.get_renderable())
    rows = captured.get().splitlines()
    assert max(cell_len(row) for row in rows) <= width
    assert len(rows) == 1 + len(active)
