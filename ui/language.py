"""Text that follows a change of language while the window runs."""

import weakref
from collections.abc import Callable
from typing import Any

import shiboken6
from PySide6.QtCore import QObject, Signal

from workbench import words
from workbench.words import Sentence, say


class _Signals(QObject):
    changed = Signal()


_signals = _Signals()
changed = _signals.changed  # after every bound text was set again

_bound: weakref.WeakKeyDictionary[Any, dict[str, Sentence]] = weakref.WeakKeyDictionary()


def bind(setter: Callable[[str], Any], template: str, **values: Any) -> None:
    """Give `setter` the sentence now and again whenever the language changes.

    `setter` is a bound method such as label.setText; its object is held weakly. Binding it again replaces the
    sentence.
    """
    _bound.setdefault(setter.__self__, {})[setter.__name__] = Sentence(template, values)
    setter(say(template, **values))


def show(setter: Callable[[str], Any], text: Sentence | str) -> None:
    """As `bind` for a sentence made elsewhere; a plain string is shown as it is in every language."""
    if isinstance(text, Sentence):
        bind(setter, text.template, **text.values)
    else:
        release(setter)
        setter(text)


def release(setter: Callable[[str], Any]) -> None:
    """Forget what `bind` promised for this setter."""
    if held := _bound.get(setter.__self__):
        held.pop(setter.__name__, None)


def choose(code: str) -> None:
    """Switch to "en" or "zh_CN"; an empty string follows the system. Nothing but texts changes."""
    words.choose_language(code)
    for target, sentences in list(_bound.items()):
        if isinstance(target, shiboken6.Object) and not shiboken6.isValid(target):
            continue  # the widget is gone on Qt's side, Python still holds its shell
        for name, sentence in sentences.items():
            getattr(target, name)(str(sentence))
    changed.emit()
