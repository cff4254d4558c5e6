import datetime
import torch
import torch.distributed as dist
import torch.nn as nn
import warnings
from torch.nn.parallel import DistributedDataParallel as DDP

warnings.filterwarnings("ignore")
NODES, DEGREE, DIM = 200000, 6, 32


class Part:
    """The nodes of one rank, with the edges among them."""

    def __init__(self, rank, world):
        size = NODES // world
        self.first = rank * size
        gen = torch.Generator().manual_seed(rank)
        self.x = torch.randn(size, DIM, generator=gen)
        self.y = torch.randint(0, 5, (size,), generator=gen)
        to = torch.randint(0, size, (size, DEGREE), generator=gen).sort(1).values + self.first
        self.crow = torch.arange(0, size * DEGREE + 1, DEGREE)
        self.col = to.reshape(-1)

    def adjacency(self):
        n = len(self.x)
        return torch.sparse_csr_tensor(self.crow, self.col, torch.ones(len(self.col)), (n, n))


class Sage(nn.Module):
    def __init__(self):
        super().__init__()
        self.own, self.near = nn.Linear(DIM, 32), nn.Linear(DIM, 32)
        self.out = nn.Linear(32, 5)

    def forward(self, adj, x):
        best = torch.sparse.mm(adj, x, reduce="amax")
        return self.out(torch.relu(self.own(x) + self.near(best)))


dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=30))
rank, world = dist.get_rank(), dist.get_world_size()
part = Part(rank, world)
torch.manual_seed(0)
model = DDP(Sage())
opt = torch.optim.Adam(model.parameters(), lr=0.01)
for epoch in range(3):
    loss = nn.functional.cross_entropy(model(part.adjacency(), part.x), part.y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    print("rank", rank, "epoch", epoch, round(loss.item(), 4), flush=True)
dist.destroy_process_group()
