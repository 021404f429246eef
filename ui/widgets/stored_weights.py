"""How a quantized checkpoint stores its weights, whoever made it, and whether the installed engine serves it."""

from PySide6.QtWidgets import QVBoxLayout, QWidget

from ui import language
from ui.widgets.label import label, restyle
from workbench.catalog.model import Model
from workbench.catalog.quantized import Quantized
from workbench.catalog.schemes import FLOAT
from workbench.engine import formats
from workbench.engine.facts import EngineFacts
from workbench.words import Sentence


class StoredWeights(QWidget):
    """Hidden for plain weights. Without `facts` nothing is said of an engine."""

    def __init__(self):
        super().__init__()
        self.description = label(role="muted", wrap=True)
        self.verdict = label(wrap=True)
        self.hint = label(role="muted", wrap=True)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(4)
        for line in (self.description, self.verdict, self.hint):
            column.addWidget(line)
        self.hide()

    def show_weights(self, stored: Quantized | None, facts: EngineFacts | None) -> None:
        self.setVisible(stored is not None)
        if stored is None:
            return
        language.show(self.description.setText, stored.description)
        refused = formats.refusal(stored, facts) if facts else None
        for line in (self.verdict, self.hint):
            line.setVisible(facts is not None)
        if refused:
            language.show(self.verdict.setText, Sentence("✕ {reason}", {"reason": refused.sentence}))
            language.show(self.hint.setText, refused.hint)
        elif facts:
            language.bind(self.verdict.setText, "✓ vLLM {version} can serve it.", version=facts.version)
            self.hint.hide()
        restyle(self.verdict, "tone", "rejected" if refused else "accepted")


def precision_of(model: Model | None) -> str:
    """INT4, FP8, the method of a checkpoint that says no width, or the format of plain weights."""
    if model is None:
        return ""
    if (stored := model.quantization) is None:
        return model.dtype
    if not stored.bits:
        return stored.method
    number = "FP" if any(scheme.number == FLOAT for scheme in stored.schemes) else "INT"
    return f"{number}{stored.bits}"
