"""vLLM's scheduler with a tap: the class that its config chooses, reporting after each of its steps."""

import os
import sys
import tempfile

from workbench.engine import plugin_words
from workbench.engine.plugin_tap import Tap


def install(config: type, path: str) -> None:
    """Have the scheduler that vLLM's `config` chooses report at `path`, relative to the folder for temporary files."""
    choose = config.get_scheduler_cls
    if getattr(choose, "tapped", False):  # plugins are loaded more than once
        return
    where = os.path.join(tempfile.gettempdir(), path)

    def get_scheduler_cls(self):
        return tapped(choose(self), where)

    get_scheduler_cls.tapped = True
    config.get_scheduler_cls = get_scheduler_cls


def tapped(scheduler: type, path: str) -> type:
    """The scheduler's class, reporting at `path` after each of its steps. A failure there ends the tap alone."""

    class Tapped(scheduler):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            self._tap = None
            try:
                self._tap = Tap(self, path)
                self._tap.begin()
            except Exception as error:
                self._tap = _ended(self._tap, error)

        def schedule(self, *args, **kwargs):
            planned = super().schedule(*args, **kwargs)
            if self._tap:
                try:
                    self._tap.plan(planned)
                except Exception as error:
                    self._tap = _ended(self._tap, error)
            return planned

        def update_from_output(self, scheduler_output, *args, **kwargs):
            outputs = super().update_from_output(scheduler_output, *args, **kwargs)
            if self._tap:
                try:
                    self._tap.step(scheduler_output, outputs)
                except Exception as error:
                    self._tap = _ended(self._tap, error)
            return outputs

    Tapped.__name__, Tapped.__qualname__ = scheduler.__name__, scheduler.__qualname__
    return Tapped


def _ended(tap: Tap | None, error: Exception) -> None:
    if tap:
        tap.close()
    reason = f"{type(error).__name__}: {error}".replace("\n", " ")
    print(plugin_words.UNTAPPED.format(reason=reason), file=sys.stderr, flush=True)
