"""Limits of keys: numbers that are none are refused where they are given, and do no harm where they are kept."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update

from tests.rows import opened
from voicejobs.api.limits import Gauge
from voicejobs.api.live import Places
from voicejobs.api.problems import LONGEST_RETRY_S, problem_headers, retry_after_s
from voicejobs.api.webhooks import MOST_TESTS, MOST_TESTS_OF_ONE, RunningTests
from voicejobs.cli.main import run
from voicejobs.errors import BadOption, QueueFull, RateLimited
from voicejobs.settings import Settings
from voicejobs.store import keys
from voicejobs.store.keys import LARGEST_LIMIT, LOWEST_RATE, NewKey
from voicejobs.store.schema import api_keys

ODD_RATES = [1e-320, 5e-324, LOWEST_RATE / 2, -1.0, math.nan, math.inf, -math.inf, 1e300, 2.0 * LARGEST_LIMIT]


@pytest.mark.parametrize("rate", ODD_RATES)
def test_a_rate_that_is_none_is_refused_and_ignored(rate: float, sqlite_url: str) -> None:
    """No key is made with it; in place of one that stands in a row, the limit of the service counts."""
    with opened(sqlite_url) as database:
        with pytest.raises(BadOption, match="requests_per_minute") as caught:
            keys.create_key(database, NewKey(limits={"requests_per_minute": rate}))
        assert caught.value.details["param"] == "limits.requests_per_minute"
        key, _ = keys.create_key(database, NewKey(limits={"requests_per_minute": 5, "concurrency": 3}))
        with database.begin() as connection:
            limits = json.dumps({"requests_per_minute": rate, "concurrency": 3})
            connection.execute(update(api_keys).values(limits=limits))
        assert keys.get_key(database, key.id).limits == {"concurrency": 3}


@pytest.mark.parametrize("limits", [{"concurrency": -1}, {"concurrency": 1.5}, {"concurrency": math.nan}, {"speed": 1}])
def test_other_limits_are_whole_numbers(limits: dict[str, float], sqlite_url: str) -> None:
    """A part of a request is none, and there is no limit of another name."""
    with opened(sqlite_url) as database, pytest.raises(BadOption):
        keys.create_key(database, NewKey(limits=limits))


@pytest.mark.parametrize("rate", [0.0, LOWEST_RATE, 1.0, float(LARGEST_LIMIT)])
def test_rates_at_the_borders_are_taken(rate: float, sqlite_url: str) -> None:
    """0 is no limit, and the least and the greatest rate are rates."""
    with opened(sqlite_url) as database:
        key, _ = keys.create_key(database, NewKey(limits={"requests_per_minute": rate}))
        assert key.limits == {"requests_per_minute": rate}


@pytest.mark.parametrize("rate", ODD_RATES)
def test_a_gauge_has_an_answer_for_every_rate(rate: float) -> None:
    """Whatever rate it is given: requests pass, or are told in whole seconds, 120 at most, when to come again."""
    gauge = Gauge(rate, 0)
    for _ in range(10):
        standing = gauge.take("key", {})
        assert standing is None or int(standing.to_headers()["x-ratelimit-limit-requests"]) >= 10
    if 0 < rate < 1:
        with pytest.raises(RateLimited) as caught:
            gauge.take("key", {})
        assert problem_headers(caught.value)["Retry-After"] == str(LONGEST_RETRY_S)


@pytest.mark.parametrize(
    ("details", "seconds"),
    [
        ({"retry_after_ms": 1000.5}, 2),
        ({"retry_after_ms": 1}, 1),
        ({"retry_after_s": 1.2}, 2),
        ({"retry_after_s": 0}, 1),
        ({"retry_after_ms": math.inf}, LONGEST_RETRY_S),
        ({"retry_after_ms": math.nan}, LONGEST_RETRY_S),
        ({"retry_after_s": 1e300}, LONGEST_RETRY_S),
        ({}, 5),
    ],
)
def test_retry_after_is_rounded_up_and_has_an_end(details: dict[str, Any], seconds: int) -> None:
    """Who comes after the time that he was told finds room; whole seconds, from 1 to 120."""
    assert retry_after_s(RateLimited("", **details)) == seconds


@pytest.mark.parametrize("name", ["api_requests_per_minute", "api_concurrency"])
@pytest.mark.parametrize("text", ["-1", "nan", "inf", "0.5", "1e-320", "1000001", "9" * 400])
def test_settings_of_limits_are_numbers_that_can_be_worked_with(name: str, text: str) -> None:
    """Only whole numbers that a key might have for itself are taken."""
    with pytest.raises(BadOption, match=name.upper()):
        Settings.from_env({"HOME": "/nowhere", f"VOICEJOBS_{name.upper()}": text})


@pytest.mark.parametrize("text", ["1e-320", "-1", "nan", "inf", "1e9"])
def test_the_command_refuses_such_a_rate(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`key create` makes no key that nobody can use, and none without the limit that was meant."""
    monkeypatch.setenv("VOICEJOBS_STATE_DIR", str(tmp_path))
    assert run(["key", "create", f"--requests-per-minute={text}"]) != 0
    told = capsys.readouterr()
    assert "requests_per_minute" in told.err.replace("-", "_")
    assert "vj_" not in told.out


def test_captions_of_one_key_leave_places_to_others() -> None:
    """A key is refused beyond its own number, others beyond that of all, each by a code of its own."""
    places = Places()
    for _ in range(2):
        places.enter("one", most=3, most_of_one=2)
    with pytest.raises(RateLimited, match="for this key"):
        places.enter("one", most=3, most_of_one=2)
    places.enter("other", most=3, most_of_one=2)
    with pytest.raises(QueueFull):
        places.enter("other", most=3, most_of_one=0)
    places.leave("one")
    places.enter("other", most=3, most_of_one=0)


def test_tests_of_one_tenant_leave_places_to_others() -> None:
    """A tenant tests so many webhooks at once, all together so many; one that ends makes room, however it ends."""
    tests = RunningTests()
    _fill(tests, "one", MOST_TESTS_OF_ONE, lambda: _fill(tests, "other", MOST_TESTS - MOST_TESTS_OF_ONE, lambda: None))
    with pytest.raises(ZeroDivisionError), tests.one_more("one"):
        raise ZeroDivisionError
    _fill(tests, "one", MOST_TESTS_OF_ONE, lambda: None)


def _fill(tests: RunningTests, tenant: str, count: int, then: Callable[[], None]) -> None:
    """Take so many places of a tenant, see that there is none more for it, and do something meanwhile."""
    if count:
        with tests.one_more(tenant):
            _fill(tests, tenant, count - 1, then)
        return
    with pytest.raises(RateLimited), tests.one_more(tenant):
        pass
    then()
