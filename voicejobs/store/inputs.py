"""What the input of a job was found to be, where nobody had read it when the job was submitted."""

from sqlalchemy import BigInteger, Connection, String, Text, bindparam, literal, select, update

from voicejobs.store.leases import HELD, Lease, demand_one, dump
from voicejobs.store.schema import jobs, results, step_runs

_IDENTIFY = (
    update(jobs)
    .where(jobs.c.id == bindparam("b_job_id"), select(literal(1)).select_from(step_runs).where(HELD).exists())
    .values(
        source=bindparam("b_source", type_=Text),
        input_sha256=bindparam("b_sha256", type_=String),
        done_key=bindparam("b_done_key", type_=String),
        result_key=bindparam("b_result_key", type_=String),
        cost_order=bindparam("b_cost_order", type_=BigInteger),
    )
)


def identify(connection: Connection, lease: Lease, *, done_key: str) -> None:
    """Write down what the input of a lease was found to be, inside the caller's transaction.

    Raises:
        LeaseLost: another claim has raised the fencing number; nothing is changed.
    """
    values = {
        "b_job_id": lease.job_id,
        "b_id": lease.step_run_id,
        "b_fence": lease.fence,
        "b_source": dump(lease.source),
        "b_sha256": lease.input_sha256,
        "b_done_key": done_key,
        "b_result_key": lease.result_key,
        "b_cost_order": -int(lease.source["size"]),
    }
    demand_one(connection.execute(_IDENTIFY, values).rowcount, lease)


def known_transcript(connection: Connection, job_id: str, result_key: str) -> str | None:
    """Return the id of the newest transcript under this key that the tenant of a job has, None where there is none."""
    tenant = select(jobs.c.tenant).where(jobs.c.id == job_id).scalar_subquery()
    owners = jobs.alias("owners")
    query = (
        select(results.c.artifact_id)
        .join(owners, owners.c.id == results.c.job_id)
        .where(results.c.result_key == result_key, owners.c.tenant == tenant)
        .order_by(results.c.created_at.desc())
        .limit(1)
    )
    found = connection.execute(query).scalar()
    return None if found is None else str(found)
