"""API keys and quotas as rows."""

import re
import time
from collections.abc import Iterator

import pytest
from sqlalchemy import insert, update

from voicejobs.errors import BadOption, NoSuchRecord, QuotaReached
from voicejobs.store import keys, quotas
from voicejobs.store.database import Database
from voicejobs.store.keys import NewKey
from voicejobs.store.quotas import Quota
from voicejobs.store.schema import batches, jobs


@pytest.fixture
def database(store_url: str) -> Iterator[Database]:
    """Return an empty store, on each of the two kinds in turn."""
    database = Database(store_url)
    yield database
    database.close()


def test_a_key_has_its_form_and_its_check(database: Database) -> None:
    """A key is five parts; whatever single character changes, it is one no more."""
    key, text = keys.create_key(database, NewKey(scopes=["jobs:read"], environment="test"))
    assert re.fullmatch(r"vj_test_[0-9A-Za-z]{8}_[0-9A-Za-z]{32}_[0-9A-Za-z]{6}", text)
    parts = keys.split_key(text)
    assert parts is not None
    assert parts[0] == key.id
    assert keys.hash_of(parts[1]) == key.secret_sha256
    assert parts[1] not in repr(key)
    for place, character in enumerate(text):
        other = "0" if character != "0" else "1"
        assert keys.split_key(text[:place] + other + text[place + 1 :]) is None
    assert keys.split_key(text + "\n") is None


def test_keys_end(database: Database) -> None:
    """A key that is revoked or expired is valid no more, by the clock of the database; its row stays."""
    revoked, _ = keys.create_key(database, NewKey())
    expired, _ = keys.create_key(database, NewKey(lifetime_s=0.05))
    keys.revoke_key(database, revoked.id)
    time.sleep(0.1)
    assert keys.find_valid_key(database, revoked.id) is None
    assert keys.find_valid_key(database, expired.id) is None
    assert [keys.state_of(database, key) for key in keys.list_keys(database)] == ["revoked", "expired"]
    first = keys.get_key(database, revoked.id).revoked_at
    assert keys.revoke_key(database, revoked.id).revoked_at == first
    assert keys.has_keys(database)


def test_keys_of_others_are_not_there(database: Database) -> None:
    """Whoever names the tenant reaches the keys of that tenant alone."""
    key, _ = keys.create_key(database, NewKey(tenant="one"))
    assert keys.list_keys(database, tenant="two") == []
    with pytest.raises(NoSuchRecord):
        keys.get_key(database, key.id, tenant="two")
    with pytest.raises(NoSuchRecord):
        keys.revoke_key(database, key.id, tenant="two")
    assert keys.find_valid_key(database, key.id) is not None


@pytest.mark.parametrize(
    "wanted",
    [
        NewKey(scopes=[]),
        NewKey(scopes=["all"]),
        NewKey(tenant="a b"),
        NewKey(tenant=""),
        NewKey(name="x" * 201),
        NewKey(name="a\nb"),
        NewKey(environment="LIVE"),
    ],
)
def test_what_is_no_key_is_refused(sqlite_url: str, wanted: NewKey) -> None:
    """Scopes, tenants, names and environments that cannot be are refused, with the parameter at fault."""
    with pytest.raises(BadOption) as refused:
        keys.create_key(Database(sqlite_url), wanted)
    assert refused.value.details["param"] in {"scopes", "tenant", "name", "environment"}


def test_the_last_use_is_written_once_a_minute(database: Database) -> None:
    """A use within a minute of the last changes no row."""
    key, _ = keys.create_key(database, NewKey())
    keys.note_use(database, key.id)
    first = keys.get_key(database, key.id).last_used_at
    keys.note_use(database, key.id)
    assert keys.get_key(database, key.id).last_used_at == first is not None


def _job(database: Database, number: int, tenant: str, *, audio_s: float, watched: int = 1) -> None:
    """Insert a job that waits."""
    shared = {"tenant": tenant, "watched": watched, "created_at": 1000.0 + number, "options": "{}"}
    batch = {"id": f"batch_{number}", "lane": "bulk", "state": "open", "label": ""}
    job = {
        "id": f"job_{number}",
        "batch_id": batch["id"],
        "seq": 0,
        "priority": 0,
        "pipeline": "transcribe",
        "pipeline_version": 1,
        "source": "{}",
        "source_name": "a",
        "target": "",
        "cost_order": 0,
        "state": "queued",
        "trace_id": "t",
        "audio_s": audio_s,
    }
    with database.begin() as connection:
        connection.execute(insert(batches).values(**batch, **shared))
        connection.execute(insert(jobs).values(**job, **shared))


def test_a_tenant_has_its_quota(database: Database) -> None:
    """Jobs and seconds that wait or run count, those of other tenants, of commands and those that ended do not."""
    for number in range(3):
        _job(database, number, "one", audio_s=10)
    _job(database, 3, "two", audio_s=1000)
    _job(database, 4, "one", audio_s=1000, watched=0)
    with database.read() as connection:
        assert quotas.load_of(connection, "one") == quotas.Load(3, 30.0)
        quotas.require_room(connection, "one", Quota(3, 30))
        quotas.require_room(connection, "one", Quota())
        with pytest.raises(QuotaReached, match="3 jobs"):
            quotas.require_room(connection, "one", Quota(2))
        with pytest.raises(QuotaReached, match="31 s"):
            quotas.require_room(connection, "one", Quota(0, 30), new_audio_s=1)
    with database.begin() as connection:
        connection.execute(update(jobs).where(jobs.c.id == "job_0").values(state="succeeded", finished_at=2000))
        assert quotas.load_of(connection, "one").jobs == 2
    used = quotas.usage_of(database, "one", since=1000, until=1002)
    assert used.jobs == {"queued": 1, "succeeded": 1}
    assert (used.audio_s, used.files, used.file_bytes) == (10.0, 0, 0)
