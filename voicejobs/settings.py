"""The settings, and the one place in the library that reads the environment."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Self

from voicejobs.errors import BadOption

PREFIX = "VOICEJOBS_"
_SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - a folder of our own in it, checked before it is used
SECRETS = (
    "broker_url",
    "database_url",
    "s3_secret",
    "rpc_keys",
    "openai_key",
    "remote_key",
    "api_engine_key",
    "webhook_secret",
    "flower_auth",
    "server_key",
    "api_engine_key",
)
"""Settings that are or may hold a password; `<NAME>_FILE` names a file to read them from."""
OF_THE_COMMAND_LINE = frozenset({"CONFIG", "PROFILE", "COLOR", "QUIET", "VERBOSE", "LOG_FILE"})
"""Variables with our prefix that the command line reads; so are those that begin with the name of a command."""
COMMANDS = (
    "TRANSCRIBE", "SPEAK", "SUBMIT", "CONVERT", "LINT", "JOB", "BATCH", "SERVE", "VOICES", "MODELS", "CONFIG", "DB",
    "DOCTOR", "PRUNE", "COMPLETION", "VERSION", "WEBHOOK", "WATCH", "KEY", "RETELL",
)  # fmt: skip
_OPTIONS_OF_WEBHOOK = tuple(f"WEBHOOK_{name}_" for name in ("ADD", "LIST", "REMOVE", "ROTATE", "TEST", "VERIFY"))
"""Settings begin with the name of this command, too: what is neither is a slip."""


_LARGEST = (1 << 63) - 1
"""Whole numbers above do not fit into a row, and some not into a floating-point number."""
_MOST = {"api_requests_per_minute": 1_000_000, "api_concurrency": 1_000_000}
"""Settings that a key may have for itself, and cannot have larger."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Hold every setting; `VOICEJOBS_<FIELD IN CAPITALS>` sets it, docs/settings.md explains it.

    Args:
        state_dir: folder of the embedded stack: database, decoded audio, logs.
        models_dir: folder of verified model files.
        blobs_url: place of blobs that all machines share: `s3://bucket/prefix`, or a folder; empty: the state folder.
        blobs_cache_bytes: size of the blobs of S3 that stay in the state folder.
        s3_endpoint_url: address of a store that speaks S3; empty for AWS's own.
        s3_region: its region; empty for that of AWS's own settings.
        s3_key_id: id of the access key; empty for the credentials of AWS's own settings.
        s3_secret: its secret.
        broker_url: Redis-protocol server; empty starts a private Valkey.
        database_url: SQLAlchemy URL of Postgres (`postgresql+psycopg://`); empty uses SQLite in the state folder.
        local_workers: whether commands start workers on this machine when the servers are external.
        engine_processes: engine processes of one worker; 0 means as many as cores and memory allow.
        lease_s: seconds after which a silent worker loses its step runs.
        max_attempts: failures after which a transient error becomes final.
        step_base_s: seconds that a step may take whatever its audio.
        step_factor: further seconds that it may take for each second of its audio.
        stall_s: seconds that a worker may stand still before it ends itself; 0 for ever.
        max_memory_bytes: memory that a worker or the voice engine may hold with its processes and still begin work; 0
            for any.
        disk_floor_bytes: free bytes in the state folder below which no further job is begun.
        max_queued_jobs: jobs that may wait before submissions are refused; 0 for no limit.
        max_audio_s: longest decoded audio of one file, in seconds.
        max_decoded_bytes: most bytes of decoded PCM of one file.
        decode_memory_bytes: address space of one decoder process.
        engine_idle_s: seconds after which an unused engine process ends; 0 never.
        window_jobs: jobs sent to the broker and not ended; 0 derives it from the slots.
        linger_s: seconds that the embedded stack outlives its last client.
        offline: ask neither the model hub nor the package index.
        hub_url: base address of the model hub.
        log_level: level of the log files.
        rpc_max_message_bytes: largest message that the voice engine takes and its client sends.
        rpc_queue_length: requests that may wait for the voice engine; more are refused.
        rpc_wait_s: seconds that a request may wait there before it is dropped.
        rpc_keys: keys that the voice engine takes, a line or comma each, `NAME=KEY` or `NAME=sha256:HEX`; empty: none.
        api_hosts: names that the service goes by, commas between; empty: those of this machine where it listens there
            alone, else any.
        api_origins: sites whose web pages may ask the service, commas between; empty: none but its own.
        api_hsts_s: seconds for which browsers must use TLS only; 0 says nothing.
        api_max_body_bytes: largest body of a request, where its route says nothing else.
        api_body_wait_s: seconds in which more of a body must have come.
        api_header_wait_s: seconds in which the headers of a request must have come.
        api_max_requests: requests that the service has in hand at once.
        api_requests_per_minute: requests of one key, by which its bucket fills; 0 for no limit.
        api_concurrency: requests of one key at once; 0 for no limit.
        api_streams: event streams of one key at once; 0 for no limit.
        api_tenant_jobs: jobs that a tenant may have in the queue or at work; 0 for no limit.
        api_tenant_audio_s: seconds of audio that these may have together; 0 for no limit.
        api_aliases: names of models in OpenAI's interface and what they stand for, `NAME=MODEL,...`.
        api_voices: names of voices there and what they stand for, `NAME=VOICE,...`.
        api_sync_audio_s: longest recording of a call that waits for its answer, in seconds.
        api_sync_wait_s: seconds for which such a call waits.
        api_sync_upload_bytes: largest body of such a call with a recording.
        api_speech_chars: characters of a text that such a call speaks.
        api_upload_bytes: largest file that is uploaded in one piece; what is larger goes in parts.
        api_batch_lines: requests in the file of a batch.
        api_batch_bytes: size of the file of a batch.
        api_engine_url: voice engine for live captions, `grpc://host:port`, `grpcs://host:port` or `unix:///path`.
        api_engine_key: key that it asks for; empty for none.
        api_live_streams: live captions at once; further ones are refused.
        api_live_key_streams: of these, those of one key; 0 for no limit.
        api_live_s: longest stream of live captions, in seconds.
        fake_cost_base_s: seconds of one call of the engine `fake`, whatever its batch.
        fake_cost_window_s: seconds that each window adds to a call of the engine `fake`.
        fake_cost_mode: `sleep` or `busy`: how the engine `fake` spends its time.
        fake_character_s: seconds of sound that the engine `fake_voice` adds for each character.
        cosyvoice_url: CosyVoice's server: `grpc://host:port`, `http://...` or `https://...`.
        cosyvoice_model: model that it runs, which tells its sampling rate and its modes.
        cosyvoice_rate_hz: sampling rate of its sound; 0 takes that of the model.
        cosyvoice_voices: names of its speakers for the mode `sft`, with commas between; the first is the default.
        cosyvoice_base_s: seconds that one sentence may take whatever its length.
        cosyvoice_char_s: further seconds for each character of it.
        openai_url: OpenAI-compatible server, as `http://host:8000/v1`.
        openai_key: its key; empty for none.
        openai_model: model of its transcriptions where a job names none.
        openai_speech_model: model of its speech where a job names none.
        openai_voice: voice of its speech where a job names none.
        openai_timeout_s: seconds in which it must have answered one window or sentence.
        remote_url: another voicejobs' engine service, `grpc://host:port`, `grpcs://host:port` or `unix:///path`.
        remote_key: key that it asks for; empty for none.
        remote_ca_file: certificates that vouch for it, PEM; empty takes the system's.
        remote_timeout_s: seconds in which it must have answered one window or sentence.
        source_url_enabled: whether inputs may be named by URL.
        source_url_hosts: hosts that such URLs may name, with commas between; `*.example.org` for those below a name,
            `*` for any; empty allows none.
        source_url_http: whether they may be http, too.
        source_url_ports: ports that they may name, with commas between; `*` for any.
        source_url_networks: networks that are not public and may be asked all the same, as `10.1.0.0/16`.
        source_url_max_bytes: most bytes that are taken from one.
        source_url_timeout_s: seconds in which all of it must have come.
        source_path_roots: folders whose files may be named by path, with commas between; empty allows none.
        webhook_secret: what the secrets of webhooks are derived from; empty for one in the state folder.
        webhook_hosts: hosts that webhooks may name, as in `source_url_hosts`; any by default.
        webhook_http: whether they may be http, too.
        webhook_ports: ports that they may name, with commas between; `*` for any.
        webhook_networks: networks that are not public and may be told all the same, as `10.1.0.0/16`.
        webhook_timeout_s: seconds in which a receiver must have answered.
        webhook_tenant_messages: messages to webhooks of one tenant under way at once, in all processes of the service
            together; 0 for no limit.
        flower_auth: who may look at Flower, as `NAME:PASSWORD`, a comma or a line each; empty: nobody.
        otel_endpoint: OpenTelemetry collector, as `http://host:4318`; empty sends no spans.
        server_url: voicejobs service that commands with `--server` talk to, as `https://host:8000`.
        server_key: API key for it; empty for none.
        server_ca_file: certificates that vouch for it, PEM; empty takes the system's.
        server_wait_s: seconds for which a command goes on trying when the service does not answer any more.
    """

    state_dir: Path
    models_dir: Path
    blobs_url: str = ""
    blobs_cache_bytes: int = 10_000_000_000
    s3_endpoint_url: str = ""
    s3_region: str = ""
    s3_key_id: str = ""
    s3_secret: str = field(default="", repr=False)
    broker_url: str = ""
    database_url: str = ""
    local_workers: bool = True
    engine_processes: int = 0
    lease_s: float = 60.0
    max_attempts: int = 3
    step_base_s: float = 900.0
    step_factor: float = 60.0
    stall_s: float = 600.0
    max_memory_bytes: int = 0
    disk_floor_bytes: int = 500_000_000
    max_queued_jobs: int = 0
    max_audio_s: float = 48 * 3600.0
    max_decoded_bytes: int = 48 * 3600 * 32_000
    decode_memory_bytes: int = 1 << 30
    engine_idle_s: float = 300.0
    window_jobs: int = 0
    linger_s: float = 3.0
    offline: bool = False
    hub_url: str = "https://huggingface.co"
    log_level: str = "INFO"
    rpc_max_message_bytes: int = 50 * 1024 * 1024
    rpc_queue_length: int = 64
    rpc_wait_s: float = 10.0
    rpc_keys: str = field(default="", repr=False)
    api_hosts: str = ""
    api_origins: str = ""
    api_hsts_s: float = 0.0
    api_max_body_bytes: int = 4 << 20
    api_body_wait_s: float = 30.0
    api_header_wait_s: float = 10.0
    api_max_requests: int = 512
    api_requests_per_minute: int = 6000
    api_concurrency: int = 256
    api_streams: int = 64
    api_tenant_jobs: int = 100_000
    api_tenant_audio_s: float = 0.0
    api_aliases: str = "whisper-1=base,tts-1=en_US-joe-medium,tts-1-hd=en_US-joe-medium"
    api_voices: str = ""
    api_sync_audio_s: float = 600.0
    api_sync_wait_s: float = 300.0
    api_sync_upload_bytes: int = 25 << 20
    api_speech_chars: int = 4096
    api_upload_bytes: int = 2 << 30
    api_batch_lines: int = 10_000
    api_batch_bytes: int = 200_000_000
    api_engine_url: str = ""
    api_engine_key: str = field(default="", repr=False)
    api_live_streams: int = 16
    api_live_key_streams: int = 8
    api_live_s: float = 3 * 3600.0
    fake_cost_base_s: float = 0.0
    fake_cost_window_s: float = 0.0
    fake_cost_mode: str = "sleep"
    fake_character_s: float = 0.0
    cosyvoice_url: str = ""
    cosyvoice_model: str = ""
    cosyvoice_rate_hz: int = 0
    cosyvoice_voices: str = ""
    cosyvoice_base_s: float = 30.0
    cosyvoice_char_s: float = 0.5
    openai_url: str = ""
    openai_key: str = field(default="", repr=False)
    openai_model: str = "whisper-1"
    openai_speech_model: str = "tts-1"
    openai_voice: str = "alloy"
    openai_timeout_s: float = 120.0
    remote_url: str = ""
    remote_key: str = field(default="", repr=False)
    remote_ca_file: str = ""
    remote_timeout_s: float = 300.0
    source_url_enabled: bool = False
    source_url_hosts: str = ""
    source_url_http: bool = False
    source_url_ports: str = "80,443"
    source_url_networks: str = ""
    source_url_max_bytes: int = 2 << 30
    source_url_timeout_s: float = 600.0
    source_path_roots: str = ""
    webhook_secret: str = field(default="", repr=False)
    webhook_hosts: str = "*"
    webhook_http: bool = False
    webhook_ports: str = "80,443"
    webhook_networks: str = ""
    webhook_timeout_s: float = 15.0
    webhook_tenant_messages: int = 8
    flower_auth: str = field(default="", repr=False)
    otel_endpoint: str = ""
    server_url: str = ""
    server_key: str = field(default="", repr=False)
    server_ca_file: str = ""
    server_wait_s: float = 120.0

    @classmethod
    def from_env(
        cls, environ: Mapping[str, str] | None = None, *, configured: Mapping[str, object] | None = None
    ) -> Self:
        """Read `VOICEJOBS_*` (and the XDG folders) from `environ`, by default the process environment.

        Args:
            environ: the variables.
            configured: values of fields for which there is no variable; files of a configuration give them.

        Raises:
            BadOption: a value has the wrong form, a name with our prefix is unknown, or a secret has two values.
        """
        env = os.environ if environ is None else environ
        values: dict[str, object] = {
            "state_dir": base_dir(env, "XDG_STATE_HOME", ".local/state") / "voicejobs",
            "models_dir": base_dir(env, "XDG_CACHE_HOME", ".cache") / "voicejobs" / "models",
            **(configured or {}),
        }
        known = {PREFIX + field.name.upper(): field.name for field in fields(cls)}
        files = {PREFIX + name.upper() + "_FILE": name for name in SECRETS}
        for name, text in env.items():
            if not name.startswith(PREFIX) or text == "":
                continue
            if name in known:
                values[known[name]] = coerce(known[name], text, label=name)
            elif name in files:
                if env.get(name.removesuffix("_FILE")):
                    raise BadOption(
                        f"{name} and {name.removesuffix('_FILE')} are both set", hint="Unset one of the two."
                    )
                values[files[name]] = read_secret(Path(text).expanduser(), label=name)
            elif not is_of_the_command_line(name):
                raise BadOption(f"{name} is no setting of voicejobs", hint=_hint(name, [*known, *files]))
        return cls(**values)  # type: ignore[arg-type]

    def to_env(self) -> dict[str, str]:
        """Return the environment that makes `from_env` give these settings again, for child processes."""
        return {
            PREFIX + field.name.upper(): _to_text(getattr(self, field.name))
            for field in fields(self)
            if getattr(self, field.name) != ""
        }

    @property
    def blobs_dir(self) -> Path:
        """Return the folder of blobs and decoded audio; with an object store, that of its cache."""
        if self.blobs_url and not self.blobs_url.startswith("s3://"):
            return Path(self.blobs_url.removeprefix("file://"))
        return self.state_dir / "blobs"

    @property
    def logs_dir(self) -> Path:
        """Return the folder of log files."""
        return self.state_dir / "logs"

    @property
    def runtime_dir(self) -> Path:
        """Return a short private folder for sockets: a unix socket path holds 107 bytes at most."""
        import tempfile  # noqa: PLC0415 - `voicejobs --help` needs the settings' names, and must be quick
        from hashlib import sha256  # noqa: PLC0415

        digest = sha256(os.fsencode(self.state_dir.absolute())).hexdigest()[:12]
        return Path(tempfile.gettempdir()) / f"voicejobs-{os.getuid()}-{digest}"

    @property
    def memory_dir(self) -> Path | None:
        """Return a folder in the system's shared memory, which outlives processes; None where there is none."""
        if not _SHARED_MEMORY.is_dir():
            return None
        return _SHARED_MEMORY / self.runtime_dir.name

    @property
    def effective_database_url(self) -> str:
        """Return the database URL, SQLite in the state folder where none is set."""
        return self.database_url or f"sqlite:///{self.state_dir / 'voicejobs.db'}"


