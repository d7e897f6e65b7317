"""Read a command line of whisper or whisper-ctranslate2 as one of ours: the word `whisper` swapped, nothing else."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence

import click

BOOLEANS = {"true": True, "false": False}

ALIASES = {
    "--output-format": "--format",
    "--clip-timestamps": "--clip",
    "--vad-onset": "--vad-threshold",
}
"""Whisper's names of options that are called otherwise here; used where the command has no option of that name."""

_LIVE = "only files are transcribed"
_SPEAKERS = "speakers are not told apart"
_MODELS_DIR = "set VOICEJOBS_MODELS_DIR"
_LANGUAGE = "the language is told from the speech of the file"

WITHOUT_MEANING = {
    "-p": "JSON is written for machines",
    "--append-punctuations": "punctuation belongs to its word",
    "--batched": "windows are batched anyway",
    "--cache-directory": _MODELS_DIR,
    "--carry-initial-prompt": "every window gets the prompt",
    "--device-index": "the worker takes the devices it finds",
    "--fp16": "the engine chooses the precision",
    "--hallucination-silence-threshold": "silence is never handed to the engine",
    "--hf-token": "the models of the catalogue need none",
    "--highlight-words": "words are not underlined in cues",
    "--language-detection-segments": _LANGUAGE,
    "--language-detection-threshold": _LANGUAGE,
    "--live-input-device": _LIVE,
    "--live-transcribe": _LIVE,
    "--live-volume-threshold": _LIVE,
    "--local-files-only": "set VOICEJOBS_OFFLINE",
    "--model-dir": _MODELS_DIR,
    "--model-directory": _MODELS_DIR,
    "--multilingual": "the language is told for each file",
    "--prefix": "use --initial-prompt",
    "--prepend-punctuations": "punctuation belongs to its word",
    "--pretty-json": "JSON is written for machines",
    "--print-colors": "the probability of each word is in -f json",
    "--prompt-reset-on-temperature": "each window is recognised by itself",
    "--speaker-name": _SPEAKERS,
    "--speaker-num": _SPEAKERS,
    "--suppress-blank": "the engine suppresses what is no speech",
}
"""Flags of whisper and whisper-ctranslate2 that do nothing here, and why; an option of the command comes first."""

NONE_MEANS = {
    "--beam-size": "1",
    "--compression-ratio-threshold": "none",
    "--logprob-threshold": "none",
    "--no-speech-threshold": "none",
    "--temperature-increment-on-fallback": "none",
}
"""What whisper's value None says for an option; others are left out then, which means their default."""


def normalised(token: str) -> str:
    """Return the name of an option, with dashes for underscores."""
    return token.replace("_", "-")


class Rewriter:
    """Turn a command line into words that click understands.

    Args:
        parameters: those of the command.
        tell: takes one line about each flag that is ignored.
    """

    def __init__(self, parameters: Sequence[click.Parameter], tell: Callable[[str], None]) -> None:
        self.options = {
            name: parameter
            for parameter in parameters
            if isinstance(parameter, click.Option)
            for name in parameter.opts
        }
        self.negations = {name for parameter in parameters for name in parameter.secondary_opts}
        self.tell = tell

    def words(self, arguments: Sequence[str]) -> Iterator[str]:
        """Yield the words; what follows `--` stays as it is."""
        rest = deque(arguments)
        while rest:
            word = rest.popleft()
            if word == "--":
                yield word
                yield from rest
                return
            if not word.startswith("--") and (word in self.options or word not in WITHOUT_MEANING):
                yield word
                if word in self.options and not _is_switch(self.options[word]) and rest:
                    yield rest.popleft()  # a value, whatever it looks like
                continue
            name, equals, value = word.partition("=")
            if equals:
                rest.appendleft(value)
            yield from self._long(self._known_name(name), rest, attached=bool(equals))

    def _known_name(self, name: str) -> str:
        """Return the name under which the command knows an option."""
        name = normalised(name)
        if name not in self.options and ALIASES.get(name) in self.options:
            return ALIASES[name]
        return name

    def _long(self, name: str, rest: deque[str], *, attached: bool) -> Iterator[str]:
        """Yield an option with what belongs to it."""
        option = self.options.get(name)
        if option is not None and _is_switch(option):
            yield from self._switch(name, option, rest, attached=attached)
        elif option is not None:
            yield from _with_value(name, option, rest)
        elif name in WITHOUT_MEANING and name not in self.negations:
            if rest and (attached or not rest[0].startswith("--")) and (attached or _is_value_of(name, rest[0])):
                rest.popleft()
            self.tell(f"warning: {name} has no meaning here and is ignored: {WITHOUT_MEANING[name]}")
        else:
            yield f"{name}={rest.popleft()}" if attached else name

    def _switch(self, name: str, option: click.Option, rest: deque[str], *, attached: bool) -> Iterator[str]:
        """Yield a switch without the True or False that whisper writes after it."""
        is_on = BOOLEANS.get(rest[0].lower()) if rest else None
        if is_on is None:
            yield f"{name}={rest.popleft()}" if attached else name
            return
        rest.popleft()
        if is_on:
            yield name
        elif option.secondary_opts:
            yield option.secondary_opts[0]


def _is_switch(option: click.Option) -> bool:
    """Tell whether an option takes no value."""
    return bool(option.is_flag or option.count)


def _with_value(name: str, option: click.Option, rest: deque[str]) -> Iterator[str]:
    """Yield an option and its value; None means "not set", unless the option has a meaning of its own for it."""
    if rest and rest[0] == "None" and "none" not in (option.metavar or ""):
        rest.popleft()
        if name in NONE_MEANS:
            yield from (name, NONE_MEANS[name])
        return
    yield name
    if rest:
        yield rest.popleft()


_SWITCHES = frozenset(
    ("-p", "--batched", "--live-transcribe", "--local-files-only", "--pretty-json", "--print-colors", "--multilingual")
)
"""Flags without meaning that may stand alone: only True or False is their value."""


def _is_value_of(name: str, word: str) -> bool:
    """Tell whether a word is the value of a flag without meaning."""
    return name not in _SWITCHES or word.lower() in BOOLEANS
