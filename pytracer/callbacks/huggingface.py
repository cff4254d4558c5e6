"""Hugging Face Trainer: `Trainer(..., callbacks=[HuggingFaceCallback()])`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from transformers import TrainerCallback

from pytracer.callbacks import progress

if TYPE_CHECKING:
    from transformers import TrainerControl, TrainerState, TrainingArguments


class HuggingFaceCallback(TrainerCallback):  # type: ignore[misc]
    """Names step and epoch; records the process if `pytracer run` does not.

    Args:
        directory: the run directory, as of `pytracer.enable()`.
    """

    def __init__(self, directory: str | None = None) -> None:
        self._directory = directory

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Before anything runs."""
        progress.begin(self._directory)

    def on_epoch_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """An epoch; the trainer's own is a fraction."""
        progress.begin_epoch(int(state.epoch or 0))

    def on_step_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """A step, of one batch or more."""
        progress.begin_batch(int(state.epoch or 0), None, state.global_step)