def environment() -> Mapping[str, str]:
    """Return the environment of this process, for the few places that need names which are no settings."""
    return os.environ


def forbid_telemetry() -> None:
    """Keep libraries of engines from telling their makers, in this process and its children; to be called before them.

    ONNX Runtime from 1.29 on sends events to its maker and keeps a number for this machine, unless this variable says
    no by the time it is imported. Who sets it otherwise has decided so.
    """
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")


def inherited_environment() -> dict[str, str]:
    """Return a copy of the process environment without our settings, to build that of a child process."""
    return {name: value for name, value in os.environ.items() if not name.startswith(PREFIX)}


def is_of_the_command_line(variable: str) -> bool:
    """Tell whether a variable with our prefix is read by the command line: it sets an option, and no setting."""
    name = variable.removeprefix(PREFIX)
    if name.startswith("WEBHOOK_"):
        return name.startswith(_OPTIONS_OF_WEBHOOK)
    return name in OF_THE_COMMAND_LINE or name.startswith(tuple(f"{command}_" for command in COMMANDS))


def read_secret(path: Path, *, label: str) -> str:
    """Return what a file holds, without the end of its line.

    Raises:
        BadOption: it cannot be read, or is empty.
    """
    try:
        text = path.read_text(encoding="utf-8").rstrip("\r\n")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise BadOption(f"{label}: {path} cannot be read: {reason}", hint="Check the path and its rights.") from error
    if not text:
        raise BadOption(f"{label}: {path} is empty", hint="It must hold the value of the setting, and nothing else.")
    return text


