"""Multi-sensor forecasting: torchrun --nproc-per-node 2 k01_forecast_ddp.py"""
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler

FEATURES, HIDDEN, BATCH = 5, 6, 6


class SensorSeries(Dataset):
    def __init__(self, n=72, steps=20, seed=0):
        g = torch.Generator().manual_seed(seed)
        phase = torch.rand(n, 1, FEATURES, generator=g) * 6.28
        t = torch.arange(steps + 1)[None, :, None] * 0.3
        self.series = torch.sin(t + phase)

    def __len__(self):
        return len(self.series)

    def __getitem__(self, i):
        return self.series[i, :-1], self.series[i, 1:]


class Forecaster(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = nn.LSTMCell(FEATURES, HIDDEN)
        self.out = nn.Linear(HIDDEN, FEATURES)

    def forward(self, steps, state):
        predictions = []
        for x in steps:
            state = self.cell(x, state)
            predictions.append(self.out(state[0]))
        return torch.stack(predictions)


def train_epoch(model, loader, opt, state):
    for past, future in loader:
        predicted = model(past.transpose(0, 1), state)
        loss = (predicted - future.transpose(0, 1)).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    return loss.item()


@torch.no_grad()
def validate(model, data, state):
    errors = []
    for past, future in data:
        errors.append((model(past, state) - future).abs().mean())
    return torch.stack(errors).mean().item()


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    torch.set_num_threads(1)
    sampler = DistributedSampler(SensorSeries())
    loader = DataLoader(sampler.dataset, batch_size=BATCH, sampler=sampler)
    model = DDP(Forecaster())
    opt = torch.optim.Adam(model.parameters(), lr=1e-2)
    state = (torch.zeros(BATCH, HIDDEN), torch.zeros(BATCH, HIDDEN))
    for epoch in range(3):
        sampler.set_epoch(epoch)
        loss = train_epoch(model, loader, opt, state)
        if dist.get_rank() == 0:
            print(f"epoch {epoch} loss {loss:.4f}", flush=True)
            error = validate(model.module, SensorSeries(8, seed=1), state)
            print(f"epoch {epoch} validation error {error:.4f}", flush=True)
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
