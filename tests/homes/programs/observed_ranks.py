"""Lightning's ddp while rank 0 does not communicate: its launcher notices the death of rank 1, and ends rank 0."""

import ctypes
import os
import time

import lightning
import torch
import torch.utils.data


class Linear(lightning.LightningModule):
    """Rank 1 dies before the first step; rank 0 is busy with something else."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def training_step(self, batch, index):
        return self.layer(batch).sum()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)

    def on_train_start(self) -> None:
        if self.global_rank == 1:
            ctypes.string_at(0)  # dies
        time.sleep(120)


if __name__ == "__main__":
    lightning.Trainer(
        accelerator="cpu", devices=2, strategy="ddp", max_epochs=1, logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, default_root_dir=os.environ["HOMES_WORK"],
    ).fit(Linear(), torch.utils.data.DataLoader(torch.ones(8, 4)))  # fmt: skip
