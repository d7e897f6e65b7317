"""A service for all tests of this folder, closed by keys of two tenants."""

from collections.abc import Iterator

import httpx
import pytest

from tests.servers.api import ApiServer
from tests.servers.valkey import Valkey

BROKER_DATABASE = 15


@pytest.fixture(scope="session")
def api(valkey: Valkey, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    """Return a running service without workers; tests must not stop it."""
    with ApiServer(tmp_path_factory.mktemp("api"), valkey.broker_url(BROKER_DATABASE)) as server:
        server.first_key = server.key("first")
        yield server


@pytest.fixture(scope="session")
def admin(api: ApiServer) -> Iterator[httpx.Client]:
    """Return a client of the first tenant that may do everything."""
    with api.client(api.first_key) as client:
        yield client
