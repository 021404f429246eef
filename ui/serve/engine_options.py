"""The Engine part of a profile: how it computes, schedules and caches, and what it loads beside the model."""

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QComboBox, QLineEdit, QVBoxLayout, QWidget

from ui import language
from ui.widgets.form_grid import FormGrid
from ui.widgets.optional_number import OptionalNumber
from workbench.engine.lora import read_adapter
from workbench.engine.profile import KV_DTYPES, RUNNING, SCHEDULING, Profile
from workbench.errors import WorkbenchError
from workbench.words import Sentence

ON_OFF = {None: Sentence("automatic"), True: Sentence("on"), False: Sentence("off")}
ORDERS = {"fcfs": Sentence("first come, first served"), "priority": Sentence("by priority")}
WAYS = {
    "auto": Sentence("automatic"), "eager": Sentence("eager: starts fastest"),
    "graphs": Sentence("CUDA graphs, not compiled"), "compile": Sentence("compiled: starts slowly"),
}  # fmt: skip


class EngineOptions(QWidget):
    """`changed` after every choice of the user. `fields()` are the profile's; they raise WorkbenchError as it does."""

    changed = Signal()

    def __init__(self) -> None:
        super().__init__()
        self._missing: Mapping[str, Sentence] = {}
        self._words: dict[QComboBox, tuple[Sentence | str, ...]] = {}
        self.kv_dtype = self._combo({value: value for value in KV_DTYPES})
        self.batched = OptionalNumber(1_000_000, 256)
        self.batched.valueChanged.connect(self._on_changed)
        self.long_prefill = OptionalNumber(1_000_000, 256)
        self.long_prefill.valueChanged.connect(self._on_changed)
        self.prefix = self._combo(ON_OFF)
        self.scheduling = self._combo({value: ORDERS[value] for value in SCHEDULING})
        self.running = self._combo({value: WAYS[value] for value in RUNNING})
        self.attention, self.template, self.adapters = self._line(), self._line(), self._line()
        language.bind(self.attention.setPlaceholderText, "automatic")
        language.bind(self.template.setPlaceholderText, "the model's own")
        self.adapters.setPlaceholderText("name=folder")
        self.tool_parser = self._line()
        language.bind(self.tool_parser.setPlaceholderText, "the model calls no tools")
        rows = FormGrid()
        rows.add("KV cache type", self.kv_dtype)
        rows.add("Tokens a step", self.batched)
        rows.add("Tokens a step of one prompt", self.long_prefill)
        rows.add("Prefix cache", self.prefix)
        rows.add("Scheduling", self.scheduling)
        rows.add("Running", self.running)
        rows.add("Attention backend", self.attention)
        rows.add("Chat template", self.template)
        rows.add("LoRA adapters", self.adapters)
        rows.add("Tool call parser", self.tool_parser)
        self._parts: dict[str, QWidget] = {
            "kv_dtype": self.kv_dtype, "batched_tokens": self.batched, "long_prefill": self.long_prefill,
            "prefix_cache": self.prefix, "scheduling": self.scheduling, "attention": self.attention,
            "chat_template": self.template, "adapters": self.adapters, "tool_parser": self.tool_parser,
        }  # fmt: skip
        whole = QVBoxLayout(self)
        whole.setContentsMargins(0, 0, 0, 0)
        whole.addLayout(rows)
        language.changed.connect(self._speak)
        self._speak()

    def fields(self) -> dict[str, Any]:
        """What stands in the form, by the names of the profile's fields."""
        try:
            listed = shlex.split(self.adapters.text())
        except ValueError as error:
            raise WorkbenchError(
                "The LoRA adapters cannot be read: {reason}", "Close every quotation mark.", reason=str(error)
            ) from error
        template = self.template.text().strip()
        return {
            "kv_dtype": self.kv_dtype.currentData(),
            "batched_tokens": self.batched.number,
            "long_prefill": self.long_prefill.number,
            "prefix_cache": self.prefix.currentData(),
            "scheduling": self.scheduling.currentData(),
            "running": self.running.currentData(),
            "attention": self.attention.text().strip(),
            "chat_template": Path(template).expanduser() if template else None,
            "adapters": tuple(read_adapter(text) for text in listed),
            "tool_parser": self.tool_parser.text().strip(),
        }

    def show_profile(self, profile: Profile) -> None:
        """Fill the form without a word."""
        self.blockSignals(True)
        for box, value in (
            (self.kv_dtype, profile.kv_dtype), (self.prefix, profile.prefix_cache),
            (self.scheduling, profile.scheduling), (self.running, profile.running),
        ):  # fmt: skip
            box.setCurrentIndex(next(index for index in range(box.count()) if box.itemData(index) == value))
        self.batched.show_number(profile.batched_tokens)
        self.long_prefill.show_number(profile.long_prefill)
        self.attention.setText(profile.attention)
        self.template.setText(str(profile.chat_template or ""))
        self.adapters.setText(shlex.join(f"{each.name}={each.folder}" for each in profile.adapters))
        self.tool_parser.setText(profile.tool_parser)
        self.blockSignals(False)
        self._adapt()

    def show_missing(self, missing: Mapping[str, Sentence]) -> None:
        """Switch off what this engine cannot take, each with its reason; what is set stays, to be taken back."""
        self._missing = missing
        self._adapt()

    @property
    def summary(self) -> Sentence:
        """How many choices were made here."""
        count = sum(self._is_set(part) for part in (*self._parts.values(), self.running))
        return Sentence("{count} set", {"count": count}) if count else Sentence("automatic")

    def _is_set(self, part: QWidget) -> bool:
        if isinstance(part, QComboBox):
            return part.currentIndex() > 0
        return bool(part.text().strip()) if isinstance(part, QLineEdit) else part.number is not None

    def _adapt(self) -> None:
        for name, part in self._parts.items():
            reason = self._missing.get(name)
            part.setEnabled(reason is None or self._is_set(part))
            part.setToolTip(str(reason) if reason else "")

    def _combo(self, values: Mapping[Any, Sentence | str]) -> QComboBox:
        box = QComboBox()
        for value in values:
            box.addItem("", value)
        self._words[box] = tuple(values.values())
        box.activated.connect(self._on_changed)
        return box

    def _line(self) -> QLineEdit:
        line = QLineEdit()
        line.textEdited.connect(self._on_changed)
        return line

    def _on_changed(self, *_value: Any) -> None:
        self.changed.emit()

    def _speak(self) -> None:
        for box, all_words in self._words.items():
            for index, words in enumerate(all_words):
                box.setItemText(index, str(words))
        self._adapt()
