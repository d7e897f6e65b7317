"""How wide text is on a screen, and where a line may end inside a run without blanks.

Width is counted in columns: a full-width character (Chinese, Japanese, Korean, most emoji) takes two, a combining mark
none. Reading speed is counted in graphemes: what a reader takes for one character. Neither is a count of code points.
"""

import re
from functools import lru_cache

from wcwidth import iter_graphemes, wcswidth

from voicejobs.formats.clean import is_blank

# Scripts whose words are not parted by blanks: a line may end between nearly any two of their characters. Korean is
# not among them: it has blanks, and readers want its words whole.
_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"  # Thai and Lao, Burmese, Khmer
    "\u2e80-\u312f\u3190-\ua4cf\uf900-\ufaff\ufe30-\ufe4f\uff01-\uff9f\uffe0-\uffe6"
    "\U0001f300-\U0001faff\U00020000-\U0003ffff"
)
_ANY_UNSPACED = re.compile(f"[{_UNSPACED}]")

# Simple kinsoku: what no line starts with, and what no line ends with.
_NOT_FIRST = frozenset(
    "!%),.:;?]}¢°’”†‡‰′″℃、。〃々〉》」』】〕〗〙〛〜〞〟〻ーゝゞヽヾ・゠–—…‥！％），．：；？］｝～｠｡｣､･ｰﾞﾟ￠"  # noqa: RUF001 - these are meant
    "ぁぃぅぇぉっゃゅょゎゕゖァィゥェォッャュョヮヵヶㇰㇱㇲㇳㇴㇵㇶㇷㇸㇹㇺㇻㇼㇽㇾㇿｧｨｩｪｫｬｭｮｯ"
    "ฯะาำๅๆຯະາຳໆ។៕៖ៗ၊။"
)
_NOT_LAST = frozenset("([{£¥‘“〈《「『【〔〖〘〚〝＄（［｛｟｢￡￥#$＃№เแโใไເແໂໃໄ")  # noqa: RUF001 - these are meant


@lru_cache(maxsize=65_536)
def measure(text: str) -> tuple[int, int]:
    """Return the columns and the graphemes of a line of text."""
    if text.isascii():
        return len(text), len(text)
    clusters = list(iter_graphemes(text))
    return sum(max(0, wcswidth(cluster)) for cluster in clusters), len(clusters)


def has_unspaced(text: str) -> bool:
    """Tell whether any of the text is in a script without blanks between words."""
    return not text.isascii() and _ANY_UNSPACED.search(text) is not None


def can_part(before: str, after: str) -> bool:
    """Tell whether a line may end between two pieces of text that no blank parts."""
    if before.isascii() and after.isascii():
        return False
    last, first = before[-1], after[0]
    if not (_ANY_UNSPACED.match(last) or _ANY_UNSPACED.match(first)):
        return False
    if is_blank(before) or is_blank(first):  # a line of its own would show nothing
        return False
    if first in _NOT_FIRST or last in _NOT_LAST or (last == first and last == "\u2015"):
        return False
    *_, cluster = iter_graphemes(before[-16:] + first)
    return cluster == first


def unbroken(text: str) -> list[str]:
    """Return the smallest pieces of a text without blanks between which a line may end."""
    if not has_unspaced(text):
        return [text]
    pieces: list[str] = []
    for cluster in iter_graphemes(text):
        if pieces and not can_part(pieces[-1], cluster):
            pieces[-1] += cluster
        else:
            pieces.append(cluster)
    return pieces
