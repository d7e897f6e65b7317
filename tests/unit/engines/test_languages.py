import pytest

from voicejobs.engines.languages import LANGUAGES, language_code
from voicejobs.errors import BadOption


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("en", "en"),
        ("EN", "en"),
        ("english", "en"),
        ("German", "de"),
        ("en-US", "en"),
        ("zh_CN", "zh"),
        ("mandarin", "zh"),
        ("Haitian  Creole", "ht"),
        ("flemish", "nl"),
        ("yue", "yue"),
        ("jv", "jw"),
        ("auto", None),
        ("", None),
        ("None", None),
    ],
)
def test_languages_are_known_by_code_name_and_region(text: str, code: str | None) -> None:
    """What people and other programs write comes out as whisper's code."""
    assert language_code(text) == code


def test_an_unknown_language_is_refused_with_the_nearest_name() -> None:
    """A slip is named; a code that whisper lacks passes where another engine may know it."""
    with pytest.raises(BadOption, match="'portugese'") as caught:
        language_code("portugese")
    assert "'portuguese'" in caught.value.hint
    with pytest.raises(BadOption):
        language_code("tlh")
    assert language_code("tlh", strict=False) == "tlh"
    with pytest.raises(BadOption):
        language_code("no such language", strict=False)


def test_the_table_is_that_of_the_models() -> None:
    """Every language that faster-whisper knows has a name here, and no other."""
    tokenizer = pytest.importorskip("faster_whisper.tokenizer")
    assert set(LANGUAGES) == set(tokenizer._LANGUAGE_CODES)
