"""`voicejobs serve`: long-running services of this machine."""

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from voicejobs.cli import option_types
from voicejobs.cli.engine_choice import engine_and_model
from voicejobs.cli.globals import current_settings
from voicejobs.cli.spelling import Command, Group
from voicejobs.engines.base import EngineKind
from voicejobs.errors import BadUsage
from voicejobs.models.parts import Progress, PullEvent
from voicejobs.settings import Settings, inherited_environment, read_secret

DEFAULT_VOICE_MODEL = "en_US-joe-medium"
DEFAULT_API_PORT = 8000
_PEM = click.Path(path_type=Path, exists=True, dir_okay=False, readable=True)
_MOST_PORT = 65_535


@click.group(cls=Group)
def serve() -> None:
    """Run services: the REST service, workers, the voice engine, Flower."""


@serve.command(
    "worker",
    cls=Command,
    epilog="\b\nExamples:\n  voicejobs serve worker --devices auto,cpu\n"
    "  voicejobs serve worker --devices cuda:0@0.45,cuda:0@0.45,cuda:1,cpu",
)
@click.option(
    "--devices", default="auto", show_default=True, metavar="LIST",
    help="auto, cpu, or a list of cuda:N, GPU-<uuid> and MIG-<uuid>, each with @SHARE of its memory.",
)  # fmt: skip
@click.option("--grace", type=option_types.FloatRange(0), default=10.0, show_default=True, metavar="SECONDS",
              help="Time that workers have to give their leases back.")  # fmt: skip
@click.option("--max-memory-mb", type=click.IntRange(0), default=0, show_default=True, metavar="MB",
              help="Start a worker anew that takes more, with its children; 0: never.")  # fmt: skip
@click.option("--ready-file", type=option_types.ReadyFile(), help="File that is there while all workers take work.")
def worker(devices: str, grace: float, max_memory_mb: int, ready_file: Path | None) -> None:
    """Run one worker for each device, and keep them running.

    Needs VOICEJOBS_BROKER_URL and VOICEJOBS_DATABASE_URL. SIGTERM lets them go; SIGHUP starts them anew one by one.
    """
    settings = current_settings()
    if not settings.broker_url or not settings.database_url:
        raise BadUsage("Workers of their own need servers", hint="Set VOICEJOBS_BROKER_URL and VOICEJOBS_DATABASE_URL.")
    words = ["--devices", devices, "--grace", str(grace), "--max-memory-mb", str(max_memory_mb)]
    if ready_file is not None:
        words += ["--ready-file", str(ready_file.absolute())]
    _become("voicejobs_workers.launcher", words, settings)


@serve.command(
    "engine",
    cls=Command,
    epilog="\b\nExamples:\n  voicejobs serve engine --model base\n"
    "  voicejobs serve engine --address unix:/run/voicejobs/engine.sock --voice-engine piper\n"
    "  voicejobs serve engine --address 0.0.0.0:50051 --tls-cert cert.pem --tls-key key.pem --keys-file keys",
)
@click.option("--address", default="127.0.0.1:50051", show_default=True, metavar="ADDRESS",
              help="HOST:PORT, [IPV6]:PORT or unix:PATH; port 0 takes a free one.")  # fmt: skip
@click.option("--engine", default="whisper", show_default=True, help="Engine that recognises; none: nothing is.")
@click.option("--model", default="base", show_default=True, help="Its model; fetched where missing.")
@click.option("--revise-model", metavar="MODEL", help="Model of the same engine that revises the results of streams.")
@click.option("--language", type=option_types.language, default="auto", show_default=True,
              help="Language of requests that name none.")  # fmt: skip
@click.option("--vad-engine", default="silero", show_default=True, help="Engine that tells speech from all else.")
@click.option("--voice-engine", default="none", show_default=True, help="Engine that speaks; none: nothing does.")
@click.option("--voice-model", default="", help="Its model; en_US-joe-medium for piper.")
@click.option("--device", type=option_types.device, default="auto", show_default=True, help="auto, cpu or cuda:N.")
@click.option("--compute-type", default="", help="Number format of the recogniser, such as int8.")
@click.option("--threads", type=click.IntRange(0), default=0, show_default=True, help="CPU threads of one process.")
@click.option("--batch-size", type=click.IntRange(0), default=0, show_default=True,
              help="Windows or pieces of one engine call; 0: as the engine likes it.")  # fmt: skip
@click.option("--slots", type=click.IntRange(0), default=0, show_default=True,
              help="Requests that work at once; 0: as the engines need.")  # fmt: skip
