import time
from zlib import crc32

import numpy as np
import pytest

from voicejobs.engines.base import EngineSpec, RecogniseOptions, Recogniser
from voicejobs.engines.fake import FakeEngine
from voicejobs.errors import BadOption

WINDOW = np.arange(-8000, 8000, dtype=np.int16)


def load(**params: object) -> FakeEngine:
    """Return the engine with parameters."""
    return FakeEngine.load(EngineSpec("fake", params=tuple(params.items())))


def test_text_is_the_count_and_the_checksum_of_the_samples() -> None:
    """A single changed sample changes the text."""
    engine = load()
    changed = WINDOW.copy()
    changed[77] += 1
    one, two = engine.recognise([WINDOW, changed], RecogniseOptions())
    assert one.segments[0].text == f" n16000 c{crc32(WINDOW.tobytes()):08x}"
    assert two.segments[0].text == f" n16000 c{crc32(changed.tobytes()):08x}"
    assert one.segments[0].words == ()
    assert isinstance(engine, Recogniser)


def test_words_have_times_inside_the_window() -> None:
    """Word times, where asked for, follow one another and end with the window."""
    (result,) = load().recognise([WINDOW], RecogniseOptions(language="fr", word_timestamps=True))
    (segment,) = result.segments
    assert "".join(word.text for word in segment.words) == segment.text
    assert [(word.start_s, word.end_s) for word in segment.words] == [(0.0, 0.5), (0.5, 1.0)]
    assert result.language == "fr"


@pytest.mark.parametrize("mode", ["sleep", "busy"])
def test_a_call_takes_its_base_and_a_share_for_each_window(mode: str) -> None:
    """The time of a call is a + b*n, asleep or busy."""
    engine = load(cost_base_s=0.05, cost_window_s=0.02, cost_mode=mode)
    wall, cpu = time.perf_counter(), time.process_time()
    engine.recognise([WINDOW] * 5, RecogniseOptions())
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    assert wall >= 0.15
    assert (cpu > 0.005) == (mode == "busy")  # a busy machine gives it little


def test_wrong_parameters_are_refused() -> None:
    """A mistyped mode is an error at load, not a silent default."""
    with pytest.raises(BadOption, match="nap"):
        load(cost_mode="nap")


def test_max_batch_is_a_parameter() -> None:
    """The batch limit of the engine can be set for tests of the batcher."""
    assert FakeEngine.facts(EngineSpec("fake")).max_batch == 8
    assert FakeEngine.facts(EngineSpec("fake", params=(("max_batch", 3),))).max_batch == 3
