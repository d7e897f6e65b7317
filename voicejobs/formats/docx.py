"""Word documents, by python-docx: a paragraph for each passage, with its time and its channel."""

import io
import re
import zipfile
from datetime import UTC, datetime
from typing import Any

from voicejobs.audio.types import Transcript
from voicejobs.errors import ExtraMissing
from voicejobs.formats.clean import channel_label
from voicejobs.formats.options import RenderOptions
from voicejobs.formats.tables import spoken

_EPOCH = datetime(1980, 1, 1, tzinfo=UTC)
"""The date in the file: the same transcript gives the same bytes, whenever it is written."""

_NO_CHARACTER = re.compile("[\ufffe\uffff]")


def write_docx(transcript: Transcript, options: RenderOptions) -> bytes:
    """Return a document headed by the name of the recording; each passage begins with the time at which it is said.

    Raises:
        ExtraMissing: python-docx is not installed.
    """
    document = _document()
    properties = document.core_properties
    properties.created = properties.modified = _EPOCH
    properties.author, properties.title = "voicejobs", _legal(transcript.source_name)
    if transcript.source_name:
        document.add_heading(properties.title, level=1)
    end = document.element.body[-1]  # the layout of the page, before which all paragraphs stand
    for segment, (start, _), text in spoken(transcript):
        paragraph = _paragraph(document)
        _add(paragraph, f"[{_clock(start)}] ").italic = True
        if options.channel_labels and segment.channel is not None:
            _add(paragraph, f"{channel_label(segment.channel)}: ").bold = True
        _add(paragraph, _legal(text))
        end.addprevious(paragraph._element)  # noqa: SLF001 - so the library itself does it
    target = io.BytesIO()
    document.save(target)
    return _dateless(target.getvalue())


def require_docx() -> None:
    """Check that documents can be written, before any work is done for them.

    Raises:
        ExtraMissing: python-docx is not installed.
    """
    _document()


def _document() -> Any:
    """Return a new document."""
    try:
        from docx import Document  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise ExtraMissing(
            "The format docx needs the package python-docx, which is not installed",
            hint="Install it where the workers run: pip install 'voicejobs[docx]'.",
        ) from error
    return Document()


def _paragraph(document: Any) -> Any:
    """Return a new paragraph that stands nowhere yet.

    One in a document is slow to write to: for each change the library looks through all that stand there already.
    """
    from docx.oxml.parser import OxmlElement  # noqa: PLC0415 - an extra
    from docx.text.paragraph import Paragraph  # noqa: PLC0415 - an extra

    return Paragraph(OxmlElement("w:p"), document._body)  # noqa: SLF001 - see there


def _add(paragraph: Any, line: str) -> Any:
    """Add a text of one line to a paragraph, and return it to be given its looks.

    `add_run(line)` would first clear what is new, by a search that lets other threads run for too short to begin.
    """
    run = paragraph.add_run()
    run.add_text(line)
    return run


def _legal(text: str) -> str:
    """Return a text that XML can hold."""
    return _NO_CHARACTER.sub("\ufffd", text)


def _clock(milliseconds: int) -> str:
    """Return a time as H:MM:SS."""
    minutes, seconds = divmod(milliseconds // 1000, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}"


def _dateless(data: bytes) -> bytes:
    """Return the archive with the times of its members set to one moment."""
    target = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as source, zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in source.namelist():
            member = zipfile.ZipInfo(name, date_time=_EPOCH.timetuple()[:6])
            member.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(member, source.read(name))
    return target.getvalue()
