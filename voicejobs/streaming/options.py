"""How a stream is cut into segments, how often it is decoded, and how much may wait."""

from dataclasses import dataclass, field, replace

from voicejobs.engines.base import RecogniseOptions
from voicejobs.errors import BadOption
from voicejobs.steps.windows import DEFAULT, WindowOptions

_SHORTEST_WINDOW_S = 4.0


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """Say how a stream is recognised.

    Args:
        recognise: options of final results, the same as those of a job over the whole recording.
        revise: those of the second recogniser; None takes `recognise`.
        window: what counts as speech, and the longest segment (`max_window_s`, which also bounds the memory).
        end_silence_s: silence that ends a segment. Twice `window.pad_s` or more keeps the whole padding.
        together: decode segments that a job would decode in one window together once they are over, and revise their
            final results; costs one decode for each such window. A second recogniser then hears whole windows too.
        partials: give partial results; without them each segment is decoded once.
        partial_every_s: sound after which another partial result is due, while decoding is faster than that; the first
            one after half of it.
        partial_share: part of the time, 0..1, that a stream decodes for partial results at most.
        trim_s: longest sound that is decoded for a partial result while a stable border allows to cut it.
        max_waiting: segments that wait for their final decode before `feed` blocks.
        max_events: events that nobody has taken before decoding pauses, and then `feed` blocks.
        doubt: hold final texts against the speech under them; False for engines whose text has no likely length
            (`EngineFacts.doubt`).
        revise_doubt: the same for the second recogniser.

    Raises:
        BadOption: a value is out of its range.
    """

    recognise: RecogniseOptions = field(default_factory=RecogniseOptions)
    revise: RecogniseOptions | None = None
    window: WindowOptions = DEFAULT
    end_silence_s: float = 0.8
    together: bool = True
    partials: bool = True
    partial_every_s: float = 0.15
    partial_share: float = 0.75
    trim_s: float = 10.0
    max_waiting: int = 4
    max_events: int = 64
    doubt: bool = True
    revise_doubt: bool = True

    def __post_init__(self) -> None:
        _within("end_silence_s", self.end_silence_s, self.window.min_silence_s, self.window.max_gap_s)
        _within("window.max_window_s", self.window.max_window_s, _SHORTEST_WINDOW_S, DEFAULT.max_window_s)
        _within("window.pad_s", self.window.pad_s, 0.0, self.window.max_window_s / 4)
        _within("partial_every_s", self.partial_every_s, 0.02, self.window.max_window_s)
        _within("partial_share", self.partial_share, 0.01, 1.0)
        _within("trim_s", self.trim_s, 1.0, self.window.max_window_s)
        _within("max_waiting", self.max_waiting, 1, 1000)
        _within("max_events", self.max_events, 2, 100_000)

    @property
    def draft(self) -> RecogniseOptions:
        """Return the options of partial results: one quick pass, with the times by which to cut."""
        return replace(self.recognise, word_timestamps=True, beam_size=1, best_of=1, temperatures=(0.0,))


def _within(name: str, value: float, low: float, high: float) -> None:
    """Refuse a value out of its range."""
    if not low <= value <= high:
        raise BadOption(f"stream option {name} is {value:g}", hint=f"Give {low:g} to {high:g}.")
