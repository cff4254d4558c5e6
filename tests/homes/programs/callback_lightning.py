"""Trains with Lightning and its callback; in epoch 1 the batch 2 dies as its argument says."""

import ctypes
import sys

import lightning
import torch

from pytracer.callbacks import LightningCallback


class Net(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def training_step(self, batch, number):
        if self.current_epoch == 1 and number == 2:
            if sys.argv[1] == "fault":
                ctypes.string_at(0)
            if sys.argv[1] == "exception":
                raise ValueError("a bad batch")
        return self.layer(batch).sum()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.01)


callbacks = [LightningCallback("run")] if sys.argv[2] == "callback" else []
trainer = lightning.Trainer(
    max_epochs=2,
    accelerator="cpu",
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
    callbacks=callbacks,
)
torch.manual_seed(0)
net = Net()
trainer.fit(net, torch.utils.data.DataLoader(torch.randn(16, 4), batch_size=4))
print("weights", net.layer.weight.sum().item())
