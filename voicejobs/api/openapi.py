"""The description of the service: OpenAPI 3.1 for machines, and one page of it for people that loads nothing else."""

import warnings
from collections.abc import Iterator, Mapping
from html import escape
from http import HTTPStatus
from typing import Any

from fastapi import APIRouter, FastAPI, Request
from fastapi.openapi.utils import get_openapi
from fastapi.responses import HTMLResponse, JSONResponse, Response
from fastapi.routing import APIRoute, iter_route_contexts

from voicejobs import __version__
from voicejobs.api.access import Need, need_of, public
from voicejobs.api.problems import responses

router = APIRouter(tags=["service"], dependencies=[public()])
BEARER = "bearer"
_METHODS = ("get", "post", "put", "patch", "delete", "head", "options", "trace")
_OF_ALL = (400, 421, 429, 500, 503)
_OF_CALLERS = (401, 403)
_OF_BODIES = (408, 413, 415)
_WITH_RETRY = frozenset({429, 503})
_EVENTS = "text/event-stream"
_REF_OF_FASTAPI = "#/components/schemas/HTTPValidationError"
_DESCRIPTION = (
    "Speech recognition and synthesis in bulk. `/v1` is what clients of OpenAI expect, `/api/v1` is native; both show "
    "the same rows. Errors are `application/problem+json` with a stable `code`, and with the member `error` that "
    "clients of OpenAI read. Lists of words in answers are open: more may come."
)
_TAGS = {
    "service": "Health, and this description.",
    "jobs": "One recording or text each: submit, follow, fetch.",
    "batches": "Many jobs at once.",
    "artifacts": "What jobs have left behind.",
    "events": "What happens to jobs and batches.",
    "catalogue": "What this installation can do.",
    "keys": "API keys of the tenant.",
    "usage": "What was done, and what may be asked for.",
}
PROBLEM: Mapping[str, Any] = {
    "title": "Problem",
    "description": "What is wrong (RFC 9457), twice: `error` is the form that clients of OpenAI read.",
    "type": "object",
    "required": ["type", "title", "status", "detail", "code", "request_id", "errors", "error"],
    "properties": {
        "type": {"type": "string", "description": "Address of an explanation, relative to this service."},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "instance": {"type": "string"},
        "code": {"type": "string", "description": "Stable; docs/errors.md lists all."},
        "hint": {"type": "string", "description": "What to do about it."},
        "request_id": {"type": "string"},
        "errors": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["detail"],
                "properties": {
                    "pointer": {"type": "string"},
                    "parameter": {"type": "string"},
                    "detail": {"type": "string"},
                },
            },
        },
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"]},
                "code": {"type": "string"},
            },
        },
    },
}


def described(app: FastAPI) -> dict[str, Any]:
    """Return the description of an app, made once."""
    if app.openapi_schema is None:
        with warnings.catch_warnings():
            # Routes that answer HEAD as well have one name; they get two below, and a test looks for others.
            warnings.filterwarnings("ignore", "Duplicate Operation ID", UserWarning)
            whole = get_openapi(
                title="voicejobs",
                version=__version__,
                description=_DESCRIPTION,
                routes=app.routes,
                openapi_version="3.1.0",
            )
        needs = _needs(app)
        for path, method, operation in operations(whole):
            _complete(operation, needs[path, method], path)
            if method == "head" and "get" in whole["paths"][path]:
                operation["operationId"] = f"head_{operation['operationId'].removeprefix('get_')}"
        components = whole.setdefault("components", {})
        schemas = components.setdefault("schemas", {})
        for name in ("HTTPValidationError", "ValidationError"):
            schemas.pop(name, None)
        schemas["Problem"] = dict(PROBLEM)
        _lift_definitions(whole["paths"], schemas)
        components["schemas"] = dict(sorted(schemas.items()))
        components["responses"] = _problem_responses(whole)
        components["securitySchemes"] = {
            BEARER: {"type": "http", "scheme": "bearer", "description": "An API key: `vj_...`."}
        }
        used = {tag for _, _, operation in operations(whole) for tag in operation.get("tags", ())}
        whole["tags"] = [{"name": tag, "description": _TAGS.get(tag, tag)} for tag in sorted(used)]
        app.openapi_schema = whole
    return app.openapi_schema