@click.option("--max-streams", type=click.IntRange(0), default=32, show_default=True, help="Streams open at once.")
@click.option("--queue-length", type=click.IntRange(0), help="Requests that may wait.")
@click.option("--wait", type=option_types.FloatRange(0), metavar="SECONDS", help="How long one may wait.")
@click.option(
    "--max-message-mb", type=option_types.FloatRange(0, min_open=True), metavar="MIB", help="Largest message."
)
@click.option("--keys-file", type=click.Path(path_type=Path), help="File with NAME=KEY lines; calls need a key then.")
@click.option("--tls-cert", type=_PEM, help="Certificate chain of the server, PEM.")
@click.option("--tls-key", type=_PEM, help="Its private key, PEM.")
@click.option("--client-ca", type=_PEM, help="CA whose certificates clients must have, PEM.")
@click.option("--allow-public", is_flag=True, help="Serve a public address without TLS or without keys.")
@click.option("--grace", type=option_types.FloatRange(0), default=10.0, show_default=True, metavar="SECONDS",
              help="Time that calls have to end after SIGTERM.")  # fmt: skip
@click.option("--ready-file", type=option_types.ReadyFile(), help="File with the address while calls are taken.")
@click.option("--metrics-port", type=click.IntRange(0, 65535), metavar="PORT",
              help="Show metrics on this port of 127.0.0.1; 0 takes a free one; none if left out.")  # fmt: skip
def engine(**given: Any) -> None:
    """Serve recognition and speech over gRPC, with the engine processes and the batching of a worker.

    Prints `serving on ADDRESS` once it takes calls. SIGTERM lets running calls end.
    """
    if bool(given["tls_cert"]) != bool(given["tls_key"]) or (given["client_ca"] and not given["tls_cert"]):
        raise BadUsage("TLS needs a certificate and its key", hint="Give --tls-cert and --tls-key together.")
    settings = _service_settings(current_settings(), given)
    words = ["--plan", json.dumps(_engine_plan(settings, given)), "--address", given["address"]]
    for name in ("slots", "grace"):
        words += [f"--{name}", str(given[name])]
    words += ["--streams", str(given["max_streams"])]
    if given["metrics_port"] is not None:
        words += ["--metrics-port", str(given["metrics_port"])]
    for name in ("tls_cert", "tls_key", "client_ca", "ready_file"):
        if given[name] is not None:
            words += [f"--{name.replace('_', '-')}", str(given[name].absolute())]
    if given["allow_public"]:
        words.append("--allow-public")
    _become("voicejobs.rpc", words, settings)


