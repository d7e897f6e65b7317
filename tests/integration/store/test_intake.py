"""Requests become rows: what is asked for by name is checked, placed with its step, and inserted whole or not."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, insert, select, update

from tests import rows
from voicejobs import intake as taking
from voicejobs import records
from voicejobs.errors import (
    AddressRefused,
    BadOption,
    EmptyText,
    NoSuchRecord,
    QueueFull,
    UnknownEngine,
    UnknownModel,
    VoicejobsError,
)
from voicejobs.intake import Intake, Item, Source, Terms, Wish
from voicejobs.settings import Settings
from voicejobs.store.blobs import BlobStore
from voicejobs.store.database import Database
from voicejobs.store.schema import batches, events, files, jobs
from voicejobs.submit import Blob

MakeIntake = Callable[..., Intake]
FAKE = Wish(engine="fake")
SOUND = Source(blob=Blob("a" * 64, 10), name="a.wav")


@pytest.fixture
def make_intake(database: Database, tmp_path: Path) -> MakeIntake:
    """Return a maker of intakes on the store of the test."""
    blobs = BlobStore(tmp_path / "blobs")
    blobs.make_folders()

    def make(**fields: Any) -> Intake:
        settings = Settings(state_dir=tmp_path, models_dir=tmp_path / "models", **fields.pop("settings", {}))
        return Intake(settings, database, blobs, **fields)

    return make


def add_file(database: Database, tenant: str = "default", file_id: str = "file_1") -> str:
    """Insert the row of an uploaded file."""
    row = {"id": file_id, "tenant": tenant, "name": "talk.mp3", "purpose": "user_data", "media_type": "audio/mpeg"}
    with database.begin() as connection:
        connection.execute(insert(files).values(**row, sha256="b" * 64, size_bytes=99, created_at=0.0))
    return file_id


def options(database: Database, job_id: str) -> dict[str, Any]:
    """Return the options of a job."""
    found: dict[str, Any] = json.loads(rows.job(database, job_id).options)
    return found


def test_a_file_becomes_a_job_of_its_own(database: Database, make_intake: MakeIntake) -> None:
    """An uploaded file gives a watched, sealed, single job with blob, name, options, terms and trace of the request."""
    wish = Wish(engine="fake", options={"language": "German", "vad_pad_ms": 100}, formats=["srt"])
    terms = Terms(lane="interactive", priority=7, metadata={"case": "12"}, expires_after_s=60.0)
    made = make_intake(trace_id="c" * 32)
    taken = taking.submit_one(made, Item(wish, Source(file_id=add_file(database)), {"custom_id": "x"}), terms)
    (job_id,) = taken.job_ids
    job, batch = rows.job(database, job_id), rows.batch(database, taken.batch_id)
    assert json.loads(job.source)["blob"] == "b" * 64
    assert (job.source_name, job.input_sha256, job.trace_id, job.priority) == ("talk.mp3", "b" * 64, "c" * 32, 7)
    assert (batch.kind, batch.lane, batch.watched, job.watched) == ("single", "interactive", 1, 1)
    assert batch.sealed_at is not None
    assert json.loads(job.request) == {"metadata": {"case": "12"}, "custom_id": "x", "output_formats": ["srt"]}
    assert job.expires_at - job.created_at == pytest.approx(60.0, abs=1.0)
    made_of = options(database, job_id)
    assert made_of["recognise"]["language"] == "de"
    assert made_of["recognise"]["word_timestamps"] is True
    assert made_of["recognise"]["model"] == ""
    assert made_of["prepare"]["vad_pad_ms"] == 100
    assert made_of["deliver"]["formats"] == ["srt"]
    assert made_of["deliver"]["target"] == ""


def test_a_text_is_spoken(database: Database, make_intake: MakeIntake) -> None:
    """A text gives a job of `speak`, its language told by the voice and its formats sorted into sound and captions."""
    wish = Wish(task="speak", engine="fake_voice", options={"speed": 1.5}, formats=["mp3", "srt"])
    (job_id,) = taking.submit_one(make_intake(), Item(wish, Source(text="Hello."))).job_ids
    made_of = options(database, job_id)
    assert rows.job(database, job_id).pipeline == "speak"
    assert made_of["synthesise"]["speed"] == 1.5
    assert (made_of["join"]["formats"], made_of["join"]["captions"]) == (["mp3"], ["srt"])
    assert made_of["plan_text"]["language"] == "en"


def test_a_batch_is_whole(database: Database, make_intake: MakeIntake) -> None:
    """Items with wishes of their own are one batch, sealed with them; a fault in one names it, and nothing is there."""
    made = make_intake()
    items = [Item(FAKE, SOUND), Item(Wish(engine="fake", options={"task": "translate"}), SOUND)]
    taken = taking.submit_many(made, items, Terms(label="talks"), request={"custom": 1})
    assert [options(database, one)["recognise"]["task"] for one in taken.job_ids] == ["transcribe", "translate"]
    assert rows.batch(database, taken.batch_id).label == "talks"
    with pytest.raises(BadOption) as caught:
        taking.submit_many(made, [*items, Item(Wish(engine="fake", options={"beam_size": 99}), SOUND)])
    assert caught.value.details["param"] == "items[2].options.beam_size"
    with pytest.raises(BadOption, match="one pipeline"):
        taking.submit_many(made, [*items, Item(Wish(task="speak", engine="fake_voice"), Source(text="Hello"))])
    with database.read() as connection:
        assert connection.execute(select(func.count()).select_from(batches)).scalar_one() == 1
        assert connection.execute(select(func.count()).select_from(jobs)).scalar_one() == 2


def test_what_runs_within_shares_the_fate(database: Database, make_intake: MakeIntake) -> None:
    """A quota or a caller that raises in the transaction leaves neither batch nor job nor event."""

    def full(connection: Any, tenant: str, count: int) -> None:
        assert (tenant, count) == ("default", 1)
        raise QueueFull("too many jobs")

    with pytest.raises(QueueFull):
        taking.submit_one(make_intake(limit=full), Item(FAKE, SOUND))
    seen = []
    taken = taking.submit_one(make_intake(), Item(FAKE, SOUND), within=lambda _, one: seen.append(one))
    assert seen == [taken]
    with database.read() as connection:
        assert connection.execute(select(func.count()).select_from(jobs)).scalar_one() == 1
        assert connection.execute(select(func.count()).select_from(events)).scalar_one() == 1


def test_files_and_webhooks_of_others_are_not_there(database: Database, make_intake: MakeIntake) -> None:
    """A file or a webhook of another tenant is as unknown as one that never was."""
    add_file(database, tenant="other")
    with pytest.raises(NoSuchRecord) as caught:
        taking.submit_one(make_intake(), Item(FAKE, Source(file_id="file_1")))
    assert caught.value.details["param"] == "source.file_id"
    with pytest.raises(NoSuchRecord, match="webhook"):
        taking.submit_one(make_intake(), Item(FAKE, SOUND), Terms(webhook_ids=["wh_1"]))
    assert taking.submit_one(make_intake(tenant="other"), Item(FAKE, Source(file_id="file_1"))).job_ids


@pytest.mark.parametrize(
    ("wish", "source", "kind", "param"),
    [
        (Wish(engine="nobody"), SOUND, UnknownEngine, "model"),
        (Wish(model="enormous"), SOUND, UnknownModel, "model"),
        (Wish(engine="piper"), SOUND, BadOption, "model"),
        (Wish(task="sing"), SOUND, BadOption, "task"),
        (Wish(pipeline="speak", task="transcribe"), SOUND, BadOption, "task"),
        (Wish(engine="fake", options={"beams": 1}), SOUND, BadOption, "options.beams"),
        (Wish(engine="fake", options={"beam_size": "5"}), SOUND, BadOption, "options.beam_size"),
        (Wish(engine="fake", options={"recognise": {"threads": 4}}), SOUND, BadOption, "options.recognise.threads"),
        (Wish(engine="fake", options={"temperatures": [0.0, 3.0]}), SOUND, BadOption, "options.temperatures[1]"),
        (Wish(engine="fake", options={"clips": [[5, 1]]}), SOUND, BadOption, "options.clips[0]"),
        (Wish(engine="fake", options={"render": {"colour": 1}}), SOUND, BadOption, "options.render"),
        (Wish(engine="fake", options={"vad_engine": "fake"}), SOUND, BadOption, "options.vad_engine"),
        (Wish(model="tiny.en", options={"language": "de"}), SOUND, BadOption, "options.language"),
        (Wish(model="tiny.en", task="translate"), SOUND, BadOption, "model"),
        (Wish(engine="fake", formats=["gif"]), SOUND, BadOption, "output_formats"),
        (Wish(task="speak", engine="fake_voice", formats=["ctm"]), Source(text="a"), BadOption, "output_formats"),
        (FAKE, Source(text="Hello"), BadOption, "source.text"),
        (FAKE, Source(), BadOption, "source"),
        (FAKE, Source(url="https://example.org/a.wav"), AddressRefused, "source.url"),
        (FAKE, Source(path="/etc/passwd"), AddressRefused, "source.path"),
        (Wish(task="speak", engine="fake_voice"), Source(text=" \n"), EmptyText, "source.text"),
    ],
)
def test_what_cannot_be_done_is_refused(
    make_intake: MakeIntake, wish: Wish, source: Source, kind: type[VoicejobsError], param: str
) -> None:
    """Each fault of a request has its class, and names the parameter that is wrong."""
    with pytest.raises(kind) as caught:
        taking.submit_one(make_intake(), Item(wish, source))
    assert caught.value.details["param"] == param


def test_an_address_goes_into_the_source_of_its_job(database: Database, make_intake: MakeIntake) -> None:
    """An address that is allowed is kept for the worker, which fetches it; its name shows no query."""
    made = make_intake(settings={"source_url_enabled": True, "source_url_hosts": "example.org"})
    wanted = Item(FAKE, Source(url="https://example.org/talk.wav?signature=s"))
    (job_id,) = taking.submit_one(made, wanted).job_ids
    job = rows.job(database, job_id)
    source = json.loads(job.source)
    assert (job.source_name, source["url"]) == ("talk.wav", "https://example.org/talk.wav?signature=s")
    assert source["unread"] is True


def test_speech_after_recognition_has_options_of_its_own(database: Database, make_intake: MakeIntake) -> None:
    """The engine of the request recognises, and options under the name of a node are of that node alone."""
    wish = Wish("transcribe+speak", engine="fake", options={"synthesise": {"engine": "fake_voice", "voice": "high"}})
    (job_id,) = taking.submit_one(make_intake(), Item(wish, SOUND)).job_ids
    made_of = options(database, job_id)
    assert (made_of["recognise"]["engine"], made_of["synthesise"]["engine"]) == ("fake", "fake_voice")
    assert made_of["synthesise"]["voice"] == "high"
    assert made_of["retell"]["language"] is None


@pytest.mark.parametrize(
    ("item", "terms", "param"),
    [
        (Item(Wish(engine="fake", options={"initial_prompt": "\ud800"}), SOUND), Terms(), "options"),
        (Item(FAKE, SOUND, {"metadata": {"a": "\udfff"}}), Terms(), "metadata"),
        (Item(FAKE, SOUND), Terms(metadata={"\ud800": "a"}), "metadata"),
        (Item(FAKE, SOUND), Terms(webhook_ids=["\ud800"]), "webhook_ids"),
        (Item(FAKE, SOUND, {"metadata": {str(number): "" for number in range(17)}}), Terms(), "metadata"),
        (Item(FAKE, SOUND, {"metadata": {"a": "b" * 513}}), Terms(), "metadata"),
    ],
)
def test_half_a_character_and_too_much_are_refused(
    make_intake: MakeIntake, item: Item, terms: Terms, param: str
) -> None:
    """What no answer could hold later is not taken in, nor more metadata with an item than with a job; none is left."""
    with pytest.raises(BadOption) as caught:
        taking.submit_many(make_intake(), [item], terms)
    assert str(caught.value.details["param"]).endswith(param)
    with make_intake().database.read() as connection:
        assert connection.execute(select(func.count()).select_from(jobs)).scalar_one() == 0


def test_a_job_with_odd_bytes_from_a_command_line_can_be_shown(make_intake: MakeIntake) -> None:
    """Bytes that were no text are shown as question marks, other characters as they are, and the list stands."""
    intake = make_intake()
    wish = Wish(engine="fake", options={"initial_prompt": "a \N{GRINNING FACE}"})
    taken = taking.submit_one(intake, Item(wish, SOUND))
    kept = options(intake.database, taken.job_ids[0])
    kept["recognise"]["hotwords"] = "b\udcff"
    with intake.database.begin() as connection:
        connection.execute(update(jobs).values(options=json.dumps(kept)))
    with intake.database.read() as connection:
        record = records.job_of(connection, "default", taken.job_ids[0])
    json.dumps(record, ensure_ascii=False).encode()
    assert record["options"]["recognise"]["initial_prompt"] == "a \N{GRINNING FACE}"
    assert record["options"]["recognise"]["hotwords"] == "b?"
