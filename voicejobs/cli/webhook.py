"""`voicejobs webhook`: receivers that are told when jobs and batches end."""

import json
import sys
from pathlib import Path
from typing import Any

import click

from voicejobs.cli.globals import current, current_settings
from voicejobs.cli.show import print_json, print_table, when
from voicejobs.cli.spelling import Command, Group
from voicejobs.cli.store import opened
from voicejobs.errors import AddressUnavailable
from voicejobs.outbound import signing
from voicejobs.receivers import Made, Receivers
from voicejobs.settings import read_secret
from voicejobs.store import webhooks as rows

_tenant = click.option("--tenant", default="default", show_default=True, metavar="NAME", help="Whose webhooks.")
_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")


@click.group(
    cls=Group,
    help="Webhooks: receivers that are told when jobs and batches end.\n\n\b\nExamples:\n"
    "  voicejobs webhook add https://receiver.example/hook --type 'job.*'\n"
    "  voicejobs webhook test wh_0190a1b2c3d4\n"
    "  voicejobs webhook verify body.json --id ID --timestamp TIME --signature TEXT --secret-file secret",
)
def webhook() -> None:
    """Webhooks."""


@webhook.command("add", cls=Command)
@click.argument("url", metavar="URL")
@click.option("--type", "types", multiple=True, metavar="TYPE",
              help="What it hears of, once for each: job.succeeded, job.*, ...; all by default.")  # fmt: skip
@_tenant
@_json
def add(url: str, types: tuple[str, ...], tenant: str, as_json: bool) -> None:
    """Make a webhook and print its secret, this once: no row holds it.

    A running service (`voicejobs serve api`) tells it.
    """
    settings = current_settings()
    with opened(settings) as database:
        made = Receivers(settings, database).add(tenant, url, types)
    _tell(made, as_json=as_json)


@webhook.command("list", cls=Command)
@_tenant
@_json
def list_webhooks(tenant: str, as_json: bool) -> None:
    """Show the webhooks of a tenant, and why those are disabled that are."""
    with opened(current_settings()) as database, database.read() as connection:
        found = rows.of_tenant(connection, tenant)
        owed = rows.count_pending(connection, [row.id for row in found])
    shown = [{**_shown(row), "pending": owed.get(row.id, 0)} for row in found]
    if as_json:
        print_json("webhooks", shown)
    elif shown:
        cells = [
            (one["id"], one["status"], str(one["pending"]), when(one["created_at"]), one["url"], one["reason"] or "")
            for one in shown
        ]
        print_table(("WEBHOOK", "STATE", "OWED", "CREATED", "URL", "REASON"), cells)


@webhook.command("remove", cls=Command)
@click.argument("webhook_id", metavar="WEBHOOK")
@_tenant
def remove(webhook_id: str, tenant: str) -> None:
    """Remove a webhook, and the log of its deliveries with it."""
    settings = current_settings()
    with opened(settings) as database:
        Receivers(settings, database).remove(tenant, webhook_id)
    if not current().quiet:
        click.echo(f"webhook {webhook_id} is removed", err=True)


@webhook.command("rotate", cls=Command)
@click.argument("webhook_id", metavar="WEBHOOK")
@_tenant
@_json
def rotate(webhook_id: str, tenant: str, as_json: bool) -> None:
    """Give a webhook a new secret and print it, this once; for 24 hours messages are signed with the old one, too."""
    settings = current_settings()
    with opened(settings) as database:
        made = Receivers(settings, database).rotate(tenant, webhook_id)
    _tell(made, as_json=as_json)


@webhook.command("test", cls=Command)
@click.argument("webhook_id", metavar="WEBHOOK")
@_tenant
@_json
def test(webhook_id: str, tenant: str, as_json: bool) -> None:
    """Send a message of the type webhook.test now, once, and tell what the receiver made of it."""
    settings = current_settings()
    with opened(settings) as database:
        row = Receivers(settings, database).test(tenant, webhook_id)
    if as_json:
        print_json("delivery", {"id": row.id, "status": row.state, "status_code": row.status_code, "error": row.error})
    elif row.state == rows.DELIVERED:
        click.echo(f"delivered: the receiver answered {row.status_code}")
    if row.state != rows.DELIVERED:
        raise AddressUnavailable(f"The webhook {webhook_id} did not take the message: {row.error}")


@webhook.command("verify", cls=Command)
@click.argument("body", type=click.Path(path_type=Path, exists=True, dir_okay=False, allow_dash=True), metavar="FILE")
@click.option("--id", "message_id", required=True, metavar="TEXT", help="Its header webhook-id.")
@click.option("--timestamp", required=True, metavar="TEXT", help="Its header webhook-timestamp.")
@click.option("--signature", required=True, metavar="TEXT", help="Its header webhook-signature.")
@click.option("--secret-file", required=True, type=click.Path(path_type=Path), help="File with the secret, whsec_...")
def verify(body: Path, message_id: str, timestamp: str, signature: str, secret_file: Path) -> None:
    """Check the signature of a message that a receiver got; FILE holds its body, byte by byte (- is standard input)."""
    data = sys.stdin.buffer.read() if str(body) == "-" else body.read_bytes()
    secret = signing.read_written(read_secret(secret_file, label="--secret-file"))
    received = {
        signing.ID_HEADER: message_id,
        signing.TIMESTAMP_HEADER: timestamp,
        signing.SIGNATURE_HEADER: signature,
    }
    signing.verify(secret, received, data)
    click.echo("the signature is right")


def _tell(made: Made, *, as_json: bool) -> None:
    """Print a webhook with its secret."""
    if as_json:
        print_json("webhook", {**_shown(made.webhook), "secret": made.secret})
        return
    click.echo(f"{made.webhook.id}\n{made.secret}")
    if not current().quiet:
        click.echo("The second line is its secret. It is shown this once.", err=True)


def _shown(row: Any) -> dict[str, Any]:
    """Return what is shown of a webhook; times are unix seconds."""
    return {
        "id": row.id,
        "tenant": row.tenant,
        "url": row.url,
        "types": json.loads(row.types),
        "status": row.state,
        "reason": row.reason,
        "created_at": row.created_at,
        "rotated_at": row.rotated_at,
    }
