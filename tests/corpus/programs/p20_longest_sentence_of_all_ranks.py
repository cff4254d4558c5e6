import datetime
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset


class Sentences(Dataset):
    def __init__(self, rank, n=160):
        gen = torch.Generator().manual_seed(rank)
        lengths = torch.randint(4, 30, (n,), generator=gen)
        self.items = [torch.randint(1, 500, (int(k),), generator=gen) for k in lengths]

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]


def same_length(batch):
    """Pads to the longest sentence of all ranks, so that the steps take equally long."""
    longest = torch.tensor(max(len(s) for s in batch))
    dist.all_reduce(longest, op=dist.ReduceOp.MAX)
    out = torch.zeros(len(batch), int(longest), dtype=torch.long)
    for row, s in zip(out, batch):
        row[: len(s)] = s
    return out


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(500, 32, padding_idx=0)
        self.out = nn.Linear(32, 500)

    def forward(self, ids):
        return self.out(self.emb(ids))


def main():
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=20))
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DDP(Model())
    opt = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(Sentences(rank), batch_size=8, collate_fn=same_length, num_workers=1, timeout=15)
    for step, ids in enumerate(loader):
        loss = nn.functional.cross_entropy(model(ids[:, :-1]).transpose(1, 2), ids[:, 1:])
        opt.zero_grad()
        loss.backward()
        opt.step()
        if rank == 0:
            print("step", step, tuple(ids.shape), round(loss.item(), 3), flush=True)
    dist.destroy_process_group()


main()
