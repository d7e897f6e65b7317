"""Which request of CosyVoice's a text and its options are, and which ones its models are known to fail at."""

import base64
import binascii
import re
from dataclasses import dataclass
from typing import Literal, cast, get_args

from voicejobs.engines.base import SynthesiseOptions
from voicejobs.errors import BadOption
from voicejobs.units import SAMPLE_RATE_HZ

Mode = Literal["sft", "zero_shot", "cross_lingual", "instruct", "instruct2"]
Family = Literal[1, 2, 3]
"""1: CosyVoice-300M and its variants; 2: CosyVoice2; 3: CosyVoice3."""
MODES: tuple[Mode, ...] = get_args(Mode)
LONGEST_PROMPT_S = 30
SILENT_HINT = (
    "Its log says more. Since late 2025 its modes with a recorded voice fail so: the server hands its frontend the"
    " recording in a form that it does not take (CosyVoice issues 1794 and 1805)."
)
_SAMPLE_BYTES = 2
_WITH_PROMPT = frozenset({"zero_shot", "cross_lingual", "instruct2"})
_WITH_SPEAKER = frozenset({"sft", "instruct"})
_WITH_WORDS = frozenset({"instruct", "instruct2"})
_NAME = re.compile(r"cosyvoice[-_ ]?([23])?(?![0-9])", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Utterance:
    """Hold one text with what the server needs beside it; `prompt_audio` is 16 kHz mono s16le without a header."""

    mode: Mode
    text: str
    speaker: str = ""
    instruct: str = ""
    prompt_text: str = ""
    prompt_audio: bytes = b""


def family_of(model: str) -> Family | None:
    """Return the family of a model by its name, with or without owner and path; None for a name of no known form."""
    found = _NAME.search(model.rstrip("/").rpartition("/")[2])
    return cast("Family", int(found[1] or 1)) if found else None


def utterance_of(text: str, options: SynthesiseOptions, family: Family | None, is_grpc: bool) -> Utterance:
    """Return what is to be sent.

    Args:
        text: a sentence.
        options: of the job, the default speaker filled in.
        family: family of the model; None where it is not known: then every mode is tried.
        is_grpc: whether it goes to the gRPC server; the HTTP server has one more mode.

    Raises:
        BadOption: something is missing, not known to the servers, or known to fail with this family.
    """
    if options.speed != 1:
        raise BadOption(
            "CosyVoice's servers take no speed",
            hint="Leave --speed out: they have no field for it, whatever the model.",
        )
    prompt = _prompt(options.prompt_audio)
    mode = _mode(options, has_prompt=bool(prompt))
    _check_known_faults(mode, family, is_grpc)
    if mode in _WITH_SPEAKER and not options.voice:
        raise BadOption(
            f"CosyVoice's mode {mode} needs a speaker", hint="Give --voice, or set VOICEJOBS_COSYVOICE_VOICES."
        )
    if mode in _WITH_PROMPT and not prompt:
        raise BadOption(f"CosyVoice's mode {mode} needs a recording of the voice", hint="Give prompt_audio.")
    if mode == "zero_shot" and not options.prompt_text:
        raise BadOption(
            "CosyVoice's mode zero_shot needs the words of the recording", hint="Give prompt_text, or cross_lingual."
        )
    if mode in _WITH_WORDS and not options.instruct:
        raise BadOption(f"CosyVoice's mode {mode} needs words on how to speak", hint="Give instruct.")
    return Utterance(
        mode,
        text,
        speaker=options.voice if mode in _WITH_SPEAKER else "",
        instruct=options.instruct if mode in _WITH_WORDS else "",
        prompt_text=options.prompt_text if mode == "zero_shot" else "",
        prompt_audio=prompt if mode in _WITH_PROMPT else b"",
    )


def _mode(options: SynthesiseOptions, *, has_prompt: bool) -> Mode:
    """Return the mode that the options name, else the one that takes everything that they hold."""
    if options.mode:
        for mode in MODES:
            if options.mode == mode:
                return mode
        raise BadOption(f"{options.mode!r} is no mode of CosyVoice", hint=f"It has {', '.join(MODES)}.")
    if options.instruct:
        return "instruct2" if has_prompt else "instruct"
    if has_prompt:
        return "zero_shot" if options.prompt_text else "cross_lingual"
    return "sft"


def _check_known_faults(mode: Mode, family: Family | None, is_grpc: bool) -> None:
    """Refuse what cannot work before a server is asked, whose own message would be a traceback in its log."""
    if mode == "instruct2" and is_grpc:
        raise BadOption(
            "CosyVoice's gRPC server has no mode instruct2",
            hint="Use its HTTP server: VOICEJOBS_COSYVOICE_URL=http://...",
        )
    if mode == "instruct2" and family == 1:
        raise BadOption("CosyVoice-300M has no mode instruct2", hint="Use instruct with a speaker, or CosyVoice2.")
    if mode == "instruct" and family in {2, 3}:
        raise BadOption(
            f"CosyVoice{family} has no mode instruct: its server would fail in an assertion",
            hint="Use instruct2 over HTTP, with a recording of the voice.",
        )
    if mode == "sft" and family == 2:  # noqa: PLR2004 - a family, not a magic number
        raise BadOption(
            "CosyVoice2 has no speakers of its own: its server would fail to find any",
            hint="Give a recording of a voice (zero_shot, cross_lingual). If yours has speakers (spk2info.pt), set"
            " VOICEJOBS_COSYVOICE_RATE_HZ=24000 and leave the model out.",
        )


def _prompt(encoded: str) -> bytes:
    """Return the recording of a voice.

    Raises:
        BadOption: it is not base64 of whole 16-bit samples, or is longer than the models take.
    """
    if not encoded:
        return b""
    try:
        data = base64.b64decode(encoded, validate=True)
    except binascii.Error:
        raise BadOption("prompt_audio is not base64", hint="It is 16-bit mono PCM at 16 kHz in base64.") from None
    if len(data) % _SAMPLE_BYTES:
        raise BadOption("prompt_audio ends inside a sample", hint="It is 16-bit mono PCM at 16 kHz.")
    seconds = len(data) / _SAMPLE_BYTES / SAMPLE_RATE_HZ
    if seconds > LONGEST_PROMPT_S:
        raise BadOption(
            f"prompt_audio has {seconds:.1f} s: CosyVoice takes {LONGEST_PROMPT_S} s at most",
            hint="Cut it; some five to ten seconds of clear speech are enough.",
        )
    return data
