"""The description of the service that is committed is the one that the service gives."""

import importlib.util
import json
import re
from pathlib import Path
from typing import Any

import pytest

from voicejobs.api.openapi import operations
from voicejobs.store.keys import SCOPES

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def generated() -> str:
    """Return what scripts/generate_openapi.py would write."""
    spec = importlib.util.spec_from_file_location("generate_openapi", ROOT / "scripts" / "generate_openapi.py")
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    return str(script.description())


@pytest.fixture(scope="module")
def whole(generated: str) -> dict[str, Any]:
    """Return the description."""
    return dict(json.loads(generated))


def test_the_committed_description_is_the_generated_one(generated: str) -> None:
    """docs/openapi.json is what scripts/generate_openapi.py writes."""
    committed = (ROOT / "docs" / "openapi.json").read_text(encoding="utf-8")
    assert committed == generated, "run scripts/generate_openapi.py"


def test_operations_have_stable_names(whole: dict[str, Any]) -> None:
    """Every operation has an id of its own in small letters and underscores, a tag and a sentence."""
    ids = [operation["operationId"] for _, _, operation in operations(whole)]
    assert len(ids) == len(set(ids))
    for path, method, operation in operations(whole):
        assert re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)+", operation["operationId"]), (method, path)
        assert operation["tags"], path
        assert operation["description"], path


def test_operations_say_what_they_need_and_how_they_fail(whole: dict[str, Any]) -> None:
    """Every operation names its scope or is public, and documents its problems as problem+json."""
    for path, _, operation in operations(whole):
        answers = operation["responses"]
        if operation["security"]:
            assert operation["x-scope"] in SCOPES, path
            assert {"401", "403", "429", "503"} <= set(answers), path
        assert ("404" in answers) or "{" not in path, path
        assert ("413" in answers) == ("requestBody" in operation), path
        for answer in answers.values():
            if "$ref" in answer:
                name = answer["$ref"].rpartition("/")[2]
                assert "application/problem+json" in whole["components"]["responses"][name]["content"]


def test_no_form_of_the_framework_is_left(whole: dict[str, Any]) -> None:
    """FastAPI's own form of errors is described nowhere, and every reference leads somewhere."""
    text = json.dumps(whole)
    assert "HTTPValidationError" not in text
    for reference in set(re.findall(r'"\$ref": "#/([^"]+)"', text)):
        place: Any = whole
        for part in reference.split("/"):
            place = place[part]
