"""What a wish is refused for, and which of its fields is named."""

from pathlib import Path

import pytest

from voicejobs.errors import BadOption
from voicejobs.settings import Settings
from voicejobs.wishes import Wish, options_of


@pytest.mark.parametrize(
    ("wish", "field"),
    [
        (Wish(task="translate", model="tiny.en"), "model"),
        (Wish(model="tiny.en", options={"language": "de"}), "options.language"),
        (Wish(options={"language": "no language"}), "options.language"),
    ],
)
def test_the_field_at_fault_is_named(tmp_path: Path, wish: Wish, field: str) -> None:
    """A model that cannot translate is one to change, and not the language, which nobody may have named."""
    with pytest.raises(BadOption) as caught:
        options_of(Settings(tmp_path, tmp_path), wish)
    assert caught.value.details["param"] == field
