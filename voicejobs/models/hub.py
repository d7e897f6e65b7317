"""Fetch model files from the model hub over HTTP, going on where an earlier download was cut off."""

import threading
from collections.abc import Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING

from voicejobs.errors import ModelCorrupt, ModelUnavailable
from voicejobs.models.catalogue import HubSource, ModelFile
from voicejobs.models.parts import Job, PartFile

if TYPE_CHECKING:
    import httpx

PROBE_S = 1.5
"""Longest wait for the first answer of the hub: two seconds, less what a loaded machine adds."""
CONNECT_S = 5.0
STALL_S = 20.0
"""Silence after which a running download counts as broken."""
TRIES = 4

_reachable: dict[str, bool] = {}
_reachable_lock = threading.Lock()


def reachable(hub_url: str) -> bool:
    """Tell whether the hub answers; asked once for each process."""
    with _reachable_lock:
        if hub_url not in _reachable:
            _reachable[hub_url] = _probe(hub_url)
        return _reachable[hub_url]


def fetch(source: HubSource, files: Sequence[ModelFile], hub_url: str, job: Job) -> None:
    """Fetch `files` into the folder of the job; those that fail do not keep the others from coming.

    Raises:
        ModelUnavailable: the hub is out of reach, or some files could not be had.
        ModelCorrupt: some files are not those of the catalogue.
    """
    import httpx

    if not reachable(hub_url):
        raise ModelUnavailable(f"{hub_url} is out of reach")
    failures: list[ModelUnavailable | ModelCorrupt] = []
    with httpx.Client(follow_redirects=True, timeout=httpx.Timeout(STALL_S, connect=CONNECT_S)) as client:
        for file in files:
            url = f"{hub_url.rstrip('/')}/{source.repo}/resolve/{source.revision}/{source.folder}{file.name}"
            try:
                _download(client, url, file, job)
            except httpx.ConnectError as error:
                _reachable[hub_url] = False
                raise ModelUnavailable(f"{hub_url} went out of reach: {error}") from error
            except (ModelUnavailable, ModelCorrupt) as error:
                failures.append(error)
    if failures:
        raise failures[0]


def _probe(hub_url: str) -> bool:
    """Ask the hub for anything, in a thread: name resolution and proxies know no time limit of ours."""
    answers: list[int] = []

    def ask() -> None:
        import httpx

        try:
            answers.append(httpx.head(hub_url, timeout=PROBE_S).status_code)
        except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError, ImportError):
            # ValueError and ImportError: a proxy setting that httpx does not understand, or SOCKS without its package.
            return

    thread = threading.Thread(target=ask, name="voicejobs-hub-probe", daemon=True)
    thread.start()
    thread.join(PROBE_S)
    return any(
        status < HTTPStatus.INTERNAL_SERVER_ERROR and status != HTTPStatus.PROXY_AUTHENTICATION_REQUIRED
        for status in answers
    )


def _download(client: "httpx.Client", url: str, file: ModelFile, job: Job) -> None:
    """Fetch one file; a broken connection is taken up again where it broke."""
    import httpx

    with PartFile(job.folder, file) as part:
        for _ in range(TRIES):
            resumed = part.resume()
            try:
                if part.size < file.bytes:
                    _receive(client, url, part, job)
                if part.size == file.bytes:
                    part.commit()
                    return
            except httpx.ConnectError:
                raise
            except httpx.HTTPError as error:
                if part.size <= resumed:  # no progress: another try would only cost time
                    raise ModelUnavailable(f"{url}: {str(error) or type(error).__name__}") from error
            except ModelCorrupt as error:
                # The beginning may stem from another source or a broken disk: one clean try decides.
                if not resumed:
                    raise ModelCorrupt(f"{url}: {error.message}") from error
        raise ModelUnavailable(f"{url} delivered {part.size} of {file.bytes} bytes")


def _receive(client: "httpx.Client", url: str, part: PartFile, job: Job) -> None:
    """Append what the hub sends to the part."""
    headers = {"Accept-Encoding": "identity"}
    if part.size:
        headers["Range"] = f"bytes={part.size}-"
    with client.stream("GET", url, headers=headers) as response:
        continues = response.headers.get("Content-Range", "").startswith(f"bytes {part.size}-")
        if response.status_code == HTTPStatus.OK:
            part.restart()  # the server does not do ranges
        elif response.status_code != HTTPStatus.PARTIAL_CONTENT or not continues:
            raise ModelUnavailable(f"{url} answered {response.status_code}")
        for chunk in response.iter_raw():  # as they come: chunks of a fixed size would lose the last one of a cut
            part.write(chunk)
            job.tell(f"{part.file.name} from {host_of(url)}", part.size, part.file.bytes)


def host_of(url: str) -> str:
    """Return the host of an address, for people."""
    return url.split("/")[2]
