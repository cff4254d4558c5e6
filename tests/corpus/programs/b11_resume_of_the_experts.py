import shutil
import tempfile

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.nn as nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.fsdp import fully_shard


class ExpertNet(nn.Module):
    def __init__(self, dim=32, experts=4):
        super().__init__()
        self.router = nn.Linear(dim, experts)
        self.experts = nn.ModuleList(nn.Linear(dim, dim) for _ in range(experts))
        self.head = nn.Linear(dim, 8)

    def forward(self, x, active):
        gates = self.router(x).softmax(dim=-1)
        x = sum(gates[:, i:i + 1] * self.experts[i](x) for i in active)
        return self.head(x)


class Trainer:
    def __init__(self):
        torch.manual_seed(21)
        self.model = ExpertNet()
        fully_shard(self.model)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3)

    def fit(self, steps, active):
        for step in range(steps):
            inputs, labels = torch.randn(16, 32), torch.randint(0, 8, (16,))
            loss = nn.functional.cross_entropy(self.model(inputs, active), labels)
            loss.backward()
            self.optimizer.step()
            self.optimizer.zero_grad()
        if dist.get_rank() == 0:
            print(f"{steps} steps, loss {loss.item():.4f}", flush=True)

    def save(self, path):
        model_state, optim_state = get_state_dict(self.model, self.optimizer)
        dcp.save({"model": model_state, "optimizer": optim_state}, checkpoint_id=path)

    def load(self, path):
        model_state, optim_state = get_state_dict(self.model, self.optimizer)
        dcp.load({"model": model_state, "optimizer": optim_state}, checkpoint_id=path)
        set_state_dict(self.model, self.optimizer, model_state_dict=model_state, optim_state_dict=optim_state)


def main():
    dist.init_process_group("gloo")
    folder = [tempfile.mkdtemp() if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(folder)
    try:
        trainer = Trainer()
        trainer.fit(5, active=[0, 1, 2])
        trainer.save(folder[0])
        resumed = Trainer()
        resumed.load(folder[0])
        resumed.fit(5, active=[0, 1, 2, 3])
    finally:
        shutil.rmtree(folder[0], ignore_errors=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
