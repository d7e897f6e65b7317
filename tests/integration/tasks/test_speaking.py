import json
from pathlib import Path

import numpy as np
import pytest
import soundfile as sf

from tests.bench import Bench
from tests.rows import job, steps
from tests.speaking import expected, heard, speak, target, text_file
from voicejobs.submit import InputFile

TEXT = "Good morning. This is a text of three sentences! Does it end here?\n\nNo, it goes on in a second paragraph."
LONG = " ".join(f"This is sentence number {number} of a long text, and it has some words." for number in range(400))


def test_a_text_becomes_sound_and_captions(either_bench: Bench) -> None:
    """Every piece is heard once and in order, at peak 0.95; the captions say the same text with rising times."""
    bench = either_bench
    bench.start_worker()
    (one,) = speak(bench, text_file(bench, "a.txt", TEXT), join={"captions": ["srt", "json"]})
    assert bench.wait_ended(one.job_id) == {one.job_id: "succeeded"}
    stem = str(target(bench, "a.txt"))
    assert heard(target(bench, "a.txt").with_suffix(".wav")) == expected(TEXT)
    samples, rate_hz = sf.read(stem + ".wav", dtype="float32")
    assert rate_hz == 22_050
    assert float(np.max(np.abs(samples))) == pytest.approx(0.95, abs=0.001)
    segments = json.loads(Path(f"{stem}.json").read_text("utf-8"))["segments"]
    times = [moment for segment in segments for moment in (segment["start"], segment["end"])]
    assert times == sorted(times)
    assert times[-1] <= len(samples) / rate_hz + 0.001
    assert " ".join(segment["text"].strip() for segment in segments).split() == TEXT.split()
    assert bench.text(one.job_id).split() == TEXT.split()
    outputs = json.loads(job(bench.database, one.job_id).outputs)
    assert [output["format"] for output in outputs] == ["wav", "srt", "json"]
    assert not list((bench.folder / "state" / "blobs" / "scratch").iterdir())


def test_a_long_text_forks_and_is_joined(bench: Bench) -> None:
    """Shards run beside each other; the whole holds every piece of every shard in order."""
    bench.start_worker()
    (one,) = speak(bench, text_file(bench, "long.txt", LONG), join={"formats": ["flac"]})
    assert bench.wait_ended(one.job_id) == {one.job_id: "succeeded"}
    assert len([name for name in steps(bench.database, one.job_id) if name.startswith("synthesise")]) > 2
    assert heard(target(bench, "long.txt").with_suffix(".flac")) == expected(LONG)


@pytest.mark.timeout(300)
def test_a_hundred_pages_are_spoken_to_the_last_word_in_flat_memory(bench: Bench) -> None:
    """Every piece of 250,000 characters is heard once and in order; the worker needs no more than for a tenth."""
    worker = bench.start_worker(engine_processes=2)
    peaks_mb = []
    for number, pages in enumerate((10, 100)):
        text = "\n\n".join(page(count) for count in range(pages))
        (one,) = speak(bench, text_file(bench, f"{pages}.txt", text))
        assert bench.wait_ended(one.job_id, timeout_s=240) == {one.job_id: "succeeded"}
        peaks_mb.append(peak_mb(worker.pid))
        assert heard(target(bench, f"{pages}.txt").with_suffix(".wav")) == expected(text), number
    assert peaks_mb[1] < peaks_mb[0] + 40


def page(number: int) -> str:
    """Return a page of text, 2,500 characters of which no two sentences are the same."""
    line = "On page {} the sentence number {} tells of a harbour, a lantern and a captain who watched the market."
    return " ".join(line.format(number, place) for place in range(26))


def peak_mb(pid: int) -> float:
    """Return the largest resident memory that a process has had."""
    (line,) = (line for line in Path(f"/proc/{pid}/status").read_text("ascii").splitlines() if "VmHWM" in line)
    return int(line.split()[1]) / 1000


def test_a_text_that_lies_in_no_file(bench: Bench) -> None:
    """It is kept with the job, and neither its row nor a message holds it; the same text again is found done."""
    text = "This text was given by hand, and lies in no file at all."
    given = InputFile("text:1", "given", str(target(bench, "given")), text=text)
    (one,) = speak(bench, given)
    row = job(bench.database, one.job_id)
    assert "by hand" not in row.source + row.options
    bench.start_worker()
    assert bench.wait_ended(one.job_id) == {one.job_id: "succeeded"}
    assert heard(target(bench, "given").with_suffix(".wav")) == expected(text)
    (again,) = speak(bench, given)
    assert (again.outcome, again.job_id) == ("done", one.job_id)
    (other,) = speak(bench, InputFile("text:1", "given", str(target(bench, "given2")), text=text + " More."))
    assert other.outcome == "submitted"


def test_other_files_of_a_sound_are_made_without_speaking_again(bench: Bench) -> None:
    """While its wav is there, only `join` runs; at another rate, or where the file went meanwhile, all is spoken."""
    bench.start_worker()
    file = text_file(bench, "a.txt", TEXT)
    (first,) = speak(bench, file)
    assert bench.wait_ended(first.job_id) == {first.job_id: "succeeded"}
    (second,) = speak(bench, file, join={"formats": ["mp3"], "captions": ["srt"]})
    (third,) = speak(bench, file, join={"formats": ["flac"], "sample_rate_hz": 16_000})
    assert set(bench.wait_ended(second.job_id, third.job_id).values()) == {"succeeded"}
    assert set(steps(bench.database, second.job_id)) == {"join"}
    assert "synthesise" in steps(bench.database, third.job_id)
    stem = target(bench, "a.txt")
    assert heard(stem.with_suffix(".mp3")) == heard(stem.with_suffix(".flac")) == expected(TEXT)
    assert stem.with_suffix(".srt").read_text("utf-8").count("-->") > 1
    bench.close()
    (fourth,) = speak(bench, file, join={"formats": ["opus"]})
    stem.with_suffix(".wav").unlink()
    bench.start_worker()
    assert bench.wait_ended(fourth.job_id) == {fourth.job_id: "succeeded"}
    assert heard(stem.with_suffix(".opus")) == expected(TEXT)
    assert "synthesise" in steps(bench.database, fourth.job_id)


def test_what_cannot_be_spoken_fails_with_words(bench: Bench) -> None:
    """A text without a word and bytes that are no text end their jobs, and no other."""
    bench.start_worker()
    files = [text_file(bench, name, text) for name, text in (("no.txt", "... !!! ..."), ("yes.txt", "Yes."))]
    bad = bench.folder / "in" / "bad.txt"
    bad.write_bytes(b"\xff\xfe\x00\xd8\x00\x00")
    accepted = speak(bench, *files, InputFile(str(bad), "bad.txt", str(target(bench, "bad.txt"))))
    states = bench.wait_ended(*(one.job_id for one in accepted))
    assert list(states.values()) == ["failed", "succeeded", "failed"]
    codes = [job(bench.database, one.job_id).error_code for one in accepted]
    assert codes == ["empty_text", None, "bad_text"]