@serve.command(
    "flower",
    cls=Command,
    epilog="\b\nExamples:\n  VOICEJOBS_FLOWER_AUTH_FILE=flower.auth voicejobs serve flower\n"
    "  voicejobs serve flower --allow-anonymous --port 5556",
)
@click.option("--address", default="127.0.0.1", show_default=True, metavar="ADDRESS", help="Address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), default=5555, show_default=True, help="0 takes a free one.")
@click.option("--allow-anonymous", is_flag=True, help="Ask for no credentials; on loopback only.")
@click.option("--allow-public", is_flag=True, help="Serve an address that others reach, in plain text.")
@click.option("--url-prefix", default="", metavar="PATH", help="First part of all paths, behind a proxy.")
@click.option("--ready-file", type=option_types.ReadyFile(), help="File with the address while Flower answers.")
def flower(**given: Any) -> None:
    """Watch workers, queues and tasks with Flower, read-only.

    Needs VOICEJOBS_BROKER_URL, and VOICEJOBS_FLOWER_AUTH or VOICEJOBS_FLOWER_AUTH_FILE with NAME:PASSWORD.
    """
    settings = current_settings()
    if not settings.broker_url:
        raise BadUsage("Flower watches a broker of its own", hint="Set VOICEJOBS_BROKER_URL.")
    words = ["--address", given["address"], "--port", str(given["port"]), "--url-prefix", given["url_prefix"]]
    words += [f"--{name}" for name in ("allow-anonymous", "allow-public") if given[name.replace("-", "_")]]
    if given["ready_file"] is not None:
        words += ["--ready-file", str(given["ready_file"].absolute())]
    _become("voicejobs.flower", words, settings)


@serve.command(
    "api",
    cls=Command,
    epilog="\b\nExamples:\n  voicejobs serve api\n  voicejobs serve api --port 8080 --ready-file ready\n"
    "  voicejobs serve api --address 0.0.0.0 --tls-cert cert.pem --tls-key key.pem",
)
@click.option("--address", default="127.0.0.1", show_default=True, metavar="HOST[:PORT]",
              help="Where to listen; an IPv6 address stands in brackets where a port follows.")  # fmt: skip
@click.option("--port", type=click.IntRange(0, 65535), help="Port, 8000 by default; 0 takes a free one.")
@click.option("--tls-cert", type=_PEM, help="Certificate chain of the server, PEM.")
@click.option("--tls-key", type=_PEM, help="Its private key, PEM.")
@click.option("--client-ca", type=_PEM, help="CA whose certificates clients must have, PEM.")
@click.option("--allow-public", is_flag=True, help="Serve a public address without TLS, or before there is a key.")
@click.option("--grace", type=option_types.FloatRange(0), default=10.0, show_default=True, metavar="SECONDS",
              help="Time that requests have to end after SIGTERM.")  # fmt: skip
@click.option("--ready-file", type=option_types.ReadyFile(), help="File with the address while requests are taken.")
def api(**given: Any) -> None:
    """Serve the REST service: jobs, files and keys over HTTP, and what clients of OpenAI expect.

    Prints `serving on URL` once it takes requests. SIGTERM lets running requests end. Without VOICEJOBS_BROKER_URL it
    has the workers of this machine do the work. Calls need a key once one was made, and always where --allow-public
    is said.
    """
    if bool(given["tls_cert"]) != bool(given["tls_key"]) or (given["client_ca"] and not given["tls_cert"]):
        raise BadUsage("TLS needs a certificate and its key", hint="Give --tls-cert and --tls-key together.")
    host, port = _place(given["address"], given["port"])
    words = ["--host", host, "--port", str(port), "--grace", str(given["grace"])]
    for name in ("tls_cert", "tls_key", "client_ca", "ready_file"):
        if given[name] is not None:
            words += [f"--{name.replace('_', '-')}", str(given[name].absolute())]
    if given["allow_public"]:
        words.append("--allow-public")
    _become("voicejobs.api", words, current_settings())


def _place(address: str, port: int | None) -> tuple[str, int]:
    """Return host and port of an address that may have one.

    Raises:
        BadUsage: it is none.
    """
    host, stated = address, ""
    if address.startswith("[") or address.count(":") == 1:
        host, _, stated = address.rpartition(":") if not address.endswith("]") else (address, "", "")
    if not host or (stated and not (stated.isascii() and stated.isdigit() and int(stated) <= _MOST_PORT)):
        raise BadUsage(f"{address!r} is no address", hint="Write HOST, HOST:PORT or [IPV6]:PORT.")
    if port is None:
        port = int(stated) if stated else DEFAULT_API_PORT
    return host.strip("[]"), port


def _service_settings(settings: Settings, given: Mapping[str, Any]) -> Settings:
    """Return the settings with what options say of them."""
    changes: dict[str, Any] = {}
    if given["queue_length"] is not None:
        changes["rpc_queue_length"] = given["queue_length"]
    if given["wait"] is not None:
        changes["rpc_wait_s"] = given["wait"]
    if given["max_message_mb"] is not None:
        changes["rpc_max_message_bytes"] = int(given["max_message_mb"] * (1 << 20))
    if given["keys_file"] is not None:
        changes["rpc_keys"] = read_secret(given["keys_file"], label="--keys-file")
    return replace(settings, **changes)


def _engine_plan(settings: Settings, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the engines to serve, each as options of its step, their models fetched where they are missing."""
    place = {"device": given["device"], "threads": given["threads"], "batch_size": given["batch_size"]}
    language = None if given["language"] == "auto" else given["language"]
    recognise = {"compute_type": given["compute_type"], "language": language, **place}
    plan: dict[str, Any] = {"vad_engine": given["vad_engine"]}
    if given["engine"] != "none":
        plan["recognise"] = {**recognise, **_model(settings, given["engine"], given["model"], "recogniser")}
        if given["revise_model"]:
            plan["revise"] = {**recognise, **_model(settings, given["engine"], given["revise_model"], "recogniser")}
    if given["voice_engine"] != "none":
        name = given["voice_model"] or DEFAULT_VOICE_MODEL
        found = _model(settings, given["voice_engine"], name, "synthesiser")
        if given["voice_model"] and not found["model_sha256"]:  # a client of a server, which knows the model by name
            found["model"] = given["voice_model"]
        plan["synthesise"] = {**found, **place}
    return plan


def _model(settings: Settings, engine: str, name: str, kind: EngineKind) -> dict[str, str]:
    """Return an engine and its model as options of a step."""
    found, sha256 = engine_and_model(settings, engine, name, kind=kind, tell=_teller(), fetch=True)
    return {"engine": engine, "model": found, "model_sha256": sha256}


def _teller() -> Progress:
    """Return what tells of the fetching of a model, each thing once."""
    told: set[str] = set()

    def tell(event: PullEvent) -> None:
        if event.text not in told:
            told.add(event.text)
            click.echo(f"{event.model}: {event.text}", err=True)

    return tell


def _become(module: str, words: list[str], settings: Settings) -> None:
    """Become a module of ours, so that whoever supervises this process has one pid to mind.

    It is named, not imported: the library knows no deployment, and commands no services.
    """
    sys.stdout.flush()
    os.execve(  # noqa: S606 - our own interpreter and module
        sys.executable,
        [sys.executable, "-P", "-m", module, *words],
        {**inherited_environment(), **settings.to_env()},
    )
