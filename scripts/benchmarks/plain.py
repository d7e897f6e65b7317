"""Plain faster-whisper: one process, one file after the other, defaults as its README shows them.

python plain.py MODEL_FOLDER OUTPUT_FOLDER LANGUAGE THREADS FILE...
python plain.py --can-open FILE...       print the files that it can decode
"""

import sys
from pathlib import Path


def can_open(paths: list[str]) -> None:
    """Print the paths that faster-whisper decodes."""
    from faster_whisper import decode_audio

    for path in paths:
        try:
            decode_audio(path)
        except Exception as error:  # noqa: BLE001 - whatever stops it, it cannot open the file
            print(f"{path}: {type(error).__name__}", file=sys.stderr)
        else:
            print(path)


def transcribe(model_folder: str, output: str, language: str, threads: str, *paths: str) -> None:
    """Write `<stem>.txt` for each file."""
    from faster_whisper import WhisperModel

    model = WhisperModel(model_folder, device="cpu", compute_type="int8", cpu_threads=int(threads))
    for path in paths:
        segments, _ = model.transcribe(path, language=language or None, beam_size=5)
        text = "\n".join(segment.text.strip() for segment in segments)
        Path(output, f"{Path(path).stem}.txt").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    if sys.argv[1] == "--can-open":
        can_open(sys.argv[2:])
    else:
        transcribe(*sys.argv[1:])
