import pytest

from voicejobs.audio.types import Segment, WindowResult
from voicejobs.hosting.doubt import is_doubtful

SENTENCE = " Mr Quilter is the apostle of the middle classes and we are glad to welcome his gospel."


@pytest.mark.parametrize(
    ("seconds", "text", "doubtful"),
    [
        (5.9, SENTENCE, False),
        (5.5, "欢迎大家来体验达摩院推出的语音识别模型", False),
        (0.4, " seven", False),
        (0.8, "", False),
        (1.5, "", True),
        (25.0, " Yes.", True),
        (1.0, SENTENCE, True),
        (29.4, " The child almost hurt the small dog." * 3, False),
        (29.4, " Thank you very much." * 30, True),
        (8.0, " no no no no no no no no no no no no", True),
    ],
)
def test_a_text_is_doubtful_where_it_is_wrong_for_its_length_or_loops(
    seconds: float, text: str, *, doubtful: bool
) -> None:
    """Empty speech, too few or too many characters and loops are looked at again; ordinary speech is not."""
    segments = (Segment(0.0, seconds, text),) if text else ()
    assert is_doubtful(seconds, WindowResult(segments)) == doubtful
