"""What Models shows before there are any: the starter model, how far it is, and two other ways."""

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QProgressBar

from ui import language
from ui.widgets import EmptyState, button, label
from workbench.progress import Progress


class NoModels(EmptyState):
    """Signals say what the user wants: `starter_wanted`, `cancelled`, `folder_wanted` and `library_wanted`."""

    starter_wanted = Signal()
    cancelled = Signal()
    folder_wanted = Signal()
    library_wanted = Signal()

    def __init__(self):
        # Connected below: signals cannot be named before the widget is initialized.
        self.starter = button("Get the starter model", kind="primary", icon="download-2-line")
        folder = button("Open a model folder…", icon="folder-open-line")
        library = button("Add a folder of models…", icon="folder-add-line")
        super().__init__(
            "stack-line",
            "No models yet",
            "The starter model, SmolLM2-135M-Instruct, takes 270 MB and runs on any machine. Models of your own are"
            " folders with config.json and safetensors files.",
            self.starter,
            folder,
            library,
        )
        self.starter.clicked.connect(self.starter_wanted)
        folder.clicked.connect(self.folder_wanted)
        library.clicked.connect(self.library_wanted)
        self.stage = label(role="muted")
        self.bar = QProgressBar(textVisible=False)
        self.bar.setFixedWidth(420)
        language.bind(self.bar.setAccessibleName, "Progress of the starter model")
        self.cancel = button("Cancel", self.cancelled.emit, kind="quiet")
        for widget in (self.bar, self.stage, self.cancel):
            self.below.addWidget(widget, 0, Qt.AlignmentFlag.AlignHCenter)
        self.show_progress(None)

    def show_progress(self, progress: Progress | None) -> None:
        """Show how far the starter model is; None while it is not being fetched."""
        for each in (self.bar, self.stage, self.cancel):
            each.setVisible(progress is not None)
        self.starter.setEnabled(progress is None)
        if progress is None:
            return
        self.bar.setMaximum(1000 if progress.share is not None else 0)
        if progress.share is not None:
            self.bar.setValue(round(progress.share * 1000))
        language.bind(self.stage.setText, progress.stage or "Starting")
