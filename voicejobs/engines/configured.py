"""What the settings say of an engine: the one place where they become `params` and `secrets` of a spec."""

from collections.abc import Mapping
from dataclasses import replace

from voicejobs.engines.base import EngineSpec
from voicejobs.settings import Settings

_COST = {"cost_base_s": "fake_cost_base_s", "cost_window_s": "fake_cost_window_s", "cost_mode": "fake_cost_mode"}
_PARAMS: Mapping[str, Mapping[str, str]] = {
    "fake": _COST,
    "fake_voice": {**_COST, "character_s": "fake_character_s"},
    "cosyvoice": {
        "url": "cosyvoice_url",
        "model": "cosyvoice_model",
        "rate_hz": "cosyvoice_rate_hz",
        "voices": "cosyvoice_voices",
        "base_s": "cosyvoice_base_s",
        "char_s": "cosyvoice_char_s",
    },
    "openai": {"url": "openai_url", "model": "openai_model", "timeout_s": "openai_timeout_s"},
    "openai_voice": {
        "url": "openai_url",
        "model": "openai_speech_model",
        "voice": "openai_voice",
        "timeout_s": "openai_timeout_s",
    },
    "remote": {"url": "remote_url", "ca_file": "remote_ca_file", "timeout_s": "remote_timeout_s"},
    "remote_voice": {"url": "remote_url", "ca_file": "remote_ca_file", "timeout_s": "remote_timeout_s"},
}
"""The parameters of each engine, and the settings that fill them."""

_SECRETS: Mapping[str, Mapping[str, str]] = {
    "openai": {"key": "openai_key"},
    "openai_voice": {"key": "openai_key"},
    "remote": {"key": "remote_key"},
    "remote_voice": {"key": "remote_key"},
}


def with_settings(spec: EngineSpec, settings: Settings) -> EngineSpec:
    """Return the spec with the parameters and the secrets that the settings have for its engine.

    What the spec says itself counts more.
    """
    params = {name: getattr(settings, field) for name, field in _PARAMS.get(spec.engine, {}).items()}
    secrets = {name: getattr(settings, field) for name, field in _SECRETS.get(spec.engine, {}).items()}
    return replace(
        spec,
        params=tuple({**params, **dict(spec.params)}.items()),
        secrets=tuple({**secrets, **dict(spec.secrets)}.items()),
    )


def model_of_settings(engine: str, settings: Settings) -> str:
    """Return the model that an engine's server is asked for where a job names none; empty where none is set."""
    field = _PARAMS.get(engine, {}).get("model")
    return str(getattr(settings, field)) if field else ""
