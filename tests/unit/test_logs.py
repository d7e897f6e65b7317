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


SECRETS = [
    ("Authorization: Bearer vj_ab12cd34_s3cretS3cretS3cret_x9", "s3cret"),
    ("x-api-key: vj_live_AbCd1234_s3cretS3cretS3cretS3cretS3cretS3_Ch3ck1", "s3cret"),
    ("took vj_live_AbCd1234_s3cretS3cretS3cretS3cretS3cretS3_Ch3ck1", "s3cret"),
    ("headers={'authorization': 'Basic dXNlcjpzM2NyZXQ='}", "dXNlcj"),
    ('{"Authorization": "Token s3cret", "b": 1}', "s3cret"),
    ("curl -H 'Authorization: Bearer eyJhbGciOi.s3cret'", "s3cret"),
    ("signed with whsec_c2VjcmV0czNjcmV0", "c2VjcmV0"),
    ("rediss://:s3cret@broker:6379/1", "s3cret"),
    ("postgresql+psycopg://user:p%40s3cret@db/name", "s3cret"),
    ("redis://user:s3@zz9@broker/0", "zz9"),
    ("https://bucket/a.wav?X-Amz-Credential=s3cret&X-Amz-Signature=s3cret&X-Amz-Date=20261130", "s3cret"),
    ("https://host/a.wav?sig=s3cret", "s3cret"),
    ("https://host/hook?token=s3cret#part", "s3cret"),
    ("password=s3cret", "s3cret"),
    ("api_key: s3cret", "s3cret"),
]


@pytest.mark.parametrize(("text", "secret"), SECRETS)
@pytest.mark.parametrize("where", ["event", "extra", "bound", "traceback", "nested"])
def test_secrets_are_masked_wherever_they_stand(stream: io.StringIO, where: str, text: str, secret: str) -> None:
    """Headers, keys, secrets of webhooks, addresses and fields: no line holds what would open something."""
    with logs.bind(**({"note": text} if where == "bound" else {})):
        try:
            dict[str, str]()[text]
        except KeyError:
            logger.info(
                text if where == "event" else "told",
                extra={"extra": {"a": [text]} if where == "nested" else text} if where in {"extra", "nested"} else {},
                exc_info=where == "traceback",
            )
    assert secret not in stream.getvalue()
    assert "***" in stream.getvalue()
    assert len(lines(stream)) == 1, "still one JSON object"


@pytest.mark.parametrize("name", ["authorization", "password", "api_key", "rpc_keys", "client_secret"])
def test_fields_that_are_called_after_a_secret_are_masked(stream: io.StringIO, name: str) -> None:
    """A careless `extra` tells nothing."""
    logger.info("told", extra={name: "s3cret and more"})
    assert lines(stream)[0][name] == "***"


@pytest.mark.parametrize(
    "text",
    [
        "http://127.0.0.1:8000/v1/jobs?after=job_1&limit=20",
        "key vj_live_AbCd1234 was revoked",
        "the basic profile, bearer of news",
        "grpc://host:50051",
        "job_01hz, 3/12: signal 9",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    """Addresses, ids of keys and plain words are told as they are."""
    assert logs.redacted(text) == text
