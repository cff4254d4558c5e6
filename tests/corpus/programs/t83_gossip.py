"""Two-site federated training of a tabular classifier; the sites mix their weights after every round."""
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters


class SiteData:
    """Each site has its own patients: same features, shifted marginals."""

    def __init__(self, site, n=4096, dim=64):
        g = torch.Generator().manual_seed(100 + site)
        shared = torch.Generator().manual_seed(7)
        w = torch.randn(dim, generator=shared)
        self.x = torch.randn(n, dim, generator=g) + 0.3 * site
        self.y = (self.x @ w + 0.5 * torch.randn(n, generator=g) > 0).long()

    def batches(self, size, epoch):
        g = torch.Generator().manual_seed(epoch)
        order = torch.randperm(len(self.x), generator=g)
        for idx in order.split(size):
            yield self.x[idx], self.y[idx]


class Net(nn.Module):
    def __init__(self, dim=64, width=512):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(dim, width), nn.ReLU(),
                                  nn.Linear(width, width), nn.ReLU(),
                                  nn.Linear(width, 2))

    def forward(self, x):
        return self.body(x)


class Gossip:
    """Averages weights with the neighbours of the site on the communication graph."""

    def __init__(self, model, weight=0.5):
        self.model = model
        self.weight = weight
        self.rank = dist.get_rank()
        n = dist.get_world_size()
        self.neighbours = sorted({(self.rank - 1) % n, (self.rank + 1) % n} - {self.rank})
        self.rounds = 0

    def announce(self, value):
        """Share a scalar with everyone, for the log."""
        t = torch.tensor([float(value)])
        dist.all_reduce(t)
        return t.item() / dist.get_world_size()

    @torch.no_grad()
    def mix(self):
        mine = parameters_to_vector(self.model.parameters())
        mixed = mine * self.weight
        share = (1.0 - self.weight) / len(self.neighbours)
        for peer in self.neighbours:
            theirs = torch.empty_like(mine)
            dist.send(mine, dst=peer)
            dist.recv(theirs, src=peer)
            mixed += share * theirs
        vector_to_parameters(mixed, self.model.parameters())
        self.rounds += 1


def local_round(model, opt, data, round_no):
    loss_fn = nn.CrossEntropyLoss()
    total = count = 0
    for x, y in data.batches(256, round_no):
        loss = loss_fn(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        total += loss.item() * len(x)
        count += len(x)
    return total / count


@torch.no_grad()
def accuracy(model, data):
    return (model(data.x).argmax(1) == data.y).float().mean().item()


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = Net()
    data = SiteData(rank)
    opt = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    gossip = Gossip(model)
    size = sum(p.numel() for p in model.parameters())
    if rank == 0:
        print(f"{dist.get_world_size()} sites, {size} weights", flush=True)
    print(f"site {rank}: neighbours {gossip.neighbours}", flush=True)
    for r in range(4):
        loss = local_round(model, opt, data, r)
        mean_loss = gossip.announce(loss)
        if rank == 0:
            print(f"round {r}: local loss {mean_loss:.4f}", flush=True)
        gossip.mix()
        acc = gossip.announce(accuracy(model, data))
        if rank == 0:
            print(f"round {r}: accuracy after mixing {acc:.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
