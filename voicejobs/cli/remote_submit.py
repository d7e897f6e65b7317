"""`voicejobs submit PATH... --server URL`: hash, upload what the service lacks, create one batch, follow it."""

import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import click

from voicejobs.cli.globals import current
from voicejobs.cli.inputs import RECORDINGS, STDIN, Found, Search, find_inputs
from voicejobs.cli.lists import expand_lists
from voicejobs.cli.main import EXIT_INTERRUPTED, EXIT_REJECTED, complain
from voicejobs.cli.outputs import require_writable
from voicejobs.cli.patterns import Pattern, parse_size
from voicejobs.cli.recognition_options import option_warnings, wishes
from voicejobs.cli.remote_download import Download, download_batch
from voicejobs.cli.remote_follow import RemoteFollowing
from voicejobs.cli.show import print_json
from voicejobs.cli.subtitle_options import render_flags
from voicejobs.client.service import Service
from voicejobs.client.uploads import Notes, Upload, bring
from voicejobs.errors import BadUsage, InputError
from voicejobs.formats import chosen
from voicejobs.settings import Settings
from voicejobs.store.paths import display_name
from voicejobs.tasks.content import read_content

EXIT_SOME_REFUSED = 3
EXIT_NO_INPUT = 4
MAX_ITEMS = 10_000
MAX_NAME_CHARS = 255
MAX_PATH_CHARS = 512
TELL_EVERY_S = 5.0
IDEMPOTENCY_KEY = "Idempotency-Key"
REPLAYED = "idempotency-replayed"


def run(settings: Settings, paths: Sequence[str], flags: Mapping[str, Any], given: frozenset[str]) -> int:
    """Submit files to a service, and return the exit code of docs/cli.md.

    Args:
        settings: address and key of the service.
        paths: files, folders, patterns and lists.
        flags: the options of the command.
        given: names of those that were given.

    Raises:
        VoicejobsError: the whole run ended with it; what was uploaded stays there.
    """
    if STDIN in paths:
        raise BadUsage("Standard input (-) cannot be sent to a service", hint="Write it to a file, and name that.")
    formats = chosen(flags["formats"])
    for warning in option_warnings(flags):
        click.echo(f"warning: {warning}", err=True)
    found = find_inputs(expand_lists(paths), _search(flags)).found
    if not found:
        click.echo("error: no audio files were found there [no_input]", err=True)
        click.echo("  Name files, or folders that hold recordings.", err=True)
        return EXIT_NO_INPUT
    writes = flags["wait"] and "output_dir" in given
    with Service(settings) as service:
        if writes:
            require_writable(flags["output_dir"])
        hashed = _hashed(found)
        notes = Notes(settings.state_dir / "uploads", service.url)
        try:
            uploads, file_ids = _Sending(service, notes, quiet=current().quiet or flags["as_json"]).all(hashed)
        except KeyboardInterrupt:
            click.echo("\nNothing was submitted. Run it again: what the service has is not sent again.", err=True)
            return EXIT_INTERRUPTED
        if not uploads:
            return EXIT_REJECTED
        batches, replayed = _create(service, uploads, file_ids, {**_wish(flags, formats, given)})
        refused = len(found) - len(uploads)
        _tell(batches, len(uploads), refused, flags, replayed=replayed, is_idle="output_dir" in given and not writes)
        code = EXIT_SOME_REFUSED if refused else 0
        if not flags["wait"]:
            return code
        following = RemoteFollowing(service, flags["as_json"], settings.server_wait_s)
        code = following.batches(batches) or code
        if writes and code != EXIT_INTERRUPTED:
            wish = Download(formats, flags["output_dir"], render_flags(flags), flags["force"], as_line=True)
            for number, batch_id in enumerate(batches):
                names = [one.relative for one in uploads[number * MAX_ITEMS : (number + 1) * MAX_ITEMS]]
                code = download_batch(service, batch_id, wish, as_json=flags["as_json"], names=names) or code
        return code


def _search(flags: Mapping[str, Any]) -> Search:
    """Return what to take as input; the search of `transcribe`, but that standard input has no name here."""
    return Search(
        recursive=flags["recursive"],
        include=tuple(Pattern(text, anywhere=True) for text in flags["include"]),
        exclude=tuple(Pattern(text, anywhere=True) for text in flags["exclude"]),
        min_size=parse_size(flags["min_size"]),
        kind=RECORDINGS,
    )


@dataclass(frozen=True, slots=True)
class NamedUpload(Upload):
    """Name a file that goes to the service, and what it is called here, byte for byte."""

    relative: str = ""


def _hashed(found: Sequence[Found]) -> list[NamedUpload]:
    """Return the files with their hashes; those that cannot be read are told of and left out."""
    uploads = []
    for one in found:
        try:
            if one.error is not None:
                raise one.error
            content = read_content(one.path, display_name(one.relative))
        except InputError as error:
            complain(error)
            continue
        uploads.append(NamedUpload(one.path, display_name(one.relative), content.sha256, content.size, one.relative))
    return uploads


