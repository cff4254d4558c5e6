import os
import tempfile
import torch
import torch.nn as nn

torch.manual_seed(0)


class DiskOffload(torch.autograd.graph.saved_tensors_hooks):
    """Keeps large activations in files until backward needs them."""

    def __init__(self, folder, at_least=1 << 12):
        self.folder, self.at_least, self.count = folder, at_least, 0
        super().__init__(self.pack, self.unpack)

    def pack(self, t):
        if t.numel() < self.at_least:
            return t
        self.count += 1
        path = os.path.join(self.folder, f"activation_{self.count}.pt")
        torch.save(t.detach(), path)
        return path

    def unpack(self, kept):
        return torch.load(kept) if isinstance(kept, str) else kept


class Energy(nn.Module):
    def __init__(self, dim=1024):
        super().__init__()
        self.mix = nn.Linear(dim, dim)
        self.norm = nn.LayerNorm(dim)

    def forward(self, x):
        return self.norm(self.mix(x))[:, 0].sum()


def chunks():
    """Sentences, then paragraphs."""
    for rows in (64, 64, 12288):
        yield torch.randn(rows, 1024)


model = Energy()
opt = torch.optim.SGD(model.parameters(), lr=1e-4)
folder = tempfile.mkdtemp()
losses = []
for x in chunks():
    with DiskOffload(folder):
        losses.append(model(x))
    print("chunk", tuple(x.shape), "energy", round(losses[-1].item(), 3), flush=True)
opt.zero_grad()
sum(losses).backward()
opt.step()
