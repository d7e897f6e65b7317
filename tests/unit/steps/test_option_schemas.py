"""What requests may say of the options of steps."""

import pytest

from voicejobs.errors import BadOption
from voicejobs.pipelines.pipeline import DUB, SPEAK, TRANSCRIBE, TRANSCRIBE_SPEAK
from voicejobs.steps import option_schemas
from voicejobs.steps.option_schemas import SCHEMAS, check, schema_of

INSIDE = {
    "prepare": {"vad_model_sha256"},
    "recognise": {"model_sha256", "threads", "batch_size"},
    "deliver": {"target", "replace", "known"},
    "synthesise": {"model_sha256", "threads", "batch_size"},
    "join": {"target", "replace", "known"},
}
"""Options that are no business of a request."""
STEPS = {node.step: node.definition for one in (TRANSCRIBE, SPEAK, DUB, TRANSCRIBE_SPEAK) for node in one.nodes}


@pytest.mark.parametrize("name", sorted(STEPS))
def test_every_option_is_described_or_kept_inside(name: str) -> None:
    """Each option of a step has a schema or is none of a request's business, and every default fits its schema."""
    defaults, schemas = STEPS[name].defaults, SCHEMAS[name]
    assert set(defaults) - set(schemas) == INSIDE.get(name, set())
    assert set(schemas) - set(defaults) <= {"verify_model", "prompt_file_id"}
    for option, schema in schemas.items():
        if option in defaults and option != "verify":
            check(defaults[option], schema, option)
    assert schema_of(name)["additionalProperties"] is False


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("beam_size", 0), ("beam_size", True), ("beam_size", 5.0), ("patience", float("nan")), ("language", 5),
        ("task", "sing"), ("temperatures", []), ("temperatures", [0.0, "a"]), ("device", "cuda:0; rm"),
        ("initial_prompt", "x" * 5000), ("word_timestamps", "yes"),
    ],
)  # fmt: skip
def test_values_that_do_not_fit_are_refused(option: str, value: object) -> None:
    """Types, ranges, lengths and forms are checked; true is no number, and a number that is none is none."""
    with pytest.raises(BadOption) as caught:
        check(value, option_schemas.SCHEMAS["recognise"][option], option)
    assert caught.value.details["param"].startswith(option)
