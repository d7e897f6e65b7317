import pytest

from voicejobs.engines import registry
from voicejobs.engines.base import EngineSpec
from voicejobs.engines.fake import FakeEngine
from voicejobs.errors import UnknownEngine


def test_our_engines_are_found_by_entry_point() -> None:
    """The installed package offers its engines under their names."""
    ours = {"cosyvoice", "fake", "openai", "openai_voice", "remote", "remote_voice", "silero", "whisper"}
    assert ours <= set(registry.list_engines())
    assert isinstance(registry.engine_class("fake").load(EngineSpec("fake")), FakeEngine)


def test_an_unknown_name_is_answered_with_the_known_ones() -> None:
    """The error lists what could have been meant."""
    with pytest.raises(UnknownEngine) as caught:
        registry.engine_class("wisper")
    assert "whisper" in caught.value.hint
    assert caught.value.details["known"] == registry.list_engines()


def test_facts_need_no_model_library_and_no_files() -> None:
    """The facts of every engine of ours can be asked for before anything is installed or loaded."""
    wanted = {
        "cosyvoice": "synthesiser",
        "fake": "recogniser",
        "openai": "recogniser",
        "openai_voice": "synthesiser",
        "remote": "recogniser",
        "remote_voice": "synthesiser",
        "silero": "vad",
        "whisper": "recogniser",
    }
    assert {name: registry.engine_class(name).facts(EngineSpec(name)).kind for name in wanted} == wanted
