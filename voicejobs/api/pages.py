"""Pages of lists: by the id after which they begin, never by a number of rows to skip."""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar
from urllib.parse import urlencode

from fastapi import Depends, Query, Request, Response
from sqlalchemy import ColumnElement, Connection, Row, Select

from voicejobs.api.context import Context
from voicejobs.errors import BadOption
from voicejobs.piecewise import encoded

T = TypeVar("T")
DEFAULT_LIMIT, LARGEST_LIMIT = 20, 100
_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True, slots=True)
class Paging:
    """Say which page of a list is wanted.

    Args:
        after: id of the last row of the page before; None for the first page.
        limit: rows at most.
        order: `desc` (newest first) or `asc`.
    """

    after: str | None = None
    limit: int = DEFAULT_LIMIT
    order: Literal["asc", "desc"] = "desc"

    def checked(self, prefix: str) -> "Paging":
        """Return this page of a list whose ids begin with a prefix (`job_`).

        Raises:
            BadOption: `after` is no such id.
        """
        if self.after is not None and not (self.after.startswith(prefix) and _ID.fullmatch(self.after)):
            raise BadOption(
                "`after` is no id of this list", hint="Use `last_id` of the page before, or its Link.", param="after"
            )
        return self


def _paging(
    after: Annotated[str | None, Query(description="Id after which the page begins.")] = None,
    limit: Annotated[int, Query(ge=1, le=LARGEST_LIMIT, description="Rows at most.")] = DEFAULT_LIMIT,
    order: Annotated[Literal["asc", "desc"], Query(description="Oldest or newest first.")] = "desc",
) -> Paging:
    """Return what the query says of the page."""
    return Paging(after, limit, order)


Page = Annotated[Paging, Depends(_paging)]


def fetch_page(
    connection: Connection, query: Select[Any], key: ColumnElement[Any], paging: Paging
) -> tuple[list[Row[Any]], bool]:
    """Return the rows of a page, and whether more follow.

    Args:
        connection: where to ask.
        query: all rows of the list.
        key: the column that `after` means, by which the list is ordered.
        paging: which page.
    """
    falling = paging.order == "desc"
    if paging.after is not None:
        query = query.where(key < paging.after if falling else key > paging.after)
    query = query.order_by(key.desc() if falling else key.asc()).limit(paging.limit + 1)
    rows = list(connection.execute(query))
    return rows[: paging.limit], len(rows) > paging.limit


def list_of(items: Sequence[dict[str, Any]], *, more: bool) -> dict[str, Any]:
    """Return the body of a page; every item has an `id`."""
    return {
        "object": "list",
        "data": list(items),
        "first_id": items[0]["id"] if items else None,
        "last_id": items[-1]["id"] if items else None,
        "has_more": more,
    }


def link_next(request: Request, response: Response, page: dict[str, Any]) -> dict[str, Any]:
    """Return a page, its answer given the header `Link` to the next one, relative to this host."""
    if page["has_more"]:
        query = [(name, value) for name, value in request.query_params.multi_items() if name != "after"]
        target = f"{request.scope['path']}?{urlencode([*query, ('after', page['last_id'])])}"
        response.headers["Link"] = f'<{target}>; rel="next"'
    return page


async def answer_page(request: Request, context: Context, read: Callable[[], dict[str, Any]]) -> Response:
    """Answer with a page whose rows may be large: it is read in a thread, and written there too, row by row."""

    def made() -> Response:
        page = read()
        response = Response(encoded(_written(page)), media_type="application/json")
        link_next(request, response, page)
        return response

    return await context.run(made)


def _written(page: Mapping[str, Any]) -> Iterator[str]:
    """Yield the JSON of a page in parts: a row at a time."""
    write = _ENCODER.encode
    yield f'{{"object":{write(page["object"])},"data":['
    for number, row in enumerate(page["data"]):
        yield f"{',' if number else ''}{write(row)}"
    rest = {name: value for name, value in page.items() if name not in {"object", "data"}}
    yield f"],{write(rest)[1:]}"


def paged(items: Sequence[T], paging: Paging, id_of: Callable[[T], str]) -> tuple[list[T], bool]:
    """Return a page of what is in memory already, sorted by id, and whether more follow."""
    falling = paging.order == "desc"
    found = sorted(items, key=id_of, reverse=falling)
    if paging.after is not None:
        after = paging.after
        found = [item for item in found if (id_of(item) < after if falling else id_of(item) > after)]
    return found[: paging.limit], len(found) > paging.limit
