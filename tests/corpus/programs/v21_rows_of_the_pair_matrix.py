import os

os.environ.setdefault("TORCH_DISTRIBUTED_DEBUG", "DETAIL")

import torch
import torch.distributed as dist
from torch import nn

DIM = 16


class TriangleUpdate(nn.Module):
    def __init__(self):
        super().__init__()
        self.left, self.right, self.out = (nn.Linear(DIM, DIM) for _ in range(3))

    def forward(self, rows):
        right = self.right(rows).contiguous()
        gathered = torch.empty((dist.get_world_size() * right.shape[0], *right.shape[1:]), dtype=right.dtype)
        dist.all_gather_into_tensor(gathered, right)
        pair = torch.einsum("ikc,jkc->ijc", self.left(rows), gathered)
        return rows + self.out(pair / rows.shape[1])


def shard(pair):
    return pair.chunk(dist.get_world_size(), dim=0)[dist.get_rank()]


def predict(model, chains):
    tokens = sum(chains)
    generator = torch.Generator().manual_seed(tokens)
    pair = torch.randn(tokens, tokens, DIM, generator=generator)
    rows = shard(pair)
    for _ in range(2):
        rows = model(rows)
    return rows.mean()


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = TriangleUpdate().eval()
    samples = {"7ab1": (60, 60, 40), "8cd2": (72, 48, 48), "9ef3": (75, 50, 34)}
    with torch.no_grad():
        for name, chains in samples.items():
            score = predict(model, chains)
            dist.all_reduce(score)
            if dist.get_rank() == 0:
                print(f"{name}: {sum(chains)} tokens, score {score.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
