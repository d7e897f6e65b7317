"""Settings: read once from the environment, handed on to child processes unchanged."""

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from voicejobs import settings as settings_module
from voicejobs.errors import BadOption
from voicejobs.settings import PREFIX, Settings, inherited_environment

HOME = {"HOME": "/home/somebody"}
words = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1)
paths = st.text(st.characters(codec="utf-8", exclude_characters="\0~"), min_size=1).map(lambda name: Path("/", name))
values = {
    "bool": st.booleans(),
    "int": st.integers(0, 10**12),
    "float": st.floats(min_value=0, allow_nan=False, allow_infinity=False),
    "str": words,
    "Path": paths,
}


bounded = {name: st.integers(0, most) for name, most in settings_module._MOST.items()}


def value_of(field: Any) -> Any:
    """Return what a field may hold."""
    return bounded.get(field.name, values[kind(field)])


def kind(field: Any) -> str:
    """Return the name of a field's type."""
    return str(field.type).removeprefix("<class '").removesuffix("'>").rsplit(".", maxsplit=1)[-1]


@hypothesis_settings(deadline=None)
@given(
    st.fixed_dictionaries(
        {field.name: values[kind(field)] for field in fields(Settings) if field.name.endswith("_dir")},
        optional={field.name: value_of(field) for field in fields(Settings) if not field.name.endswith("_dir")},
    )
)
def test_settings_come_back_from_the_environment_they_make(given_values: dict[str, Any]) -> None:
    """Whatever the settings, a child that reads `to_env` has the same ones."""
    settings = Settings(**given_values)
    environment = settings.to_env()
    assert all(name.startswith(PREFIX) for name in environment)
    assert Settings.from_env({**HOME, **environment}) == settings


@pytest.mark.parametrize(
    ("text", "value"),
    [("1", True), ("true", True), ("YES", True), ("on", True), ("0", False), ("False", False), ("no", False)],
)
def test_bools_are_read_in_several_spellings(text: str, *, value: bool) -> None:
    """One, true, yes and on are true, their opposites false, in any case."""
    assert Settings.from_env({**HOME, "VOICEJOBS_OFFLINE": text}).offline is value


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("OFFLINE", "perhaps"),
        ("LEASE_S", "soon"),
        ("MAX_ATTEMPTS", "2.5"),
        ("STATE_DIR", "~nobody-of-this-name/x"),
        ("LEASE", "3"),
        ("lease_s", "3"),
    ],
)
def test_wrong_values_and_names_are_refused(name: str, text: str) -> None:
    """A value of the wrong form, or a name that is no setting, is refused by name."""
    with pytest.raises(BadOption, match=f"VOICEJOBS_{name}") as caught:
        Settings.from_env({**HOME, f"VOICEJOBS_{name}": text})
    assert "docs/settings.md" in caught.value.hint


def test_empty_variables_and_those_of_others_do_not_count() -> None:
    """An empty variable means the default, and other programs' variables mean nothing."""
    assert Settings.from_env({**HOME, "VOICEJOBS_LEASE_S": "", "VOICE": "x"}) == Settings.from_env(HOME)


def test_folders_follow_the_xdg_rules(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Folders lie in HOME, or where absolute XDG variables say, or where the settings say; `~` is expanded."""
    plain = Settings.from_env(HOME)
    assert plain.state_dir == Path("/home/somebody/.local/state/voicejobs")
    assert plain.models_dir == Path("/home/somebody/.cache/voicejobs/models")
    assert Settings.from_env({**HOME, "XDG_STATE_HOME": "/s"}).state_dir == Path("/s/voicejobs")
    assert Settings.from_env({**HOME, "XDG_STATE_HOME": "s"}).state_dir == plain.state_dir
    monkeypatch.setenv("HOME", str(tmp_path))
    assert Settings.from_env({"VOICEJOBS_STATE_DIR": "~/x"}).state_dir == tmp_path / "x"
    monkeypatch.chdir(tmp_path)
    assert Settings.from_env({"VOICEJOBS_STATE_DIR": "here"}).state_dir == tmp_path / "here"


def test_the_process_environment_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without an argument the real environment is read; children inherit it without our settings."""
    monkeypatch.setenv("VOICEJOBS_LEASE_S", "7")
    monkeypatch.setenv("OTHER_LEASE_S", "8")
    assert Settings.from_env().lease_s == 7.0
    inherited = inherited_environment()
    assert inherited["OTHER_LEASE_S"] == "8"
    assert not [name for name in inherited if name.startswith(PREFIX)]


def test_derived_places_belong_to_the_state_folder() -> None:
    """The database defaults to SQLite in the state folder; the folder of sockets is short, and one for each state."""
    deep = Path("/", *["deep"] * 40)
    settings = Settings(state_dir=deep, models_dir=deep)
    assert settings.effective_database_url == f"sqlite:///{deep}/voicejobs.db"
    other = Settings(state_dir=deep / "er", models_dir=deep, database_url="postgresql+psycopg://x")
    assert other.effective_database_url == "postgresql+psycopg://x"
    assert settings.runtime_dir != other.runtime_dir
    assert len(settings.runtime_dir.name) < 40
    assert {settings.blobs_dir.parent, settings.logs_dir.parent} == {deep}


@pytest.mark.parametrize("text", ["-1", "nan", "inf", "-0.5", "ten"])
@pytest.mark.parametrize("name", ["VOICEJOBS_LEASE_S", "VOICEJOBS_MAX_ATTEMPTS"])
def test_a_number_below_zero_or_none_at_all_is_refused(name: str, text: str) -> None:
    """Seconds and counts are finite and not negative."""
    with pytest.raises(BadOption, match=name):
        Settings.from_env({**HOME, name: text})
