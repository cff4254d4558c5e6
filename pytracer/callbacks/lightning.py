"""Lightning: `Trainer(callbacks=[LightningCallback()])`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytracer.callbacks import progress

if TYPE_CHECKING:
    from lightning.pytorch import Callback, LightningModule, Trainer
else:
    try:
        from lightning.pytorch import Callback
    except ModuleNotFoundError:
        from pytorch_lightning import Callback


class LightningCallback(Callback):  # type: ignore[misc]
    """Names step, epoch and batch; records the process if `pytracer run` does not.

    Args:
        directory: the run directory, as of `pytracer.enable()`.
    """

    def __init__(self, directory: str | None = None) -> None:
        super().__init__()
        self._directory = directory

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Before anything runs."""
        progress.begin(self._directory)

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """An epoch."""
        progress.begin_epoch(trainer.current_epoch)

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        """A batch."""
        progress.begin_batch(trainer.current_epoch, batch_idx, trainer.global_step)

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """The exception tells where the report is."""
        progress.add_note(exception)
