"""The errand of `voicejobs transcribe`."""

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

from voicejobs.cli.errand import Desk
from voicejobs.cli.inputs import RECORDINGS, STDIN, Found, Search, Selection, find_inputs
from voicejobs.cli.lists import expand_lists
from voicejobs.cli.recognition_options import option_warnings, pipeline_options
from voicejobs.cli.spool import name_of_stdin, spool_folder, spool_stdin
from voicejobs.cli.subtitle_options import render_flags
from voicejobs.errors import ExtraMissing, VoicejobsError
from voicejobs.formats import chosen
from voicejobs.hosting.decoder import Decoder
from voicejobs.models.parts import Progress
from voicejobs.pipelines.pipeline import TRANSCRIBE, Pipeline
from voicejobs.settings import Settings
from voicejobs.submit import InputFile


class Recognising:
    """Turn recordings into text; see `Errand` for the methods."""

    command = "transcribe"
    kind = RECORDINGS
    none_found = ("no audio files were found there", "Name files, or folders that hold recordings.")

    def pipeline(self, flags: Mapping[str, Any]) -> Pipeline:
        """Return the pipeline."""
        return TRANSCRIBE

    def formats(self, flags: dict[str, Any]) -> list[str]:
        """Return the formats of the transcripts."""
        return list(chosen(flags["formats"]))

    def names(self, flags: Mapping[str, Any]) -> tuple[str, str]:
        """Return model and language."""
        return flags["model"], flags["language"] or ""

    def options(
        self, settings: Settings, flags: dict[str, Any], formats: Sequence[str], tell: Progress, *, fetch: bool
    ) -> dict[str, dict[str, Any]]:
        """Return the options of the pipeline."""
        prepare, recognise = pipeline_options(settings, flags, formats, tell, fetch=fetch)
        deliver = {"formats": list(formats), "render": render_flags(flags)}
        return TRANSCRIBE.options({"prepare": prepare, "recognise": recognise, "deliver": deliver})

    def facts(self, options: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        """Return what is told at the start."""
        recognise = options["recognise"]
        return {
            "engine": recognise["engine"],
            "model": recognise["model"],
            "options": {
                "prepare": options["prepare"],
                "recognise": recognise,
                "render": options["deliver"]["render"],
            },
        }

    def warnings(self, flags: Mapping[str, Any]) -> list[str]:
        """Return what has no effect."""
        return option_warnings(flags)

    def select(self, paths: Sequence[str], flags: Mapping[str, Any], search: Search, desk: Desk) -> Selection:
        """Return the recordings."""
        return find_inputs(expand_lists(paths), search)

    def spooled(self, flags: Mapping[str, Any], settings: Settings, desk: Desk) -> Callable[[], Found]:
        """Return what copies standard input into a file: decoders need one."""
        name = name_of_stdin(flags["stdin_name"])

        def stdin() -> Found:
            if flags["dry_run"]:
                return Found(STDIN, name)
            return spool_stdin(desk.cleanup.enter_context(spool_folder(settings)), name)

        return stdin

    def measure(self, settings: Settings, files: Sequence[InputFile]) -> list[float | VoicejobsError | None]:
        """Return how long the headers say that files are."""
        decoder = Decoder(settings)

        def look(file: InputFile) -> float | VoicejobsError | None:
            if file.path == STDIN:
                return None
            try:
                with decoder.open(Path(file.path)) as stream:
                    return stream.info.claimed_duration_s
            except VoicejobsError as error:
                return error

        try:
            decoder.start()
        except ExtraMissing:
            return [None] * len(files)
        with closing(decoder), ThreadPoolExecutor(max_workers=os.cpu_count() or 1) as pool:
            try:
                return list(pool.map(look, files))
            except KeyboardInterrupt:
                pool.shutdown(wait=False, cancel_futures=True)
                raise

    def pace(self, options: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Any]:
        """Return what the speed depends on."""
        return {"node": "recognise", "first": "prepare", **_same(options["recognise"])}


def _same(recognise: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of recognition that set its speed."""
    return {name: recognise.get(name) for name in ("engine", "model", "beam_size", "device")}
