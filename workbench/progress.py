"""How far a job is that has nothing to show but its steps."""

from dataclasses import dataclass, field

from workbench.events import Advanced, Event, Failed, Finished, Note, Stage


@dataclass(slots=True)
class Progress:
    """The fold of a job's common events; `stage` is a template, `total` 0 where the steps are not known."""

    stage: str = ""
    done: int = 0
    total: int = 0
    notes: list[Note] = field(default_factory=list)
    path: str = ""
    error: Failed | None = None

    @property
    def share(self) -> float | None:
        """The part of the stage that is done, 0 to 1."""
        return min(1.0, self.done / self.total) if self.total else None

    def apply(self, event: Event) -> None:
        match event:
            case Stage(name, total):
                self.stage, self.total, self.done = name, total, 0
            case Advanced(done):
                self.done = done
            case Note():
                self.notes.append(event)
            case Finished(path):
                self.path = path
            case Failed():
                self.error = event
