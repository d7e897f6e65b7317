"""Objects as OpenAI's clients know them: files, uploads, batches and models, with times in whole unix seconds."""

from collections.abc import Mapping, Sequence
from typing import Any


def whole_s(at_s: float | None) -> int | None:
    """Return a time in whole seconds; None stays None."""
    return None if at_s is None else int(at_s)


def file_object(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a file: `id`, `name`, `purpose`, `media_type`, `sha256`, `size_bytes` and times of the row."""
    return {
        "id": row["id"],
        "object": "file",
        "bytes": row["size_bytes"],
        "created_at": int(row["created_at"]),
        "expires_at": whole_s(row["expires_at"]),
        "filename": row["name"],
        "purpose": row["purpose"],
        "status": "processed",
        "status_details": None,
        "sha256": row["sha256"],
        "media_type": row["media_type"],
    }


def upload_object(row: Mapping[str, Any], file: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return an upload; once it is complete, with the file that it became."""
    return {
        "id": row["id"],
        "object": "upload",
        "bytes": row["size_bytes"],
        "created_at": int(row["created_at"]),
        "expires_at": int(row["expires_at"]),
        "filename": row["name"],
        "purpose": row["purpose"],
        "status": row["state"],
        "mime_type": row["media_type"],
        "file": None if file is None else file_object(file),
    }


def part_object(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a part of an upload, with its size and hash beyond what OpenAI tells."""
    return {
        "id": row["id"],
        "object": "upload.part",
        "created_at": int(row["created_at"]),
        "upload_id": row["upload_id"],
        "bytes": row["size_bytes"],
        "sha256": row["sha256"],
    }


def batch_object(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a batch.

    Args:
        row: `id`, `status` (OpenAI's word), `request` (what was asked: endpoint, input_file_id, completion_window,
            metadata, errors, output_file_id, error_file_id), `counts` (total, completed, failed) and times:
            `created_at`, `finished_at`, `expires_at`.
    """
    request, status, ended = row["request"], row["status"], whole_s(row["finished_at"])
    errors: Sequence[Mapping[str, Any]] = request.get("errors") or ()
    created = int(row["created_at"])
    ended_as = {
        f"{name}_at": ended if status == name else None for name in ("completed", "failed", "expired", "cancelled")
    }
    return {
        "id": row["id"],
        "object": "batch",
        "endpoint": request.get("endpoint", ""),
        "errors": {"object": "list", "data": list(errors)} if errors else None,
        "input_file_id": request.get("input_file_id", ""),
        "completion_window": request.get("completion_window", "24h"),
        "status": status,
        "output_file_id": request.get("output_file_id"),
        "error_file_id": request.get("error_file_id"),
        "created_at": created,
        "in_progress_at": None if status == "failed" else created,
        "expires_at": whole_s(row["expires_at"]),
        "finalizing_at": ended if status in {"finalizing", "completed"} else None,
        **ended_as,
        "cancelling_at": None,
        "request_counts": dict(row["counts"]),
        "metadata": request.get("metadata") or None,
    }


def model_object(name: str, owner: str, **more: Any) -> dict[str, Any]:
    """Return a model; weights have no date here, and OpenAI's clients want one."""
    return {"id": name, "object": "model", "created": 0, "owned_by": owner, **more}


def list_object(items: Sequence[Mapping[str, Any]], *, has_more: bool) -> dict[str, Any]:
    """Return a page."""
    return {
        "object": "list",
        "data": list(items),
        "first_id": items[0]["id"] if items else None,
        "last_id": items[-1]["id"] if items else None,
        "has_more": has_more,
    }
