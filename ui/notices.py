"""The one place that tells the user: errors and short information, shown as banners, never as modal dialogs."""

import logging
import traceback
from dataclasses import dataclass

from PySide6.QtCore import QObject, Signal

from workbench.errors import WorkbenchError
from workbench.words import Sentence

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Notice:
    """What is told: `level` is info or error; `details` is a traceback for the unexpected, else empty."""

    level: str
    sentence: Sentence
    hint: Sentence | None = None
    details: str = ""


class Notices(QObject):
    """Logs everything it tells and hands it to whoever shows it."""

    added = Signal(object)  # a Notice

    def __init__(self, parent: QObject | None = None):
        super().__init__(parent)
        self.told: list[Notice] = []

    def tell(self, error: BaseException) -> None:
        """Tell of an error: an expected one in its own words, any other with its traceback as details."""
        if isinstance(error, WorkbenchError):
            log.warning("%s %s", error, error.hint)
            hint = Sentence(error.hint_template, error.values) if error.hint_template else None
            self._add(Notice("error", Sentence(error.message, error.values), hint))
            return
        details = "".join(traceback.format_exception(error))
        log.error("%s", details)
        reason = f"{type(error).__name__}: {error}"
        self._add(
            Notice(
                "error",
                Sentence("Something went wrong inside Lathe: {reason}", {"reason": reason}),
                Sentence("Your files are untouched. The details help us to mend it."),
                details,
            )
        )

    def info(self, sentence: Sentence, hint: Sentence | None = None) -> None:
        """Tell of something that went well or that the user should know."""
        log.info("%s", sentence)
        self._add(Notice("info", sentence, hint))

    def _add(self, notice: Notice) -> None:
        self.told.append(notice)
        self.added.emit(notice)
