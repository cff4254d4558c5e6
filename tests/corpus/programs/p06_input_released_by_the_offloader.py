import torch
import torch.nn as nn

torch.manual_seed(0)
HOST = {}


@torch.library.custom_op("offload::push", mutates_args=("x",))
def push(x: torch.Tensor, key: int) -> None:
    HOST[key] = x.clone()
    x.untyped_storage().resize_(0)


@torch.library.custom_op("offload::pop", mutates_args=())
def pop(like: torch.Tensor, key: int) -> torch.Tensor:
    return HOST.pop(key)


@pop.register_fake
def _(like, key):
    return torch.empty_like(like)


class Block(nn.Module):
    def __init__(self, dim, key, keep):
        super().__init__()
        self.key, self.keep = key, keep
        self.up, self.down = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

    def forward(self, x, stash):
        h = self.up(x)
        push(stash, self.key)
        h = torch.nn.functional.gelu(h)
        if self.keep:
            h = h * stash.mean(-1, keepdim=True)
        return pop(x, self.key) + self.down(h)


class Encoder(nn.Module):
    def __init__(self, dim=256, depth=3):
        super().__init__()
        self.blocks = nn.ModuleList(Block(dim, i, keep=i == depth - 1) for i in range(depth))

    def forward(self, x):
        for block in self.blocks:
            x = torch.compile(block)(x, x.clone())
        return x


with torch.inference_mode():
    model = Encoder().eval()
    for batch in range(3):
        out = model(torch.randn(64, 256))
        print("batch", batch, round(float(out.mean()), 4))
