"""The API keys as one process of the service knows them: what it was told within the last half second."""

import hmac
import time
from collections import OrderedDict

from voicejobs.store import keys
from voicejobs.store.database import Database
from voicejobs.store.keys import NOBODYS_SHA256, Key

LIFE_S = 0.5
"""A revoked key is taken no longer than this."""
MOST_KEPT = 4096


class KeyRing:
    """Know which keys are valid; `look_up` and `look_for_any` may block, the rest may not."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._known: OrderedDict[str, tuple[float, Key | None]] = OrderedDict()
        self._any = False
        self._asked_at = float("-inf")
        self._used: dict[str, float] = {}

    def is_fresh(self, key_id: str) -> bool:
        """Tell whether it is known what became of a key."""
        told = self._known.get(key_id)
        return told is not None and time.monotonic() - told[0] < LIFE_S

    def look_up(self, key_id: str) -> None:
        """Ask the database for a key, one that is unknown, expired or revoked included."""
        found = keys.find_valid_key(self._database, key_id)
        self._known[key_id] = (time.monotonic(), found)
        self._known.move_to_end(key_id)
        while len(self._known) > MOST_KEPT:
            self._known.popitem(last=False)

    def opened_by(self, key_id: str, secret: str) -> Key | None:
        """Return the key if it is valid and the secret is its own; this takes as long whichever it is."""
        found = self._known.get(key_id, (0.0, None))[1]
        expected = NOBODYS_SHA256 if found is None else found.secret_sha256
        same = hmac.compare_digest(keys.hash_of(secret), expected)
        return found if same else None

    def is_valid(self, key_id: str) -> bool:
        """Tell whether a key was neither revoked nor expired when it was looked up last."""
        return self._known.get(key_id, (0.0, None))[1] is not None

    @property
    def knows_whether_any(self) -> bool:
        """Tell whether `has_any` is of late; that there is a key stays true."""
        return self._any or time.monotonic() - self._asked_at < LIFE_S

    @property
    def has_any(self) -> bool:
        """Tell whether a key was ever made, as `look_for_any` found last."""
        return self._any

    def look_for_any(self) -> None:
        """Ask the database whether a key was ever made."""
        self._any = keys.has_keys(self._database)
        self._asked_at = time.monotonic()

    def is_use_due(self, key_id: str) -> bool:
        """Tell whether the use of a key has to be written down again, and take that as done."""
        now = time.monotonic()
        if now - self._used.get(key_id, float("-inf")) < keys.USED_STEP_S:
            return False
        self._used[key_id] = now
        return True

    def note_use(self, key_id: str) -> None:
        """Write down that a key was used."""
        keys.note_use(self._database, key_id)
