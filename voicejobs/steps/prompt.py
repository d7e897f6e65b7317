"""The recording of a voice that a text is spoken with: how options name the blob that holds it."""

from collections.abc import Mapping
from typing import Any, Final

KIND: Final = "prompt"
"""Kind of the artifact that keeps the blob for as long as its job is kept."""

LONGEST_S: Final = 30.0
"""More than any engine takes; a few seconds of clear speech are enough."""

NODE: Final = "synthesise"
"""The node, of every pipeline that speaks, whose options name the recording."""

_PREFIX: Final = "sha256:"  # base64 has no colon
_FILE_PREFIX: Final = "file:"


def named(digest: str) -> str:
    """Return what the option `prompt_audio` says of the blob with this SHA-256, a recording in any accepted form."""
    return _PREFIX + digest


def digest_in(prompt_audio: str) -> str:
    """Return the SHA-256 of the blob that the option names; empty where it holds the samples themselves, or nothing."""
    return prompt_audio.removeprefix(_PREFIX) if prompt_audio.startswith(_PREFIX) else ""


def of_file(file_id: str) -> str:
    """Return what the option says of an uploaded file, until whoever takes the job in has looked for its blob."""
    return _FILE_PREFIX + file_id


def file_of(options: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the id of the uploaded file that the options of a job, by node, name; empty for none."""
    given = str(options.get(NODE, {}).get("prompt_audio", ""))
    return given.removeprefix(_FILE_PREFIX) if given.startswith(_FILE_PREFIX) else ""


def digest_of(options: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the SHA-256 of the recording that the options of a job, by node, name; empty for none."""
    return digest_in(str(options.get(NODE, {}).get("prompt_audio", "")))
