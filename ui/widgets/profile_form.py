"""One side's profile in six folds: Model, Memory, Engine, Several devices, Speculation, Prefill and decode."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QComboBox, QLineEdit, QSpinBox, QVBoxLayout, QWidget

from ui import language
from ui.serve.drafting import Drafting
from ui.serve.engine_options import EngineOptions
from ui.serve.parallel_options import ParallelOptions
from ui.serve.separating import Separating
from ui.widgets.fold import Fold
from ui.widgets.form_grid import FormGrid
from ui.widgets.model_picker import ModelPicker
from ui.widgets.optional_number import MARGINS, OptionalAmount, OptionalNumber
from workbench import figures
from workbench.engine.profile import DTYPES, Profile
from workbench.engine.separation import Separation
from workbench.errors import WorkbenchError
from workbench.words import Sentence


class ProfileForm(QWidget):
    """`changed` after every choice of the user; `model_picked(Path | None)` when it is another model.

    `profile()` is what stands in the form, None without a model, `chosen()` the engines apart where they are; both
    raise WorkbenchError for what makes no sense.
    """

    changed = Signal()
    model_picked = Signal(object)

    def __init__(self):
        super().__init__()
        self._build_model()
        self._build_memory()
        self._build_engine()
        self._build_speculation()
        self._build_separating()
        whole = QVBoxLayout(self)
        whole.setContentsMargins(0, 0, 0, 0)
        whole.setSpacing(4)
        for fold in (
            self.model_fold, self.memory_fold, self.engine_fold, self.parallel_fold, self.speculation_fold,
            self.separating_fold,
        ):  # fmt: skip
            whole.addWidget(fold)
        self._summarize()

    @property
    def folder(self) -> Path | None:
        return self.model.folder

    def profile(self) -> Profile | None:
        if self.model.folder is None:
            return None
        try:
            extra = tuple(shlex.split(self.extra.text()))
        except ValueError as error:
            raise WorkbenchError(
                "The further arguments cannot be read: {reason}", "Close every quotation mark.", reason=str(error)
            ) from error
        return Profile(
            model=self.model.folder,
            name=self.name.text().strip(),
            dtype=self.dtype.currentData(),
            context=self.context.number,
            memory_share=(self.share.value() / 100) or None,
            kv_gib=self.kv.number,
            max_sequences=self.sequences.number,
            block_size=self.block.number,
            speculation=self.drafting.choice(),
            port=self.port.number or 0,
            extra=extra,
            **self.options.fields(),
            **self.parallel.fields(),
        )

    def chosen(self) -> Profile | Separation | None:
        """What a start would start; None without a model, unless the engines run elsewhere."""
        profile = self.profile()
        return self.separating.separation(profile) or profile

    def show_chosen(self, chosen: Profile | Separation) -> None:
        """Fill the form with what `chosen` gives; `changed` comes once."""
        if not isinstance(chosen, Separation):
            self.separating.show_separation(None)
            self.show_profile(chosen)
            return
        self.separating.show_separation(chosen)
        if profile := chosen.profile:  # each engine's own share stands beside it
            self.show_profile(replace(profile, port=chosen.port, memory_share=None))
        else:
            self._on_changed()

    def show_profile(self, profile: Profile) -> None:
        """Fill the form; `changed` comes once."""
        self.blockSignals(True)
        self.model.show_folder(profile.model)
        self.name.setText(profile.name)
        self.dtype.setCurrentIndex(self.dtype.findData(profile.dtype))
        self.context.show_number(profile.context)
        self.share.setValue(round((profile.memory_share or 0) * 100))
        self.kv.show_number(profile.kv_gib)
        self.sequences.show_number(profile.max_sequences)
        self.block.show_number(profile.block_size)
        self.port.show_number(profile.port)
        self.extra.setText(shlex.join(profile.extra))
        self.options.show_profile(profile)
        self.parallel.show_profile(profile)
        self.drafting.show_choice(profile.speculation)
        self.blockSignals(False)
        self._summarize()
        self.changed.emit()

    def show_folder(self, folder: Path | None) -> None:
        """Show another model; the served name goes back to the folder's."""
        self.model.show_folder(folder)
        self.name.clear()
        self.name.setPlaceholderText("" if folder is None else folder.name)
        self._summarize()

    def show_library(self, folders: Sequence[Path]) -> None:
        self.model.show_library(folders)

    def show_device(self, kind: str) -> None:
        """Without a GPU there is no share of one to choose."""
        self._memory.show_row(self.share, kind == "gpu")
        self.separating.show_device(kind)

    def show_missing(self, missing: Mapping[str, Sentence]) -> None:
        """Switch off the choices that the engine cannot take, each with its reason."""
        self.options.show_missing(missing)
        self.parallel.show_missing(missing)
        for name, field in (
            ("context", self.context), ("kv_gib", self.kv),
            ("max_sequences", self.sequences), ("block_size", self.block),
        ):  # fmt: skip
            field.setEnabled(name not in missing or field.number is not None)
            field.setToolTip(str(missing.get(name, "")))

    # -- parts

    def _build_model(self) -> None:
        self.model_fold, form = self._fold("Model")
        self.model = ModelPicker("Model", "none")
        self.model.picked.connect(self._on_model)
        self.name = self._line()
        self.dtype = QComboBox()
        for value in DTYPES:
            self.dtype.addItem(value, value)
        self.dtype.activated.connect(self._on_changed)
        self.port = OptionalNumber(65535)
        self.port.setGroupSeparatorShown(False)
        self.extra = self._line()
        self.extra.setPlaceholderText("--flag value")
        self._row(form, "Folder", self.model)
        self._row(form, "Served name", self.name)
        self._row(form, "Computing type", self.dtype)
        self._row(form, "Port", self.port)
        self._row(form, "Further arguments", self.extra)

    def _build_memory(self) -> None:
        self.memory_fold, self._memory = self._fold("Memory", opened=False)
        form = self._memory
        self.context = OptionalNumber(10_000_000, 1024, "the model's own")
        self.kv = OptionalAmount(4096, 0.5)
        self.share = QSpinBox()
        self.share.setRange(0, 100)
        self.share.setSuffix(" %")
        self.share.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.share.lineEdit().setTextMargins(*MARGINS)
        language.bind(self.share.setSpecialValueText, "automatic")
        self.sequences = OptionalNumber(4096)
        self.block = OptionalNumber(1024, 16)
        self._row(form, "Context length", self.context)
        self._row(form, "KV cache (GiB)", self.kv)
        self._row(form, "Share of the GPU memory", self.share)
        self._row(form, "Sequences at once", self.sequences)
        self._row(form, "Tokens a block", self.block)

    def _build_engine(self) -> None:
        self.engine_fold = Fold("Engine", opened=False)
        self.options = EngineOptions()
        self.options.changed.connect(self._on_changed)
        self.engine_fold.body.addWidget(self.options)
        self.parallel_fold = Fold("Several devices", opened=False)
        self.parallel = ParallelOptions()
        self.parallel.changed.connect(self._on_changed)
        self.parallel_fold.body.addWidget(self.parallel)

    def _build_speculation(self) -> None:
        self.speculation_fold = Fold("Speculation")
        self.drafting = Drafting()
        self.drafting.changed.connect(self._on_changed)
        self.speculation_fold.body.addWidget(self.drafting)

    def _build_separating(self) -> None:
        self.separating_fold = Fold("Prefill and decode", opened=False)
        self.separating = Separating()
        self.separating.changed.connect(self._on_changed)
        self.separating_fold.body.addWidget(self.separating)

    def _fold(self, title: str, opened: bool = True) -> tuple[Fold, FormGrid]:
        fold, form = Fold(title, opened=opened), FormGrid()
        fold.body.addLayout(form)
        return fold, form

    def _row(self, form: FormGrid, template: str, field: QWidget) -> None:
        form.add(template, field)
        if isinstance(field, QSpinBox | OptionalAmount):
            field.valueChanged.connect(self._on_changed)

    def _line(self) -> QLineEdit:
        line = QLineEdit()
        line.textEdited.connect(self._on_changed)
        return line

    # -- inside

    def _on_model(self, folder: Path | None) -> None:
        self.show_folder(folder)
        self.model_picked.emit(folder)
        self.changed.emit()

    def _on_changed(self, *_value: Any) -> None:
        self._summarize()
        self.changed.emit()

    def _summarize(self) -> None:
        self.model_fold.summarize("" if self.folder is None else self.folder.name)
        context = self.context.number
        self.memory_fold.summarize(
            Sentence("context {context}", {"context": figures.tokens(context)}) if context else Sentence("automatic")
        )
        self.engine_fold.summarize(self.options.summary)
        self.parallel_fold.summarize(self.parallel.summary)
        self.speculation_fold.summarize(self.drafting.summary)
        self.separating_fold.summarize(self.separating.summary)
