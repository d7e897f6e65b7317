"""Keep decoded audio on the clock of its container: how much silence belongs before a frame."""

LEAST_GAP_S = 0.05
"""Shorter gaps are rounding of time stamps, or the delay of a codec."""
MOST_GAP_S = 600.0
"""A longer gap in mid-stream is a new clock (joined files, a damaged stamp), not silence."""
MOST_START_S = 24 * 3600.0
JUMP_BACK_S = -0.5


class Timeline:
    """Compare the time stamps of frames with the audio so far.

    Sound that starts late is always padded. Later gaps count where the container keeps a clock (packets that were
    never recorded), and elsewhere only after a packet that could not be decoded.

    Args:
        origin_s: the time stamp at which the container starts.
        clocked: whether the container's time stamps are a clock rather than a count of samples.
    """

    def __init__(self, origin_s: float, *, clocked: bool) -> None:
        self._origin_s = origin_s
        self._clocked = clocked
        self._position_s = 0.0
        self._started = False
        self._skipped = 0

    def place(self, time_s: float | None, duration_s: float, skipped_packets: int) -> float:
        """Return the seconds of silence that belong before a frame, and move on past both.

        Args:
            time_s: time stamp of the frame, None where it has none.
            duration_s: length of the frame.
            skipped_packets: packets skipped since the start.
        """
        silence_s = 0.0 if time_s is None else self._gap_s(time_s, skipped_packets)
        self._started = True
        self._skipped = skipped_packets
        self._position_s += silence_s + duration_s
        return silence_s

    def _gap_s(self, time_s: float, skipped_packets: int) -> float:
        """Return the silence before a frame stamped `time_s`."""
        gap_s = time_s - self._origin_s - self._position_s
        if not self._started:
            return gap_s if LEAST_GAP_S < gap_s <= MOST_START_S else 0.0
        if gap_s > MOST_GAP_S or gap_s < JUMP_BACK_S:
            self._origin_s = time_s - self._position_s
            return 0.0
        expected = self._clocked or skipped_packets > self._skipped
        return gap_s if gap_s > LEAST_GAP_S and expected else 0.0
