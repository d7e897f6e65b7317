"""A transcript of many hours, as an engine makes them, and a job that has it."""

import random

from sqlalchemy import update

from tests.rows import add_job
from voicejobs.audio.types import Segment, Transcript, Word
from voicejobs.store import jobs as rows
from voicejobs.store.blobs import BlobStore
from voicejobs.store.database import Database
from voicejobs.store.jobs import NewResult
from voicejobs.store.schema import jobs
from voicejobs.store.states import JobState

WORDS = ("the", "harbor", "café", "ships", "of", "morning", "and", "people", "walk", "quickly.")
WORDS_OF_A_SEGMENT = 12
WORD_S = 0.4


def long_transcript(hours: float) -> Transcript:
    """Return so many hours of speech: nine thousand words for each of them, with times and probabilities."""
    chance = random.Random(1)
    segments = []
    length_s = WORDS_OF_A_SEGMENT * WORD_S
    for number in range(int(hours * 3600 / length_s)):
        start_s = number * length_s
        words = tuple(
            Word(
                start_s + place * WORD_S, start_s + (place + 0.9) * WORD_S, f" {chance.choice(WORDS)}", chance.random()
            )
            for place in range(WORDS_OF_A_SEGMENT)
        )
        text = "".join(word.text for word in words)
        tokens = tuple(chance.randrange(50_000) for _ in range(WORDS_OF_A_SEGMENT))
        segments.append(Segment(start_s, start_s + length_s, text, words, tokens, 0.0, -0.3, 1.4, 0.01))
    return Transcript(tuple(segments), "en", hours * 3600, engine="fake", source_name="long.wav")


def add_transcribed(database: Database, blobs: BlobStore, transcript: Transcript) -> str:
    """Insert a job that has succeeded with this transcript, and return its id."""
    job_id = add_job(database)
    artifact = blobs.store(transcript.dump(), "transcript", {"type": "application/json"})
    with database.begin() as connection:
        step_run = rows.step_run_id(job_id, "recognise")
        artifact_id = rows.insert_artifact(connection, job_id, step_run, artifact)
        result = NewResult("key", artifact_id, "en", transcript.duration_s, 1, "text")
        rows.insert_result(connection, job_id, result)
        connection.execute(update(jobs).where(jobs.c.id == job_id).values(state=JobState.SUCCEEDED))
    return job_id
