"""Models on a device: weights and programs loaded once, shared by sessions, restored after a reset."""

from __future__ import annotations

import numpy as np

from wordline.artifact import Artifact
from wordline.errors import WordlineError
from wordline.runtime.device import Device, Executable
from wordline.runtime.memory import PagePool


class ResidentModel:
    """An artifact's weights, programs and free KV pages on one device. Made by :class:`Residency` only."""

    def __init__(self, device: Device, artifact: Artifact, functional: bool) -> None:
        self.device = device
        self.artifact = artifact
        self.functional = functional
        self.users = 0
        self.executables: dict[str, Executable] = {}
        kv = artifact.manifest.memory.kv
        self._page_arguments = (artifact.machine.organisation.channels, kv.first_row, device.rows, kv.rows_per_page)
        self.load()

    def load(self) -> None:
        """Put weights and programs on the device; all KV pages are free."""
        if self.functional:
            self._load_weights()
        self.executables = {
            name: self.device.load(self.artifact.image(name)) for name in self.artifact.manifest.entries
        }
        self.pages = PagePool(*self._page_arguments)

    def unload(self) -> None:
        """Remove the programs; the rows may then be overwritten."""
        for executable in self.executables.values():
            self.device.unload(executable)
        self.executables.clear()

    def _load_weights(self) -> None:
        weights, rows = self.artifact.weights, self.artifact.manifest.memory.weight_rows
        if weights is None:
            raise WordlineError(
                "weights-unbound",
                "the artifact was compiled from a config alone and holds no weights: it can be timed, not run",
                where=str(self.artifact.path),
                remedy=f"run it on null:{self.device.machine.name}, or compile a model with weights",
            )
        if rows == 0:
            return
        buffer = self.device.map(np.frombuffer(weights, np.uint8))
        try:
            self.device.queue.write_rows(buffer.address, 0, rows).wait()
        finally:
            self.device.unmap(buffer)


class Residency:
    """The models on one device, by the digest of their artifact."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._models: dict[tuple[str, bool], ResidentModel] = {}
        device.on_reset(self._restore)

    def acquire(self, artifact: Artifact, functional: bool = True) -> ResidentModel:
        """The artifact on the device, loaded if it is not there yet; pair with :meth:`release`.

        Args:
            artifact: compiled for the device's machine.
            functional: load the weights too; otherwise the model can only be timed.

        Raises:
            WordlineError: "machine-mismatch", "weights-unbound", "device-occupied" (another model is in use; programs
                address rows absolutely), or what the device reports.
        """
        if artifact.machine.hash != self._device.machine.hash:
            raise WordlineError(
                "machine-mismatch",
                f"the artifact was compiled for machine {artifact.machine.name!r}, the device is "
                f"{self._device.machine.name!r}",
                where=str(artifact.path),
                remedy="compile it for the device's machine",
            )
        functional = functional and self._device.functional
        key = (artifact.digest, functional)
        if key not in self._models:
            for other, model in list(self._models.items()):
                if model.users:
                    raise WordlineError(
                        "device-occupied",
                        f"the device holds {model.artifact.manifest.model.name!r}, which {model.users} sessions use",
                        where=str(self._device),
                        remedy="close those sessions, or open another device",
                    )
                model.unload()
                del self._models[other]
            self._models[key] = ResidentModel(self._device, artifact, functional)
        model = self._models[key]
        model.users += 1
        return model

    def release(self, model: ResidentModel) -> None:
        """One user less. The model stays until its place is needed."""
        model.users -= 1

    def _restore(self) -> None:
        for model in self._models.values():
            model.load()