def _hint(name: str, known: list[str]) -> str:
    """Return the hint for a name that is no setting."""
    near = get_close_matches(name, known, n=1)
    return (f"Did you mean {near[0]}? " if near else "") + "docs/settings.md lists the settings."


def base_dir(env: Mapping[str, str], variable: str, fallback: str) -> Path:
    """Return the XDG folder, which the specification wants absolute."""
    value = env.get(variable, "")
    return Path(value) if value.startswith("/") else Path(env.get("HOME") or str(Path.home())) / fallback


def kind_of(name: str) -> str:
    """Return the type of a setting: bool, int, float, str or Path."""
    (kind,) = (str(field.type) for field in fields(Settings) if field.name == name)
    return kind.removeprefix("<class '").removesuffix("'>").rsplit(".", maxsplit=1)[-1]


def coerce(name: str, text: str, *, label: str) -> object:
    """Convert the text of a variable, which errors call `label`, to the type of the setting `name`.

    Raises:
        BadOption: it has another form.
    """
    kind = kind_of(name)
    try:
        if kind == "bool":
            return {
                "1": True,
                "true": True,
                "yes": True,
                "on": True,
                "0": False,
                "false": False,
                "no": False,
                "off": False,
            }[text.lower()]
        if kind == "Path":
            return Path(text).expanduser().absolute()
        if kind == "str":
            return text
        value = _not_negative({"int": int, "float": float}[kind](text))
    except (KeyError, ValueError, RuntimeError):
        raise BadOption(f"{label}={text!r} is not a valid {kind}", hint="docs/settings.md shows the form.") from None
    if value > _MOST.get(name, value):
        raise BadOption(f"{label}={text!r} is too large", hint=f"It is {_MOST[name]} at most; 0 sets no limit.")
    return value


def _not_negative(value: float) -> float:
    """Return a finite number of at least 0; seconds, sizes and counts have no others, and `nan` is none."""
    if not 0 <= value < float("inf") or (isinstance(value, int) and value > _LARGEST):
        raise ValueError(value)
    return value


def _to_text(value: object) -> str:
    """Write a value as `coerce` reads it."""
    return ("1" if value else "0") if isinstance(value, bool) else str(value)
