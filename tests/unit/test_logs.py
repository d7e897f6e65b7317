"""Logs: one JSON object a line, with the ids of what is being done."""

import contextlib
import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from tests.rows import at_once
from voicejobs import logs

logger = logging.getLogger("voicejobs.test")


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    """Return what our formatter writes for this logger."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logs.JsonFormatter())
    logger.addHandler(handler)
    logger.propagate = False
    logger.setLevel("INFO")
    yield stream
    logger.removeHandler(handler)
    logger.propagate = True
    logger.setLevel("NOTSET")


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    """Return the lines, decoded."""
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_line_is_one_json_object(stream: io.StringIO) -> None:
    """Time, level, logger, event and extras are there, and line breaks do not end the line."""
    logger.info("two\nlines of %s", "ü", extra={"jobs": 3, "path": object})
    (line,) = lines(stream)
    assert (line["level"], line["logger"], line["jobs"]) == ("info", "voicejobs.test", 3)
    assert line["event"] == "two\nlines of ü"
    assert line["time"].endswith("+00:00")
    assert line["path"] == "<class 'object'>"


def test_an_exception_is_told_with_its_trace(stream: io.StringIO) -> None:
    """The trace is a field of the same line."""
    try:
        1 / 0  # noqa: B018 - the error is what we want
    except ZeroDivisionError:
        logger.exception("failed")
    assert "ZeroDivisionError" in lines(stream)[0]["traceback"]


def test_ids_are_bound_for_a_block(stream: io.StringIO) -> None:
    """Bound ids are on each line of the block, nest, and are gone after it, also after an error."""
    with logs.bind(job_id="a"):
        with contextlib.suppress(KeyError), logs.bind(step="b", job_id="c"):
            logger.info("inner")
            raise KeyError
        logger.info("outer")
    logger.info("after")
    told = [(line.get("job_id"), line.get("step")) for line in lines(stream)]
    assert told == [("c", "b"), ("a", None), (None, None)]


def test_ids_of_threads_do_not_mix(stream: io.StringIO) -> None:
    """Each thread has its own ids, though all write to one stream."""

    def work(number: int) -> None:
        with logs.bind(job_id=number):
            for _ in range(20):
                logger.info("%s", number)

    at_once(8, work)
    told = lines(stream)
    assert len(told) == 160
    assert all(str(line["job_id"]) == line["event"] for line in told)


def test_configuring_replaces_all_handlers(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """After `configure` the root has our handler alone, at the level asked for; Celery's chatter is off."""
    root = logging.getLogger()
    names = ("celery.app.trace", "celery.worker.strategy")
    before = (list(root.handlers), root.level, [logging.getLogger(name).level for name in names])
    try:
        logs.configure("ERROR")
        assert [type(handler.formatter) for handler in root.handlers] == [logs.JsonFormatter]
        logging.getLogger("anything").warning("not shown")
        logging.getLogger("anything").error("shown")
        assert [json.loads(line)["event"] for line in capsys.readouterr().err.splitlines()] == ["shown"]
        assert not logging.getLogger(names[0]).isEnabledFor(logging.INFO)
    finally:
        root.handlers[:], level, levels = before
        root.setLevel(level)
        for name, one in zip(names, levels, strict=True):
            logging.getLogger(name).setLevel(one)
