#!/usr/bin/env python3
"""Write docs/openapi.json, the description of the service that voicejobs/api gives; a test compares the two.

scripts/generate_openapi.py            write it
scripts/generate_openapi.py --check    fail where it differs
"""

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
VENV = ROOT / ".venv"
PAGE = ROOT / "docs" / "openapi.json"


def main() -> int:
    """Write the page, or compare it."""
    python = VENV / "bin" / "python"
    if python.exists() and Path(sys.prefix).resolve() != VENV.resolve():
        os.execv(python, [str(python), *sys.argv])  # noqa: S606 - the same script, by the Python of the checkout
    sys.path.insert(0, str(ROOT))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="fail where the page differs, and write nothing")
    text = description()
    if not parser.parse_args().check:
        PAGE.write_text(text, encoding="utf-8")
        return 0
    if PAGE.read_text(encoding="utf-8") == text:
        return 0
    print("docs/openapi.json differs from what the service says: run scripts/generate_openapi.py", file=sys.stderr)
    return 1


def description() -> str:
    """Return the description as the page holds it."""
    from voicejobs.api.app import create_app  # noqa: PLC0415 - by the Python of the checkout
    from voicejobs.api.context import Context  # noqa: PLC0415
    from voicejobs.settings import Settings  # noqa: PLC0415
    from voicejobs.store.blobs import BlobStore  # noqa: PLC0415
    from voicejobs.store.database import Database  # noqa: PLC0415

    with tempfile.TemporaryDirectory() as folder:
        settings = Settings.from_env({"HOME": folder})
        context = Context(settings, Database(f"sqlite:///{folder}/none.db"), BlobStore(settings.blobs_dir))
        whole = create_app(context).openapi()
        context.close()
    return json.dumps(whole, indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    sys.exit(main())
