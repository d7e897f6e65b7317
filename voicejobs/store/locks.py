"""The order in which rows are locked: step runs before jobs, jobs before batches, and in each table by id.

Whoever changes many rows locks them first, in this order, so that nobody waits for somebody who waits for him. Where a
statement locks further rows on its way, Postgres may still have to end one of two; `Database.run` then does it again.
"""

from typing import Any

from sqlalchemy import Connection, Table, func, select


def lock_in_order(connection: Connection, table: Table, *which: Any) -> None:
    """Lock the rows of a table for which all conditions hold, by id; on SQLite a transaction that writes has them all.

    No row is sent: they may be hundreds of thousands.
    """
    if connection.dialect.name != "sqlite":
        locked = select(table.c.id).where(*which).order_by(table.c.id).with_for_update().subquery()
        connection.execute(select(func.count()).select_from(locked))
