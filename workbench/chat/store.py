"""Chats in one SQLite file; what was saved survives the end of the program, however it comes."""

import json
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from workbench.chat.conversation import Conversation, Turn, title_of
from workbench.errors import WorkbenchError
from workbench.events import Note, ReplyDone, ReplyFailed
from workbench.runs import Reply

SAVE_EVERY_S = 1.0
_SCHEMA = """
CREATE TABLE conversation (id INTEGER PRIMARY KEY, at REAL NOT NULL, title TEXT NOT NULL, system TEXT NOT NULL);
CREATE TABLE turn (
    id INTEGER PRIMARY KEY, conversation INTEGER NOT NULL REFERENCES conversation ON DELETE CASCADE,
    at REAL NOT NULL, prompt TEXT NOT NULL, sampling TEXT NOT NULL, together INTEGER NOT NULL
);
CREATE TABLE reply (
    turn INTEGER NOT NULL REFERENCES turn ON DELETE CASCADE, side TEXT NOT NULL, model TEXT NOT NULL,
    state TEXT NOT NULL, text TEXT NOT NULL, reasoning TEXT NOT NULL, done TEXT, error TEXT, PRIMARY KEY (turn, side)
);
CREATE INDEX turn_of ON turn (conversation);
PRAGMA user_version = 1;
"""


@dataclass(frozen=True, slots=True)
class Listed:
    """One line of the history; `at` is the time of its last turn, seconds since 1970."""

    id: int
    title: str
    at: float


