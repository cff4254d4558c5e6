import torch
import torch.nn as nn

torch.manual_seed(4)
q = torch.ops.quantized


def prune(weight, keep):
    """Drops the rows with the smallest norm; says where each row went."""
    order = weight.norm(dim=1).argsort(descending=True)[:keep].sort().values
    mapping = torch.full((len(weight),), torch.iinfo(torch.int32).max, dtype=torch.int32)
    mapping[order] = torch.arange(len(order), dtype=torch.int32)
    return weight[order], mapping


class CompactBag(nn.Module):
    def __init__(self, bag, keep):
        super().__init__()
        kept, mapping = prune(bag.weight.detach(), keep)
        self.register_buffer("rows", q.embedding_bag_byte_prepack(kept))
        self.register_buffer("mapping", mapping)

    def forward(self, ids, offsets):
        return q.embedding_bag_byte_rowwise_offsets(self.rows, ids, offsets, False, 0, True, None, self.mapping)


class Scorer(nn.Module):
    def __init__(self, n, dim=32):
        super().__init__()
        self.bag = nn.EmbeddingBag(n, dim, mode="sum")
        self.head = nn.Linear(dim, 1)

    def forward(self, ids, offsets):
        return self.head(self.bag(ids, offsets)).squeeze(1).sigmoid()


def requests(n, count):
    for _ in range(count):
        lengths = torch.randint(1, 12, (64,))
        ids = (torch.rand(int(lengths.sum())) ** 3 * n).long()
        yield ids, torch.cat([torch.zeros(1, dtype=torch.long), lengths.cumsum(0)[:-1]])


with torch.no_grad():
    model = Scorer(20000).eval()
    for ids, offsets in requests(20000, 2):
        print("float", round(float(model(ids, offsets).mean()), 4), flush=True)
    model.bag = CompactBag(model.bag, keep=8000)
    for ids, offsets in requests(20000, 2):
        print("compact", round(float(model(ids, offsets).mean()), 4), flush=True)
