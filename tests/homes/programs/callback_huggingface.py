"""Trains with Hugging Face's Trainer and the callback; batch 6 of 8 dies as its argument says."""

import ctypes
import sys

import torch
from transformers import Trainer, TrainingArguments

from pytracer.callbacks import HuggingFaceCallback

calls = 0


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def forward(self, x, labels=None):
        global calls
        calls += 1
        if calls == 6 and sys.argv[1] == "fault":
            ctypes.string_at(0)
        return {"loss": self.layer(x).sum()}


torch.manual_seed(0)
data = [{"x": torch.randn(4), "labels": torch.zeros(1)} for _ in range(16)]
arguments = TrainingArguments(
    "out",
    num_train_epochs=2,
    per_device_train_batch_size=4,
    use_cpu=True,
    report_to=[],
    save_strategy="no",
    disable_tqdm=True,
)
callbacks = [HuggingFaceCallback("run")] if sys.argv[2] == "callback" else []
net = Net()
Trainer(net, arguments, train_dataset=data, callbacks=callbacks).train()
print("weights", net.layer.weight.sum().item())
