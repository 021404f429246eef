"""The colours, sizes and type of the window: one place for the style sheet and for the plots."""

from dataclasses import asdict, dataclass
from string import Template

from PySide6.QtCore import QObject, Qt, Signal
from PySide6.QtGui import QColor, QFont, QFontDatabase, QPalette
from PySide6.QtWidgets import QApplication

from workbench.paths import RESOURCES


@dataclass(frozen=True)
class Tokens:
    """One scheme's colours as #RRGGBB. The original is blue and the quantized amber wherever they appear."""

    scheme: str
    ground: str
    surface: str
    raised: str
    line: str
    text: str
    muted: str
    original: str
    quantized: str
    accepted: str
    rejected: str
    kv: str
    prefill: str
    decode: str
    accent: str

    def soft(self, name: str, share: float = 0.16) -> str:
        """The colour `name` laid over the surface at `share` of its strength: for fills behind text."""
        over, under = QColor(getattr(self, name)), QColor(self.surface)
        mixed = (round(a * share + b * (1 - share)) for a, b in zip(over.getRgb()[:3], under.getRgb()[:3], strict=True))
        return QColor(*mixed).name()

    @property
    def picked(self) -> str:
        """Under a chosen row and a pressed button."""
        return self.soft("text", 0.12)

    @property
    def hover(self) -> str:
        return self.soft("text", 0.06)


DARK = Tokens(
    "dark", "#14161A", "#1B1E24", "#22262E", "#2E333D", "#E6E8EC", "#9AA3B2", "#6292F0", "#F2A33A", "#3FB68B",
    "#E36E89", "#A082E9", "#4FB3D9", "#C9D36B", "#E6E8EC",
)  # fmt: skip
LIGHT = Tokens(
    "light", "#F5F6F8", "#FFFFFF", "#FFFFFF", "#DDE1E7", "#1B1F27", "#5B6473", "#2F63D6", "#9B5D00", "#1B7957",
    "#BF3A5B", "#6B49C9", "#1B7498", "#69710D", "#1B1F27",
)  # fmt: skip

CHINESE_FACES = ("Noto Sans CJK SC", "Source Han Sans SC", "PingFang SC", "Microsoft YaHei")
MONO_FACES = ("JetBrains Mono", "DejaVu Sans Mono", "Menlo", "Consolas", "Noto Sans Mono CJK SC")


class _Signals(QObject):
    changed = Signal()


_signals = _Signals()
changed = _signals.changed  # after the scheme changed; the style sheet is already in place

_wanted = "system"
_scheme = "dark"
_mono = "monospace"


def tokens(scheme: str = "") -> Tokens:
    """The colours of `scheme`, by default of the one in use."""
    return LIGHT if (scheme or _scheme) == "light" else DARK


def apply(app: QApplication, scheme: str = "system") -> None:
    """Dress the application in "dark", "light", or what the system has now and whenever it changes."""
    global _wanted, _mono
    assert scheme in ("dark", "light", "system"), scheme
    if not app.property("dressed"):
        app.setProperty("dressed", True)
        app.setStyle("Fusion")
        app.setFont(_face(app.font()))
        _mono = _first(MONO_FACES, "monospace")
        app.styleHints().colorSchemeChanged.connect(_follow)
    _wanted = scheme
    _wear(app, app.styleHints().colorScheme())


def mono() -> QFont:
    """The fixed-width face for commands, logs and code."""
    font = QFont(_mono)
    font.setFamilies([_mono, *_present(CHINESE_FACES)])
    font.setPixelSize(12)
    return font


def _follow(system: Qt.ColorScheme) -> None:
    if _wanted == "system" and isinstance(app := QApplication.instance(), QApplication):
        _wear(app, system)


def _wear(app: QApplication, system: Qt.ColorScheme) -> None:
    global _scheme
    # Unknown (no desktop to ask) gets the dark scheme.
    followed = "light" if system == Qt.ColorScheme.Light else "dark"
    _scheme = followed if _wanted == "system" else _wanted
    worn = tokens()
    app.setPalette(_palette(worn))
    app.setStyleSheet(_style_sheet(worn))
    changed.emit()


def _style_sheet(worn: Tokens) -> str:
    soft = {f"{name}_soft": worn.soft(name) for name in ("original", "quantized", "accepted", "rejected")}
    template = Template((RESOURCES / "style.qss").read_text(encoding="utf-8"))
    icons = (RESOURCES / "icons").as_posix()
    return template.substitute(asdict(worn), **soft, hover=worn.hover, picked=worn.picked, mono=_mono, icons=icons)


def _palette(worn: Tokens) -> QPalette:
    """For what the style sheet does not reach: dialogs of the system, selections, disabled text."""
    palette = QPalette(QColor(worn.surface), QColor(worn.ground))
    roles = {
        QPalette.ColorRole.WindowText: worn.text,
        QPalette.ColorRole.Base: worn.surface,
        QPalette.ColorRole.AlternateBase: worn.ground,
        QPalette.ColorRole.Text: worn.text,
        QPalette.ColorRole.ButtonText: worn.text,
        QPalette.ColorRole.ToolTipBase: worn.raised,
        QPalette.ColorRole.ToolTipText: worn.text,
        QPalette.ColorRole.PlaceholderText: worn.muted,
        QPalette.ColorRole.Highlight: worn.soft("text", 0.2),
        QPalette.ColorRole.HighlightedText: worn.text,
        QPalette.ColorRole.Link: worn.text,
    }
    for role, colour in roles.items():
        palette.setColor(role, QColor(colour))
    for role in (QPalette.ColorRole.WindowText, QPalette.ColorRole.Text, QPalette.ColorRole.ButtonText):
        palette.setColor(QPalette.ColorGroup.Disabled, role, QColor(worn.muted))
    return palette


def _face(system: QFont) -> QFont:
    """The system's face with a Chinese one behind it; digits of equal width, so that figures do not jump."""
    face = QFont(system)
    face.setFamilies([system.family(), *_present(CHINESE_FACES)])
    face.setPixelSize(13)
    face.setFeature(QFont.Tag("tnum"), 1)
    return face


def _present(faces: tuple[str, ...]) -> list[str]:
    known = set(QFontDatabase.families())
    return [face for face in faces if face in known]


def _first(faces: tuple[str, ...], otherwise: str) -> str:
    return next(iter(_present(faces)), otherwise)
