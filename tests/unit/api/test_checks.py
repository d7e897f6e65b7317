"""Settings of the service that are read before it serves."""

from pathlib import Path
from typing import Any

import pytest

from voicejobs.api.checks import check_settings
from voicejobs.errors import BadOption
from voicejobs.settings import Settings


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("broker_url", "nope"),
        ("broker_url", "http://127.0.0.1:6379"),
        ("api_aliases", "whisper-1"),
        ("api_voices", "alloy="),
        ("api_hosts", "voice.example.org, a b"),
        ("api_hosts", "https://voice.example.org"),
        ("api_origins", "app.example.org"),
        ("api_origins", "https://app.example.org/path"),
        ("api_engine_url", "nope"),
        ("webhook_secret", "short"),
        ("webhook_networks", "nope"),
        ("webhook_ports", "nope"),
        ("source_url_networks", "10.0.0.0/99"),
        ("source_path_roots", "relative"),
        ("otel_endpoint", "nope"),
    ],
)
def test_a_setting_of_another_form_is_named(name: str, value: str, tmp_path: Path) -> None:
    """The service does not start, and says which variable is at fault and what to write."""
    given: dict[str, Any] = {name: value}
    with pytest.raises(BadOption) as caught:
        check_settings(Settings(tmp_path, tmp_path, **given))
    assert f"VOICEJOBS_{name.upper()}" in f"{caught.value.message} {caught.value.hint}"
    assert caught.value.hint


def test_settings_that_the_manual_shows_are_taken(tmp_path: Path) -> None:
    """None at all, and each form that docs/settings.md names."""
    check_settings(Settings(tmp_path, tmp_path))
    for broker in ("redis://host:6379/0", "rediss://host:6379/0", "redis+socket:///path/to.sock?virtual_host=0"):
        check_settings(Settings(tmp_path, tmp_path, broker_url=broker))
    for engine in ("grpc://host:50051", "grpcs://host:50051", "unix:///path"):
        check_settings(Settings(tmp_path, tmp_path, api_engine_url=engine))
    check_settings(
        Settings(
            tmp_path,
            tmp_path,
            api_aliases="whisper-1=base,tts-1=en_US-joe-medium",
            api_voices="alloy=low",
            api_hosts="voice.example.org,*,[::1]",
            api_origins="https://app.example.org,http://127.0.0.1:8080",
            webhook_secret="s" * 40,
            webhook_networks="10.1.0.0/16,127.0.0.0/8",
            source_path_roots="/srv/recordings",
        )
    )