def operations(whole: Mapping[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield path, method and description of each operation."""
    for path, item in whole["paths"].items():
        for method in _METHODS:
            if method in item:
                yield path, method, item[method]


def _needs(app: FastAPI) -> dict[tuple[str, str], Need]:
    """Return what each operation needs, by path and method."""
    found: dict[tuple[str, str], Need] = {}
    for context in iter_route_contexts(app.routes):
        if isinstance(context.original_route, APIRoute):
            for method in context.methods or ():
                need = need_of(context)
                if need is not None:
                    found[str(context.path_format), method.lower()] = need
    return found


def _complete(operation: dict[str, Any], need: Need, path: str) -> None:
    """Add to an operation which scope it needs, and the problems that it shares with others."""
    statuses = list(_OF_ALL)
    if need.scope is None:
        operation["security"] = []
    else:
        operation["security"] = [{BEARER: []}]
        operation["x-scope"] = need.scope
        operation["description"] = f"{operation.get('description', '')}\n\nScope: `{need.scope}`.".strip()
        statuses += _OF_CALLERS
    if "{" in path:
        statuses.append(404)
    if "requestBody" in operation:
        statuses += _OF_BODIES
    if "requestBody" in operation or operation.get("parameters"):
        statuses.append(422)
    answers = operation.setdefault("responses", {})
    if _REF_OF_FASTAPI in str(answers.get("422")):
        del answers["422"]
    for status in {*(str(one) for one in statuses), *answers}:
        if status not in answers or (status.isdigit() and answers[status] == responses(int(status))[int(status)]):
            answers[status] = {"$ref": f"#/components/responses/Problem{status}"}
    for answer in answers.values():
        # A stream of events has no schema as a whole, whatever a framework takes its text for.
        answer.get("content", {}).get(_EVENTS, {}).pop("schema", None)
    operation["responses"] = dict(sorted(answers.items()))


def _lift_definitions(value: Any, schemas: dict[str, Any]) -> None:
    """Move the definitions that a schema brings (`$defs`) to those of the whole, where references look for them."""
    if isinstance(value, list):
        for one in value:
            _lift_definitions(one, schemas)
    if not isinstance(value, dict):
        return
    for name, definition in value.pop("$defs", {}).items():
        _lift_definitions(definition, schemas)
        schemas.setdefault(name, definition)
    reference = value.get("$ref")
    if isinstance(reference, str):
        value["$ref"] = reference.replace("#/$defs/", "#/components/schemas/")
    for one in value.values():
        _lift_definitions(one, schemas)


def _problem_responses(whole: Mapping[str, Any]) -> dict[str, Any]:
    """Return the problems that operations refer to, each once."""
    used = {
        int(status)
        for _, _, operation in operations(whole)
        for status, answer in operation["responses"].items()
        if "$ref" in answer
    }
    found = {f"Problem{status}": dict(answer) for status, answer in sorted(responses(*used).items())}
    for status in _WITH_RETRY & used:
        found[f"Problem{status}"]["headers"] = {
            "Retry-After": {"description": "Seconds, 1 to 120.", "schema": {"type": "integer"}}
        }
    return found


@router.get("/openapi.json", operation_id="get_openapi", response_class=JSONResponse)
async def get_description(request: Request) -> JSONResponse:
    """Return this description."""
    return JSONResponse(described(request.app))


@router.get("/docs", operation_id="get_docs", response_class=HTMLResponse)
async def get_docs(request: Request) -> HTMLResponse:
    """Show this description to people."""
    policy = "default-src 'none'; style-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
    return HTMLResponse(_page(described(request.app)), headers={"content-security-policy": policy})


@router.get("/docs/style.css", operation_id="get_docs_style", include_in_schema=False)
async def get_style() -> Response:
    """Return the style of that page."""
    return Response(_STYLE, media_type="text/css")


def _page(whole: Mapping[str, Any]) -> str:
    """Return the page."""
    by_tag: dict[str, list[str]] = {}
    for path, method, operation in operations(whole):
        by_tag.setdefault(operation.get("tags", ["service"])[0], []).append(_section(path, method, operation))
    body = "".join(f"<h2>{escape(tag)}</h2>{''.join(found)}" for tag, found in sorted(by_tag.items()))
    title = f"voicejobs {escape(__version__)}"
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        '<meta name="viewport" content="width=device-width"><link rel="stylesheet" href="/docs/style.css"></head>'
        f"<body><h1>{title}</h1><p>{escape(whole['info']['description'])}</p>"
        f'<p><a href="/openapi.json">openapi.json</a></p>{body}</body></html>'
    )


def _section(path: str, method: str, operation: Mapping[str, Any]) -> str:
    """Return what the page says of one operation."""
    rows = [
        (f"{parameter['name']} ({parameter['in']})", parameter.get("description", ""))
        for parameter in operation.get("parameters", ())
    ]
    rows += [("body", media_type) for media_type in operation.get("requestBody", {}).get("content", {})]
    rows += [
        (status, answer.get("description") or HTTPStatus(int(status)).phrase)
        for status, answer in operation["responses"].items()
    ]
    cells = "".join(f"<tr><th>{escape(str(name))}</th><td>{escape(str(text))}</td></tr>" for name, text in rows)
    name = f"<code>{method.upper()} {escape(path)}</code> {escape(operation.get('summary', ''))}"
    text = escape(operation.get("description", ""))
    return f"<details><summary>{name}</summary><p>{text}</p><table>{cells}</table></details>"


_STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color-scheme:light dark}"
    "summary{cursor:pointer;padding:.2rem 0}table{border-collapse:collapse;margin-left:1rem}"
    "th{text-align:left;font-weight:600;padding-right:1rem;vertical-align:top}"
)
