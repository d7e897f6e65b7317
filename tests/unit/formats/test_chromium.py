"""Our WebVTT in a `<track>` of a real browser."""

import os
import shutil
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.unit.formats.word_lists import transcripts
from voicejobs.audio.types import Segment, Transcript
from voicejobs.formats import RenderOptions, render
from voicejobs.formats.cues import cues_of

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
READ = """
async (content) => {
    const video = document.createElement("video");
    const track = document.createElement("track");
    track.default = true;
    track.kind = "subtitles";
    track.src = URL.createObjectURL(new Blob([content], {type: "text/vtt"}));
    const loaded = new Promise((resolve, reject) => { track.onload = resolve; track.onerror = reject; });
    video.append(track);
    document.body.append(video);
    track.track.mode = "hidden";
    await loaded;
    const cues = Array.from(track.track.cues, (cue) => {
        const shown = cue.getCueAsHTML();
        const voice = shown.querySelector("span[title]");
        return [cue.startTime, cue.endTime, shown.textContent, voice === null ? null : voice.title];
    });
    video.remove();
    return cues;
}
"""


@pytest.fixture(scope="module")
def page() -> Iterator[Any]:
    """Yield an empty page of a headless Chromium; skip where there is none."""
    path = next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        pytest.skip("there is no Chromium here (Debian: apt-get install chromium)")
    api = pytest.importorskip("playwright.sync_api")
    with api.sync_playwright() as playwright:
        arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = playwright.chromium.launch(executable_path=path, args=arguments)
        try:
            yield browser.new_page()
        finally:
            browser.close()


def assert_same_cues(page: Any, transcript: Transcript, options: RenderOptions) -> None:
    """Check that the browser has our cues: as many, with their times, texts and voices."""
    cues = cues_of(transcript, options)
    found = page.evaluate(READ, render(transcript, "vtt", options).decode())
    times = [(round(start * 1000), round(end * 1000)) for start, end, *_ in found]
    assert times == [(cue.start_ms, cue.end_ms) for cue in cues]
    assert [text for _, _, text, _ in found] == [cue.text for cue in cues]
    assert [voice for *_, voice in found] == [
        f"Channel {cue.channel + 1}" if options.channel_labels and cue.channel is not None else None for cue in cues
    ]


@pytest.mark.timeout(120)
@given(transcript=transcripts, labels=st.booleans(), width=st.sampled_from([None, 12]))
@settings(
    deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
def test_chromium_reads_our_cues(page: Any, transcript: Transcript, width: int | None, *, labels: bool) -> None:
    """Whatever was said, the browser finds the cues that we meant."""
    assert_same_cues(page, transcript, RenderOptions(channel_labels=labels, max_line_width=width))


def test_chromium_reads_awkward_text(page: Any) -> None:
    """Markup, entities, arrows and words of the format itself are text like any other."""
    texts = ["<b>bold</b> & <i", "&lt; &amp;amp; &nbsp;", "--> 00:00:01.000 --> 00:00:02.000", "WEBVTT", "NOTE x",
             "STYLE ::cue {}", "<00:00:03.000>word", "שלום & مرحبا", "1", "<v Nobody>says"]  # fmt: skip
    segments = tuple(Segment(number * 5, number * 5 + 3, text, channel=0) for number, text in enumerate(texts))
    assert_same_cues(page, Transcript(segments, None, 60.0), RenderOptions())


@pytest.mark.parametrize("hours", [1, 100])
def test_chromium_reads_times_past_hours(page: Any, hours: int) -> None:
    """The browser counts hours as we do."""
    start = hours * 3600 + 59 * 60 + 59.999
    transcript = Transcript((Segment(start, start + 2, "Late."),), "en", start + 10)
    assert_same_cues(page, transcript, RenderOptions())
