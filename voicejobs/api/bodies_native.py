"""Bodies of requests of the native surface, and what they mean to the intake."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, BinaryIO, Final, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from voicejobs import piecewise
from voicejobs.api.bodies import MOST_VALUES
from voicejobs.api.problems import invalid_request
from voicejobs.errors import BadManifest, BadOption, InvalidRequest
from voicejobs.intake import MAX_ITEMS, MAX_TEXT_CHARS, Item, Source, Terms, Wish
from voicejobs.store.states import OnError

MAX_MANIFEST_BYTES: Final = 64 << 20
MAX_LINE_BYTES: Final = 4 << 20
MOST_OPTION_CHARS: Final = 100_000

M = TypeVar("M", bound=BaseModel)
Name = Annotated[str, Field(max_length=200)]
Formats = Annotated[list[Name], Field(max_length=16)]
Options = Annotated[dict[Name, Any], Field(description="Options by name; GET /api/v1/pipelines lists them.")]
Metadata = Annotated[dict[str, str], Field(description="Up to 16 short texts, given back as they are.")]


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid")


class SourceIn(_Body):
    """Name the input: one of an uploaded file, a text, a URL and a path; the latter two where the operator allows."""

    file_id: Annotated[str, Field(max_length=64)] = ""
    text: Annotated[str, Field(max_length=MAX_TEXT_CHARS)] = ""
    url: Annotated[str, Field(max_length=4096)] = ""
    path: Annotated[str, Field(max_length=4096)] = ""
    name: Annotated[str, Field(max_length=255, description="How people know the input.")] = ""

    def source(self) -> Source:
        """Return it as the intake takes it."""
        return Source(file_id=self.file_id, text=self.text, url=self.url, path=self.path, name=self.name)


class WishIn(_Body):
    """Say what is to be done."""

    pipeline: Name = ""
    task: Annotated[str, Field(max_length=32, examples=["transcribe", "translate", "speak", "dub"])] = ""
    engine: Name = ""
    model: Name = ""
    options: Options = Field(default_factory=dict)
    output_formats: Formats = Field(default_factory=list)

    @field_validator("options")
    @classmethod
    def _check_length(cls, options: dict[str, Any]) -> dict[str, Any]:
        """Refuse options that take long to compare and to write."""
        if piecewise.has_more_chars(options, MOST_OPTION_CHARS):
            raise ValueError(f"options hold {MOST_OPTION_CHARS} characters at most")
        return options

    def wish(self, defaults: "WishIn | None" = None) -> Wish:
        """Return it as the intake takes it, what is left out from `defaults`."""
        base = defaults or WishIn()
        return Wish(
            pipeline=self.pipeline or base.pipeline,
            task=self.task or ("" if self.pipeline else base.task),
            engine=self.engine or ("" if self.model else base.engine),
            model=self.model or ("" if self.engine else base.model),
            options=_merged(base.options, self.options),
            formats=self.output_formats or base.output_formats,
        )


def _merged(base: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """Return options over others, those under the name of a node one by one."""
    both = {**base, **own}
    for name, value in own.items():
        if isinstance(value, dict) and isinstance(base.get(name), dict):
            both[name] = {**base[name], **value}
    return both


class _TermsIn(_Body):
    webhook_ids: Annotated[list[str], Field(max_length=16)] = Field(default_factory=list)
    metadata: Metadata = Field(default_factory=dict)
    priority: Annotated[int, Field(ge=0, le=1000, description="Order in the lane; less is sooner.")] = 100
    lane: Literal["bulk", "interactive"] = "bulk"
    expires_after: Annotated[float | None, Field(gt=0, le=31_536_000, description="Seconds.")] = None
    force: Annotated[bool, Field(description="Do again what was done for the same input.")] = False

    def terms(self, label: str = "") -> Terms:
        """Return them as the intake takes them."""
        return Terms(
            lane=self.lane,
            priority=self.priority,
            expires_after_s=self.expires_after,
            force=self.force,
            label=label,
            metadata=self.metadata,
            webhook_ids=self.webhook_ids,
        )


class JobIn(WishIn, _TermsIn):
    """Ask for one job."""

    source: SourceIn = Field(default_factory=SourceIn)
    custom_id: Annotated[str, Field(max_length=255)] = ""

    def item(self) -> Item:
        """Return it as the intake takes it."""
        return Item(self.wish(), self.source.source(), {"custom_id": self.custom_id} if self.custom_id else {})


class ItemIn(WishIn):
    """Ask for one job of a batch."""

    source: SourceIn = Field(default_factory=SourceIn)
    custom_id: Annotated[str, Field(max_length=255)] = ""
    metadata: Metadata = Field(default_factory=dict)


class BatchIn(_TermsIn):
    """Ask for a batch: items here, or a file of them, one JSON object a line."""

    items: Annotated[list[ItemIn], Field(max_length=MAX_ITEMS)] = Field(default_factory=list)
    input_file_id: Annotated[str, Field(max_length=64)] = ""
    defaults: WishIn = Field(default_factory=WishIn)
    label: Annotated[str, Field(max_length=255)] = ""
    on_error: Annotated[
        Literal["continue", "stop"], Field(description="stop: the first job that fails cancels the rest.")
    ] = "continue"
    concurrency: Annotated[
        int | None, Field(ge=1, le=MAX_ITEMS, description="Jobs of the batch that are sent to workers at once.")
    ] = None

    def batch_terms(self) -> Terms:
        """Return the terms of the whole as the intake takes them."""
        terms = self.terms(self.label)
        return replace(terms, concurrency=self.concurrency, on_error=OnError(self.on_error))


def items_of(found: list[ItemIn], defaults: WishIn) -> list[Item]:
    """Return items as the intake takes them.

    Raises:
        BadOption: two have the same custom_id.
    """
    seen: set[str] = set()
    made = []
    for number, one in enumerate(found):
        if one.custom_id in seen:
            raise BadOption(f"custom_id {one.custom_id!r} is given twice", param=f"items[{number}].custom_id")
        if one.custom_id:
            seen.add(one.custom_id)
        request = {
            **({"custom_id": one.custom_id} if one.custom_id else {}),
            **({"metadata": one.metadata} if one.metadata else {}),
        }
        made.append(Item(one.wish(defaults), one.source.source(), request))
    return made


def parse(model: type[M], data: bytes | str) -> M:
    """Read a body.

    Raises:
        InvalidRequest: it is no JSON, or does not fit its schema.
    """
    try:
        return model.model_validate_json(data)
    except ValidationError as error:
        faults = [{**fault, "loc": ("body", *fault["loc"])} for fault in error.errors(include_input=False)]
        raise invalid_request(faults) from None


def parse_batch(data: bytes) -> tuple[BatchIn, list[ItemIn]]:
    """Read the body of a batch, item by item: to read or check ten thousand at once would hold up all other requests.

    Raises:
        InvalidRequest: it is no JSON, or does not fit its schema.
    """
    try:
        whole = piecewise.loads(data)
    except (ValueError, RecursionError):
        raise InvalidRequest("The body is no JSON") from None
    items = whole.pop("items", []) if isinstance(whole, dict) else []
    batch = _checked(BatchIn, whole)
    if not isinstance(items, list) or len(items) > MAX_ITEMS:
        raise InvalidRequest(f"items is a list of {MAX_ITEMS} items at most", param="items")
    return batch, [_checked(ItemIn, item, "items", number) for number, item in enumerate(items)]


def _checked(model: type[M], value: Any, *place: str | int) -> M:
    """Return a value as a model; one with very many values is not looked at, since that takes one long call.

    Raises:
        InvalidRequest: it does not fit.
    """
    if piecewise.has_more_values(value, MOST_VALUES):
        raise invalid_request([{"loc": ("body", *place), "msg": f"has more than {MOST_VALUES} values", "type": "size"}])
    try:
        return model.model_validate(value)
    except ValidationError as error:
        faults = [{**fault, "loc": ("body", *place, *fault["loc"])} for fault in error.errors(include_input=False)]
        raise invalid_request(faults) from None


def read_items(stream: BinaryIO) -> list[ItemIn]:
    """Return the items of a manifest of JSON lines.

    Raises:
        BadManifest: a line cannot be read, or there are too many; `line` in the details is its number.
    """
    found: list[ItemIn] = []
    for number, line in _lines(stream):
        if len(found) >= MAX_ITEMS:
            raise BadManifest(f"The manifest has more than {MAX_ITEMS} lines", param="input_file_id")
        try:
            found.append(parse(ItemIn, line))
        except InvalidRequest as error:
            message = f"Line {number} of the manifest: {error.message}"
            raise BadManifest(message, param="input_file_id", line=number) from None
    return found


def _lines(stream: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Yield number and content of each line that is not empty.

    Raises:
        BadManifest: one is too long.
    """
    number = 0
    while line := stream.readline(MAX_LINE_BYTES + 1):
        number += 1
        if len(line) > MAX_LINE_BYTES:
            raise BadManifest(f"Line {number} of the manifest is longer than {MAX_LINE_BYTES} bytes", line=number)
        if line.strip():
            yield number, line


