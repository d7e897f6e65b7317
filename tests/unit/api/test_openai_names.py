"""Names of models and voices, and what they stand for."""

import pytest

from voicejobs.api.openai_names import all_named, named, pairs_of, voice_of
from voicejobs.errors import BadOption, ModelNotFound
from voicejobs.settings import Settings


def settings(**values: str) -> Settings:
    """Return settings with some values."""
    return Settings.from_env(
        {"HOME": "/nowhere", **{f"VOICEJOBS_{name.upper()}": text for name, text in values.items()}}
    )


@pytest.mark.parametrize(
    ("name", "engine", "model"),
    [
        ("whisper-1", "whisper", "base"),
        ("tts-1", "piper", "en_US-joe-medium"),
        ("tiny.en", "whisper", "tiny.en"),
        ("whisper/tiny.en", "whisper", "tiny.en"),
        ("fake", "fake", ""),
        ("openai/some/model", "openai", "some/model"),
    ],
)
def test_a_name_stands_for_an_engine_and_a_model(name: str, engine: str, model: str) -> None:
    """Aliases, models of the catalogue, engines that need none, and the models of a server that is set up."""
    found = named(settings(openai_url="http://127.0.0.1:1/v1"), name)
    assert (found.name, found.engine, found.model) == (name, engine, model)


@pytest.mark.parametrize(
    "name",
    ["", "/etc/passwd", "../base", "someone/whisper-large", "whisper", "whisper/", "whisper/en_US-joe-medium", "fake/x",
     "silero", "silero-vad", "openai", "openai/x", "remote", "http://127.0.0.1/model", "base@main"],
)  # fmt: skip
def test_what_is_no_name_of_a_model_is_not_found(name: str) -> None:
    """No path, no address, no name of a hub, no detector, and no client of a server that nobody set up."""
    with pytest.raises(ModelNotFound):
        named(settings(), name)


def test_a_model_must_do_what_is_asked() -> None:
    """One that hears does not speak, and the error names the parameter."""
    with pytest.raises(ModelNotFound, match="that speaks") as caught:
        named(settings(), "base", "synthesiser")
    assert caught.value.details["param"] == "model"


def test_every_name_that_is_listed_can_be_asked_for() -> None:
    """The list and the look-up know the same names, each once."""
    listed = [one.name for one in all_named(settings())]
    assert len(listed) == len(set(listed))
    assert all(named(settings(), name).name == name for name in listed)


def test_an_alias_that_leads_nowhere_is_not_listed() -> None:
    """It is the fault of the settings, and asking for it says so."""
    odd = settings(api_aliases="whisper-1=nothing,mine=base")
    names = [one.name for one in all_named(odd)]
    assert "mine" in names
    assert "whisper-1" not in names
    with pytest.raises(ModelNotFound):
        named(odd, "whisper-1")


def test_voices_of_openai_stand_for_the_first_one() -> None:
    """Unless the settings say more, or the engine is a client of a server that may know them."""
    ours = settings(api_voices="ash=high", openai_url="http://127.0.0.1:1/v1")
    local = named(ours, "fake_voice")
    assert [voice_of(ours, local, voice) for voice in ("alloy", "ash", "low")] == ["", "high", "low"]
    assert voice_of(ours, named(ours, "openai_voice"), "alloy") == "alloy"


def test_pairs_that_are_none_are_refused() -> None:
    """The error names the setting."""
    assert pairs_of(" a = b , c=d=e,", "X") == {"a": "b", "c": "d=e"}
    for text in ("a", "a=", "=b"):
        with pytest.raises(BadOption, match="X"):
            pairs_of(text, "X")
