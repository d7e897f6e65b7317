"""`voicejobs key`: the API keys of this installation."""

from typing import Any

import click

from voicejobs.cli import option_types
from voicejobs.cli.durations import Duration
from voicejobs.cli.globals import current, current_settings
from voicejobs.cli.show import print_json, print_table, when
from voicejobs.cli.spelling import Command, Group
from voicejobs.cli.store import opened
from voicejobs.store import keys
from voicejobs.store.database import Database
from voicejobs.store.keys import Key, NewKey


@click.group(
    cls=Group,
    help="API keys of the service: make, list and revoke them.\n\n\b\nExamples:\n"
    "  voicejobs key create --name laptop --scope jobs:read --scope jobs:write\n  voicejobs key list\n"
    "  voicejobs key revoke 4fQx81Zb",
)
def key() -> None:
    """API keys."""


@key.command("create", cls=Command)
@click.option("--name", default="", metavar="TEXT", help="What people call it.")
@click.option("--tenant", default="default", show_default=True, metavar="NAME", help="Whose rows it reaches.")
@click.option("--scope", "scopes", multiple=True, type=click.Choice(keys.SCOPES), default=("admin",), show_default=True,
              help="What it allows; give it once for each.")  # fmt: skip
@click.option("--expires-after", type=Duration("age"), metavar="AGE", help="Time after which it ends: 12h, 30d, 2w.")
@click.option("--environment", default="live", show_default=True, metavar="WORD",
              help="A word in the key that tells where it belongs: live, test.")  # fmt: skip
@click.option(
    "--requests-per-minute", type=option_types.FloatRange(0), help="Its own rate, 0.01 to 1000000; 0: no limit."
)
@click.option(
    "--concurrency", type=click.IntRange(0, keys.LARGEST_LIMIT), help="Its own number of requests at once; 0: no limit."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def create(**given: Any) -> None:
    """Make a key and print it, this once: the database holds a hash of it.

    The first key closes a service that was open: from then on each call needs one.
    """
    limits = {name: given[name] for name in ("requests_per_minute", "concurrency") if given[name] is not None}
    wanted = NewKey(
        tenant=given["tenant"],
        name=given["name"],
        scopes=given["scopes"],
        limits=limits,
        lifetime_s=given["expires_after"],
        environment=given["environment"],
    )
    with opened(current_settings()) as database:
        made, text = keys.create_key(database, wanted)
        shown = _shown(database, made)
    if given["as_json"]:
        print_json("key", {**shown, "key": text})
        return
    click.echo(text)
    if not current().quiet:
        click.echo(
            f"key {made.id} of {made.tenant}: {', '.join(sorted(made.scopes))}. It is shown this once.", err=True
        )


@key.command("list", cls=Command)
@click.option("--tenant", metavar="NAME", help="Keys of this tenant alone.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def list_keys(tenant: str | None, as_json: bool) -> None:
    """Show all keys, those that are over too; none of their secrets."""
    with opened(current_settings()) as database:
        found = [_shown(database, one) for one in keys.list_keys(database, tenant=tenant)]
    if as_json:
        print_json("keys", found)
    elif found:
        rows = [
            (
                one["id"], one["tenant"], one["state"], when(one["created_at"]), when(one["last_used_at"]),
                when(one["expires_at"]), ",".join(one["scopes"]), one["name"],
            )
            for one in found
        ]  # fmt: skip
        print_table(("KEY", "TENANT", "STATE", "CREATED", "LAST USED", "EXPIRES", "SCOPES", "NAME"), rows)


@key.command("revoke", cls=Command)
@click.argument("key_id", metavar="KEY")
def revoke(key_id: str) -> None:
    """Revoke a key for good, by its id or the whole key; running services refuse it within a second."""
    parts = keys.split_key(key_id)
    with opened(current_settings()) as database:
        gone = keys.revoke_key(database, parts[0] if parts else key_id)
    if not current().quiet:
        click.echo(f"key {gone.id} is revoked", err=True)


def _shown(database: Database, one: Key) -> dict[str, Any]:
    """Return what is shown of a key."""
    return {**one.to_json(), "state": keys.state_of(database, one)}