_LISTS: Final = frozenset({"output_formats", "webhook_ids"})
_OBJECTS: Final = frozenset({"options", "metadata"})


def job_of_form(fields: Sequence[tuple[str, str]]) -> JobIn:
    """Return the job that the fields of a form ask for: lists are repeated or have commas, objects are JSON.

    Raises:
        InvalidRequest: a field is unknown, twice there, or not what it must be.
    """
    values: dict[str, Any] = {}
    for field, text in fields:
        name = field.removesuffix("[]")
        if name in _LISTS:
            values.setdefault(name, []).extend(one.strip() for one in text.split(",") if one.strip())
        elif name in values:
            raise InvalidRequest(f"{name} is given twice", param=name)
        elif name == "name":
            values["source"] = {"name": text}
        elif name in _OBJECTS:
            values[name] = _json_of(text, name)
        elif name == "source":
            raise InvalidRequest("source is the file of the form", param="source")
        else:
            values[name] = text
    return _checked(JobIn, values)


def whole_schema(model: type[BaseModel]) -> dict[str, Any]:
    """Return the schema of a body without references, so that it can stand anywhere in another document."""
    schema = model.model_json_schema(mode="validation")
    parts = schema.pop("$defs", {})

    def placed(node: Any) -> Any:
        if isinstance(node, list):
            return [placed(one) for one in node]
        if not isinstance(node, dict):
            return node
        name = str(node.get("$ref", "")).rpartition("/")[2]
        rest = {key: placed(value) for key, value in node.items() if key != "$ref"}
        return {**placed(parts[name]), **rest} if name else rest

    found: dict[str, Any] = placed(schema)
    return found


def form_schema() -> dict[str, Any]:
    """Return the schema of the form that `job_of_form` reads."""
    whole = whole_schema(JobIn)
    properties = {name: one for name, one in whole["properties"].items() if name != "source"}
    for name in _OBJECTS:
        properties[name] = {"type": "string", "description": f"JSON: {properties[name].get('description', '')}"}
    properties["name"] = {"type": "string", "description": "How people know the input."}
    properties["file"] = {"type": "string", "format": "binary"}
    return {"type": "object", "properties": properties, "required": ["file"], "additionalProperties": False}


def _json_of(text: str, name: str) -> Any:
    """Return the JSON value of a field.

    Raises:
        InvalidRequest: it is none.
    """
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise InvalidRequest(f"{name} is no JSON", param=name) from None
