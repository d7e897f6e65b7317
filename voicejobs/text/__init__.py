"""Text for speech: what of it can be said, how it is read out, and in which pieces.

Everything here is pure: no files, no engines. `plan_pieces` is what the step `plan_text` calls.
"""

from voicejobs.text.check import decode_text, require_sayable, require_text
from voicejobs.text.markup import MARKUPS, Markup, markup_of
from voicejobs.text.pieces import DEFAULT_MAX_CHARS, TextPiece, plan_pieces
from voicejobs.text.reading import read_out
from voicejobs.text.scripts import Speakable, speakable
from voicejobs.text.sentences import sentences

__all__ = [
    "DEFAULT_MAX_CHARS",
    "MARKUPS",
    "Markup",
    "Speakable",
    "TextPiece",
    "decode_text",
    "markup_of",
    "plan_pieces",
    "read_out",
    "require_sayable",
    "require_text",
    "sentences",
    "speakable",
]
