"""What the lines of a file ask for: looked at once to say what is wrong, and once more to make jobs of them.

Neither time more than some lines are in memory, however many there are; nothing is kept before all have been looked at.
"""

import base64
import binascii
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Any, Final

from voicejobs.api.jsonl import SPEECH, TRANSLATIONS, BadLine, Line, read_lines
from voicejobs.api.line_batches import KEY
from voicejobs.api.openai_calls import in_their_words, speech_request, transcription_request
from voicejobs.api.openai_wishes import speech_wish, transcription_wish
from voicejobs.errors import BadOption, NoSuchRecord, TooLarge, VoicejobsError, WrongState
from voicejobs.intake import Intake, Item, Source, Wish, known_files, naming, options_of
from voicejobs.outbound.sources import url_source
from voicejobs.store.files import File
from voicejobs.submit import Blob

LONGEST_LINE_BYTES: Final = 40_000_000
"""A line may hold a recording of the size that a call which waits may bring."""
LINES_AT_ONCE: Final = 500
"""Requests that become jobs in one transaction."""
MOST_BAD_LINES: Final = 1_000
"""Lines that may be no requests, before the file is none of ours: what is wrong with each stands in the batch."""
WISHES_KNOWN: Final = 1_000
_SOURCES: Final = ("file_id", "url", "input_audio")


@dataclass(slots=True)
class Checked:
    """Tell how many requests a file holds, and what is wrong with its other lines; the last may be fatal."""

    requests: int = 0
    bad: list[BadLine] = field(default_factory=list)


def check(intake: Intake, file: File, endpoint: str) -> Checked:
    """Look at all lines of a file, up to what makes the whole impossible."""
    checked = Checked()
    for one in chain.from_iterable(_groups(intake, file, endpoint, keeps=False)):
        if isinstance(one, Item):
            checked.requests += 1
            continue
        checked.bad.append(one)
        if one.is_fatal:
            break
        if len(checked.bad) > MOST_BAD_LINES:
            message = f"More than {MOST_BAD_LINES} lines are no requests"
            checked.bad.append(BadLine(one.number, "too_many_bad_lines", message, is_fatal=True))
            break
    return checked


def parts(intake: Intake, file: File, endpoint: str, requests: int) -> Iterator[list[Item]]:
    """Yield the requests of a file that was looked at, some at a time.

    Raises:
        WrongState: there are not as many any more, since something that they name has gone.
    """
    for group in _groups(intake, file, endpoint, keeps=True):
        items = [one for one in group if isinstance(one, Item)]
        requests -= len(items)
        if items:
            yield items
    if requests:
        raise WrongState("Files that the lines name were deleted while they were read", retry=True)


def _groups(intake: Intake, file: File, endpoint: str, *, keeps: bool) -> Iterator[list[Item | BadLine]]:
    """Yield what the lines of a file ask for, all of it checked, or what is wrong with them, some at a time."""
    reader = _Reader(intake, endpoint, keeps=keeps)
    most = intake.settings.api_batch_lines
    with intake.blobs.open_raw(file.sha256) as stream:
        lines = read_lines(stream, endpoint, most=most, longest_bytes=LONGEST_LINE_BYTES)
        while group := reader.group(islice(lines, LINES_AT_ONCE)):
            yield group