@dataclass(slots=True)
class _Sending:
    """Send files one after the other, each content once, and say how far it is."""

    service: Service
    notes: Notes
    quiet: bool
    _sent: int = 0
    _total: int = 0
    _told: float = field(default_factory=time.monotonic)

    def all(self, uploads: Sequence[NamedUpload]) -> tuple[list[NamedUpload], dict[str, str]]:
        """Return the files that the service has, and their ids by hash.

        A file that changes meanwhile, or can be read no more, costs the others nothing: it is told of and left out.
        """
        self._total = sum(one.size for one in {one.sha256: one for one in uploads}.values())
        there: list[NamedUpload] = []
        ids: dict[str, str] = {}
        for one in uploads:
            try:
                if one.sha256 not in ids:
                    ids[one.sha256] = bring(self.service, self.notes, one, self._note)
            except InputError as error:
                complain(error)
            else:
                there.append(one)
        return there, ids

    def _note(self, count: int) -> None:
        """Count bytes that the service has, and say so now and then."""
        self._sent += count
        now = time.monotonic()
        if not self.quiet and (now - self._told > TELL_EVERY_S):
            self._told = now
            click.echo(f"{self._sent / 1e6:.0f} of {self._total / 1e6:.0f} MB uploaded", err=True)


def _wish(flags: Mapping[str, Any], formats: Sequence[str], given: frozenset[str]) -> dict[str, Any]:
    """Return what the request for a batch says beside its items."""
    options = wishes(flags, given)
    render = render_flags(flags)
    if render:
        options["deliver"] = {"render": render}
    defaults: dict[str, Any] = {"task": flags["task"], "options": options, "output_formats": list(formats)}
    defaults |= {name: flags[name] for name in ("engine", "model") if name in given}
    wish: dict[str, Any] = {"defaults": defaults, "lane": flags["lane"], "force": flags["force"]}
    if flags["label"]:
        wish["label"] = flags["label"]
    if flags["expires_after"]:
        wish["expires_after"] = flags["expires_after"]
    return wish


def _create(
    service: Service, uploads: Sequence[Upload], file_ids: Mapping[str, str], wish: Mapping[str, Any]
) -> tuple[list[str], bool]:
    """Create the batch, or several where one does not take all; return their ids, and whether they were there already.

    The request says which it is: the same files with the same options are one batch, however often a killed command is
    run again within a day. `--force` means another.
    """
    batches, replayed = [], False
    nonce = os.urandom(8).hex() if wish["force"] else ""
    for first in range(0, len(uploads), MAX_ITEMS):
        items = [_item(one, file_ids[one.sha256]) for one in uploads[first : first + MAX_ITEMS]]
        names = sorted({one.name.split("/")[0] for one in uploads})
        label = wish.get("label") or f"submit {names[0]}" + (
            f" and {len(uploads) - 1} more" if len(uploads) > 1 else ""
        )
        body = {**wish, "label": label[:MAX_NAME_CHARS], "items": items}
        digest = sha256(json.dumps(body, sort_keys=True).encode() + nonce.encode()).hexdigest()
        answer = service.send(
            "POST", "/api/v1/batches", json=body, headers={IDEMPOTENCY_KEY: f"voicejobs-submit-{digest}"}
        )
        replayed = replayed or answer.headers.get(REPLAYED) == "true"
        batches.append(str(service.read(answer)["id"]))
    return batches, replayed


def _item(upload: Upload, file_id: str) -> dict[str, Any]:
    """Return one item of a batch; a path that is no name is kept beside it, for the download."""
    name = upload.name
    if len(name) <= MAX_NAME_CHARS:
        return {"source": {"file_id": file_id, "name": name}}
    short = {"file_id": file_id, "name": Path(name).name[-MAX_NAME_CHARS:]}
    return {"source": short, "metadata": {"path": name[-MAX_PATH_CHARS:]}}


def _tell(
    batches: Sequence[str], count: int, refused: int, flags: Mapping[str, Any], *, replayed: bool, is_idle: bool
) -> None:
    """Print the ids, and what became of the files; `is_idle` says that an output folder was named in vain."""
    outcome = {"submitted": 0 if replayed else count, "known": count if replayed else 0, "done": 0}
    told = {"batches": list(batches), "lines": count + refused, **outcome, "refused": refused}
    if flags["as_json"]:
        if flags["wait"]:
            click.echo(json.dumps({"v": 1, "type": "submission", **told}))
        else:
            print_json("submission", told)
        return
    click.echo("\n".join(batches))
    if current().quiet:
        return
    files = "1 file" if count == 1 else f"{count} files"
    left = f", {refused} left out" if refused else ""
    click.echo(f"{files} submitted{' before' if replayed else ''}{left}", err=True)
    if is_idle:
        click.echo("  -o counts with --wait; without it `batch download BATCH -o DIR` writes the text later.", err=True)
    if replayed:
        click.echo("  `voicejobs batch retry-failed` takes failures up again, --force submits all anew.", err=True)
    elif not flags["wait"]:
        click.echo("`voicejobs batch watch BATCH` follows them, `batch download` fetches the text.", err=True)
