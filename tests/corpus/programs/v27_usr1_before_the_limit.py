# Lightning-AI/pytorch-lightning#14610, cgat-developers/cgat-flow#39: the signal of a scheduler, without a handler
import os
import subprocess
import threading

import torch

model = torch.nn.Linear(8, 8)


def warn(pid):
    subprocess.run(["sh", "-c", f"sleep 2; kill -USR1 {pid}"])


def train():
    while True:
        model(torch.randn(4, 8)).sum().backward()


threading.Thread(target=warn, args=(os.getpid(),), daemon=True).start()
train()