class Store:
    """The chats in `path`. `note` tells the user when an unreadable file had to be set aside."""

    def __init__(self, path: Path):
        self.note: Note | None = None
        self._saved_s: dict[tuple[int, str], float] = {}
        try:
            self._db = _open(path)
        except sqlite3.OperationalError as error:
            raise _unusable(path, error) from error
        except sqlite3.DatabaseError:
            aside = _set_aside(path)
            self._db = _open(path)
            rescued = _rescue(aside, self._db)
            self.note = Note(
                "The chats could not be read: the file was set aside as {name} and {count} "
                "{count:chat was|chats were} rescued from it.",
                {"name": aside.name, "count": rescued},
                "warning",
            )
        with self._db:
            self._db.execute("UPDATE reply SET state = 'interrupted' WHERE state IN ('waiting', 'streaming')")

    @contextmanager
    def _saving(self) -> Iterator[None]:
        """One transaction, whole or not at all."""
        try:
            with self._db:
                yield
        except sqlite3.Error as error:
            raise WorkbenchError(
                "The chat could not be saved: {reason}.",
                "Free some space; the chat goes on meanwhile.",
                reason=str(error),
            ) from error

    def close(self) -> None:
        self._db.close()

    def listing(self) -> list[Listed]:
        """All conversations, the last used first."""
        rows = self._db.execute(
            "SELECT c.id, c.title, COALESCE(MAX(t.at), c.at) AS last FROM conversation c "
            "LEFT JOIN turn t ON t.conversation = c.id GROUP BY c.id ORDER BY last DESC, c.id DESC"
        )
        return [Listed(*row) for row in rows]

    def load(self, conversation_id: int) -> Conversation:
        """One conversation with all its turns."""
        row = self._db.execute("SELECT id, at, system FROM conversation WHERE id = ?", (conversation_id,)).fetchone()
        if row is None:
            raise WorkbenchError("This chat is no longer there.", "It may have been deleted in another window.")
        conversation = Conversation(id=row[0], at=row[1], system=row[2])
        for turn in self._db.execute(
            "SELECT id, at, prompt, sampling, together FROM turn WHERE conversation = ? ORDER BY id", (conversation_id,)
        ):
            replies = self._db.execute(
                "SELECT side, model, state, text, reasoning, done, error FROM reply WHERE turn = ?", (turn[0],)
            )
            conversation.turns.append(
                Turn(
                    id=turn[0],
                    at=turn[1],
                    prompt=turn[2],
                    sampling=json.loads(turn[3]),
                    together=bool(turn[4]),
                    replies={side: _reply(*rest) for side, *rest in replies},
                )
            )
        return conversation

    def add_turn(self, conversation: Conversation, turn: Turn) -> None:
        """Save a new turn, and the conversation with its first one; sets their ids. The prompt is safe from here on."""
        with self._saving():
            if not conversation.id:
                conversation.id = self._db.execute(
                    "INSERT INTO conversation (at, title, system) VALUES (?, ?, ?)",
                    (conversation.at, title_of(turn.prompt), conversation.system),
                ).lastrowid
            turn.id = self._db.execute(
                "INSERT INTO turn (conversation, at, prompt, sampling, together) VALUES (?, ?, ?, ?, ?)",
                (conversation.id, turn.at, turn.prompt, json.dumps(turn.sampling), turn.together),
            ).lastrowid
        for side in turn.replies:
            self.save_reply(turn, side)

    def save_reply(self, turn: Turn, side: str) -> None:
        """Save a reply as it stands. While it streams, only once a second: call as often as you like."""
        reply, now_s = turn.replies[side], time.monotonic()
        last_s = self._saved_s.get((turn.id, side))
        if reply.is_open and last_s is not None and now_s - last_s < SAVE_EVERY_S:
            return
        row = (
            turn.id, side, reply.model, reply.state, reply.text, reply.reasoning,
            reply.done and json.dumps(asdict(reply.done)), reply.error and json.dumps(asdict(reply.error)),
        )  # fmt: skip
        with self._saving():
            self._db.execute("INSERT OR REPLACE INTO reply VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)
        if reply.is_open:
            self._saved_s[turn.id, side] = now_s
        else:
            self._saved_s.pop((turn.id, side), None)

    def delete(self, conversation_id: int) -> None:
        """Remove a conversation with all its turns."""
        with self._saving():
            self._db.execute("DELETE FROM conversation WHERE id = ?", (conversation_id,))


def _open(path: Path) -> sqlite3.Connection:
    path.parent.mkdir(parents=True, exist_ok=True)
    db = sqlite3.connect(path, timeout=2)
    try:
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = NORMAL")
        db.execute("PRAGMA foreign_keys = ON")
        if (verdict := db.execute("PRAGMA quick_check(1)").fetchone()[0]) != "ok":
            raise sqlite3.DatabaseError(verdict)
        if not db.execute("PRAGMA user_version").fetchone()[0]:
            db.executescript(f"BEGIN; {_SCHEMA} COMMIT;")
        return db
    except BaseException:
        db.close()
        raise


def _set_aside(path: Path) -> Path:
    """Rename the file and its journal, so that nothing of it is overwritten."""
    aside = path.with_name(f"{path.stem}.damaged-{time.strftime('%Y%m%d-%H%M%S')}{path.suffix}")
    path.replace(aside)
    for end in ("-wal", "-shm"):
        beside = path.with_name(path.name + end)
        if beside.exists():
            beside.replace(aside.with_name(aside.name + end))
    return aside


def _rescue(aside: Path, db: sqlite3.Connection) -> int:
    """Copy every row that can still be read, but no turn without its chat; how many chats that made."""
    source = sqlite3.connect(f"{aside.as_uri()}?immutable=1", uri=True)
    try:
        source.execute("PRAGMA writable_schema = ON")  # otherwise SQLite refuses a file that was cut short
        with db:
            for table in ("conversation", "turn", "reply"):
                for row in _readable(source, table):
                    with suppress(sqlite3.IntegrityError):
                        db.execute(f"INSERT INTO {table} VALUES ({','.join('?' * len(row))})", row)
            db.execute("DELETE FROM conversation WHERE id NOT IN (SELECT conversation FROM turn)")
    except sqlite3.DatabaseError:
        pass  # no database at all: what was copied so far stays
    finally:
        source.close()
    return db.execute("SELECT COUNT(*) FROM conversation").fetchone()[0]


def _readable(source: sqlite3.Connection, table: str) -> Iterator[tuple]:
    """The rows that are whole, looked for from both ends: a walk ends at the first damaged page."""
    ids: set[int] = set()
    for order in ("ASC", "DESC"):
        with suppress(sqlite3.DatabaseError):
            for (row_id,) in source.execute(f"SELECT rowid FROM {table} NOT INDEXED ORDER BY rowid {order}"):
                ids.add(row_id)
    for row_id in sorted(ids):
        with suppress(sqlite3.DatabaseError):
            yield from source.execute(f"SELECT * FROM {table} WHERE rowid = ?", (row_id,)).fetchall()


def _reply(model: str, state: str, text: str, reasoning: str, done: str | None, error: str | None) -> Reply:
    return Reply(
        model=model,
        state=state,
        done=ReplyDone(**json.loads(done)) if done else None,
        error=ReplyFailed(**json.loads(error)) if error else None,
        _text=[text] if text else [],
        _reasoning=[reasoning] if reasoning else [],
    )


def _unusable(path: Path, error: Exception) -> WorkbenchError:
    return WorkbenchError(
        "The chats in {path} cannot be opened: {reason}.",
        "Check the rights and the free space of its folder.",
        path=str(path),
        reason=str(error),
    )
