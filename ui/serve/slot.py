"""One of the two places for a model on the Serve page: what stands in it, and what a start of it would start."""

from dataclasses import replace

from ui.widgets.profile_form import ProfileForm
from workbench.catalog.capacity import Capacity, Device
from workbench.catalog.model import Model
from workbench.engine import memory_kept
from workbench.engine.fit import fit
from workbench.engine.profile import Profile
from workbench.engine.separation import Separation
from workbench.errors import WorkbenchError


class Slot:
    """`fit` is what the form's profile takes on the device it was weighed for; None where that is not known."""

    def __init__(self, form: ProfileForm):
        self.form = form
        self.model: Model | None = None
        self.fit: Capacity | None = None

    @property
    def is_filled(self) -> bool:
        """Whether there is something to start; engines that others started need no model here."""
        return self.model is not None or self.form.separating.mode == "urls"

    @property
    def separation(self) -> Separation | None:
        """The engines apart that the form describes; None for one engine, or while they make no sense."""
        try:
            chosen = self.form.chosen()
        except WorkbenchError:
            return None  # the command's place says why
        return chosen if isinstance(chosen, Separation) else None

    def chosen(self) -> Profile | Separation | None:
        """What a start would start; raises WorkbenchError for what cannot be."""
        chosen = self.form.chosen()
        if self.model and (problems := self.model.blocking("serve")):
            raise WorkbenchError(problems[0].sentence.template, **problems[0].sentence.values)
        return chosen

    def weigh(self, device: Device | None, interpreter: str) -> None:
        """Estimate anew, by the last start of the same here where there was one."""
        self.fit = None
        if device is None or self.model is None or self.form.separating.mode == "urls":
            return
        try:
            profile = self.form.profile()
        except WorkbenchError:
            return  # the command's place says why
        if profile:
            self.fit = fit(self.model, profile, device, memory_kept.recall(profile, interpreter, device))

    def shorten(self, length: int) -> None:
        """Have the form say this context; raises WorkbenchError for what else makes no sense in it."""
        self.form.show_profile(replace(self.form.profile(), context=length))
