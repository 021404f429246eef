"""Python's cycles are broken up on the Qt thread alone.

Left to itself the collector runs in whichever thread allocates, and a worker thread that happens to end a timer or a
widget brings the application down ("Timers cannot be stopped from another thread").
"""

import gc

from PySide6.QtCore import QObject, QTimer

LOOK_MS = 500


class Garbage(QObject):
    """Does what the automatic collector would, by its own thresholds, between two events of the loop."""

    def __init__(self, parent: QObject):
        super().__init__(parent)
        gc.disable()
        timer = QTimer(self, interval=LOOK_MS)
        timer.timeout.connect(self.look)
        timer.start()

    def look(self) -> None:
        """Collect the oldest generation that is due."""
        counts, limits = gc.get_count(), gc.get_threshold()
        due = [generation for generation in range(3) if counts[generation] > limits[generation]]
        if due:
            gc.collect(due[-1])
