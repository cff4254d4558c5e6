import datetime
import os
import tempfile
import torch
import torch.distributed as dist
import torch.nn as nn

DIM, ROWS, MICRO = 64, 16, 4


def write_example(folder):
    """What a run of yesterday has left: it was stopped while the stages were saving."""
    for rank, step in ((0, 4), (1, 5)):
        torch.save({"step": step}, os.path.join(folder, f"stage{rank}.pt"))


class Stage:
    def __init__(self, rank, layer, folder):
        self.layer = layer
        path = os.path.join(folder, f"stage{rank}.pt")
        self.step = torch.load(path)["step"] if os.path.exists(path) else 0
        self.opt = torch.optim.SGD(layer.parameters(), lr=0.01)
        self.kept = {}

    def tag(self, step, micro):
        return step * MICRO + micro


class First(Stage):
    def forward(self, step, micro, x):
        h = self.layer(x)
        self.kept[micro] = h
        dist.send(h.detach(), dst=1, tag=self.tag(step, micro))

    def backward(self, step, micro):
        grad = torch.empty(ROWS, DIM)
        dist.recv(grad, src=1, tag=self.tag(step, micro))
        self.kept.pop(micro).backward(grad)


class Last(Stage):
    def run(self, step, micro):
        h = torch.empty(ROWS, DIM)
        dist.recv(h, src=0, tag=self.tag(step, micro))
        h.requires_grad_()
        loss = self.layer(h).square().mean()
        loss.backward()
        dist.send(h.grad, dst=0, tag=self.tag(step, micro))
        return loss.item()


folder = tempfile.mkdtemp()
write_example(folder)
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=20))
rank = dist.get_rank()
torch.manual_seed(rank)
if rank == 0:
    stage = First(0, nn.Linear(32, DIM), folder)
    for step in range(stage.step, 12):
        for m in range(MICRO):
            stage.forward(step, m, torch.randn(ROWS, 32))
        for m in range(MICRO):
            stage.backward(step, m)
        stage.opt.step()
        stage.opt.zero_grad()
else:
    stage = Last(1, nn.Linear(DIM, 1), folder)
    for step in range(stage.step, 12):
        print("step", step, sum(stage.run(step, m) for m in range(MICRO)), flush=True)
        stage.opt.step()
        stage.opt.zero_grad()
dist.destroy_process_group()
