import datetime
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP


class SpeechEncoder(nn.Module):
    def __init__(self, mels=40, dim=64, depth=4, drop=0.2):
        super().__init__()
        self.front = nn.Linear(mels, dim)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(dim, 4, 2 * dim, dropout=0.0, batch_first=True) for _ in range(depth)
        )
        self.drop = drop
        self.out = nn.Linear(dim, 30)

    def forward(self, x):
        h = self.front(x)
        for layer in self.layers:
            if self.training and torch.rand(()) < self.drop:
                continue
            h = layer(h)
        return self.out(h)


def utterances(rank, steps):
    gen = torch.Generator().manual_seed(100 + rank)
    for _ in range(steps):
        yield torch.randn(2, 25, 40, generator=gen), torch.randint(0, 30, (2, 25), generator=gen)


def main():
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=12))
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DDP(SpeechEncoder())
    opt = torch.optim.SGD(model.parameters(), lr=0.05)
    torch.manual_seed(rank)
    for step, (x, y) in enumerate(utterances(rank, steps=12)):
        logits = model(x)
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), y.flatten())
        opt.zero_grad()
        loss.backward()
        opt.step()
        print("rank", rank, "step", step, round(loss.item(), 3), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