class _Reader:
    """Read what lines ask for; what many lines have in common is looked at once.

    Args:
        intake: where the requests will go.
        endpoint: what all lines are for.
        keeps: whether sound that stands in a line is kept, or only looked at.
    """

    def __init__(self, intake: Intake, endpoint: str, *, keeps: bool) -> None:
        self._intake = intake
        self._endpoint = endpoint
        self._keeps = keeps
        self._wishes: set[str] = set()

    def group(self, lines: Iterable[Line | BadLine]) -> list[Item | BadLine]:
        """Return what some lines ask for; whether the files are there that they name is asked for all of them."""
        found: list[tuple[Line, Item] | BadLine] = []
        for line in lines:
            made = line if isinstance(line, BadLine) else self._item(line)
            found.append(made if isinstance(made, BadLine) else (Line(line.number, line.custom_id, {}), made))
        named = {one[1].source.file_id for one in found if not isinstance(one, BadLine)} - {""}
        there = known_files(self._intake, sorted(named)) | {""}
        return [one if isinstance(one, BadLine) else _present(*one, there) for one in found]

    def _item(self, line: Line) -> Item | BadLine:
        """Return what a line asks for, all of it checked, or what is wrong with it."""
        try:
            with in_their_words():
                item = self._spoken(line) if self._endpoint == SPEECH else self._heard(line)
                self._check(item.wish)
        except VoicejobsError as error:
            return BadLine.of(line, error)
        return item

    def _check(self, wish: Wish) -> None:
        """Refuse a wish that cannot be."""
        key = repr((wish.task, wish.engine, wish.model, sorted(wish.options.items()), wish.formats))
        if key not in self._wishes:
            options_of(self._intake.settings, wish)
            if len(self._wishes) >= WISHES_KNOWN:
                self._wishes.clear()
            self._wishes.add(key)

    def _spoken(self, line: Line) -> Item:
        """Return the item of a text that is to be spoken."""
        settings = self._intake.settings
        wish = speech_wish(line.body, settings.api_speech_chars)
        if wish.stream:
            raise BadOption("stream_format sse makes no sense in a batch", param="stream_format")
        _, wanted = speech_request(settings, wish)
        return Item(wanted, Source(text=wish.text, name=line.custom_id), {KEY: {"custom_id": line.custom_id}})

    def _heard(self, line: Line) -> Item:
        """Return the item of a recording that is to be heard."""
        given = [name for name in _SOURCES if line.body.get(name) is not None]
        if len(given) != 1:
            raise BadOption(
                "The body must have one of file_id, url and input_audio", param=given[0] if given else "file_id"
            )
        fields = {name: value for name, value in line.body.items() if name not in _SOURCES}
        wish = transcription_wish(fields, "translate" if self._endpoint == TRANSLATIONS else "transcribe")
        if wish.stream:
            raise BadOption("stream makes no sense in a batch", param="stream")
        _, wanted = transcription_request(self._intake.settings, wish)
        source = self._source(given[0], line.body[given[0]])
        return Item(wanted, source, {KEY: {"custom_id": line.custom_id, **wish.to_json()}})

    def _source(self, kind: str, value: Any) -> Source:
        """Return the recording of a line.

        Raises:
            BadOption, AddressRefused: it names none, or in a way that is not allowed here.
        """
        if kind == "input_audio":
            return _inline_source(self._intake, value, keeps=self._keeps)
        if not isinstance(value, str) or not value:
            raise BadOption(f"{kind} is no text", param=kind)
        with naming(kind):
            if kind == "url":
                url_source(self._intake.settings, value)
                return Source(url=value)
        return Source(file_id=value)


def _present(line: Line, item: Item, there: Container[str]) -> Item | BadLine:
    """Return an item whose file is there, else what is wrong with its line."""
    file_id = item.source.file_id
    if file_id in there:
        return item
    return BadLine.of(line, NoSuchRecord(f"There is no file {file_id!r}", param="file_id"))


def _inline_source(intake: Intake, value: Any, *, keeps: bool) -> Source:
    """Return a recording that stands in the line itself, as base64.

    Raises:
        BadOption: it does not.
        TooLarge: it has more bytes than that of a call that waits.
    """
    data = value.get("data") if isinstance(value, Mapping) else None
    if not isinstance(data, str) or not isinstance(value.get("format", ""), str):
        raise BadOption("input_audio is no object with data and format", param="input_audio")
    try:
        decoded = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        raise BadOption("input_audio.data is no base64", param="input_audio.data") from None
    most = intake.settings.api_sync_upload_bytes
    if len(decoded) > most:
        raise TooLarge(f"There are more than {most} bytes", limit_bytes=most, param="input_audio.data")
    if not keeps:
        return Source(blob=Blob("", len(decoded)))
    stored = intake.blobs.put_stream([decoded], taken_in=True)
    ending = "".join(letter for letter in value.get("format", "")[:8] if letter.isalnum())
    return Source(blob=Blob(stored.sha256, stored.size_bytes), name=f"input.{ending}" if ending else "input")
