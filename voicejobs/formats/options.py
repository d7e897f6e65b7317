"""What a user may change about the files."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RenderOptions:
    """Hold the options of all formats; each format looks at its own.

    Args:
        channel_labels: name the channel of each passage in txt, srt and vtt, where channels were kept apart.
        srt_bom: start SRT files with a byte order mark, which some old players need to see UTF-8.
        srt_crlf: end the lines of SRT files with CR LF.
    """

    channel_labels: bool = True
    srt_bom: bool = False
    srt_crlf: bool = False
