"""What JSON can hold: no NaN, no numpy, no halves of characters."""

import json
import math
from itertools import chain
from typing import Any, Final

import numpy as np

from voicejobs.formats.clean import encodable
from voicejobs.piecewise import encoded

_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False, indent=2)


def dump(document: Any) -> bytes:
    """Return a document as UTF-8 with a line end; values that JSON has not become plain first."""
    return encoded(chain(_ENCODER.iterencode(plain(document)), ["\n"]))


def plain(value: Any) -> Any:
    """Return `value` made of what JSON has: numpy's numbers become plain, and numbers that are none become None."""
    if isinstance(value, (np.ndarray, np.generic)):
        value = value.tolist()
    if isinstance(value, str):
        return encodable(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(name): plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value


def rounded_s(seconds: float | None) -> float | None:
    """Round to milliseconds, halves up, so that order is kept."""
    if seconds is None or not math.isfinite(seconds):
        return None
    return math.floor(float(seconds) * 1000 + 0.5) / 1000
