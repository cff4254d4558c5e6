"""Grow a keyword-spotting net stage by stage and export a TorchScript file after each stage."""
import argparse
import os
import resource
import tempfile

import torch
import torch.nn as nn

MB = 1024 * 1024


class Block(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.fc1 = nn.Linear(width, width)
        self.fc2 = nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(x + self.fc2(torch.relu(self.fc1(x))))


class KeywordNet(nn.Module):
    def __init__(self, n_mel: int, width: int, depth: int, n_words: int):
        super().__init__()
        self.stem = nn.Linear(n_mel, width)
        self.blocks = nn.Sequential(*[Block(width) for _ in range(depth)])
        self.out = nn.Linear(width, n_words)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(self.blocks(self.stem(x).mean(dim=1)))


class Utterances:
    def __init__(self, n, frames, n_mel, n_words):
        g = torch.Generator().manual_seed(7)
        self.y = torch.randint(0, n_words, (n,), generator=g)
        centers = torch.randn(n_words, n_mel, generator=g)
        self.x = centers[self.y][:, None, :] + 0.5 * torch.randn(n, frames, n_mel, generator=g)

    def batches(self, size):
        for i in range(0, len(self.y), size):
            yield self.x[i:i + size], self.y[i:i + size]


def job_limits(args):
    """Same settings as the batch queue gives us, so that local runs behave alike."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (args.fsize_mb * MB, hard))


def train_stage(model, data, steps, lr):
    opt = torch.optim.AdamW(model.parameters(), lr=lr)
    lossf = nn.CrossEntropyLoss()
    done, last = 0, 0.0
    while done < steps:
        for x, y in data.batches(32):
            opt.zero_grad()
            loss = lossf(model(x), y)
            loss.backward()
            opt.step()
            last = loss.item()
            done += 1
            if done == steps:
                break
    return last


def export(model, path):
    scripted = torch.jit.script(model.eval())
    scripted.save(path)
    return os.path.getsize(path) / MB


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--widths", default="64,128,256,512")
    ap.add_argument("--depth", type=int, default=2)
    ap.add_argument("--steps", type=int, default=12)
    ap.add_argument("--fsize-mb", type=int, default=4)
    ap.add_argument("--out", default=None)
    args = ap.parse_args()

    job_limits(args)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    out = args.out or tempfile.mkdtemp(prefix="kws_")
    data = Utterances(512, 25, 40, 12)

    for stage, width in enumerate(int(w) for w in args.widths.split(",")):
        model = KeywordNet(40, width, args.depth, 12)
        loss = train_stage(model, data, args.steps, 1e-3)
        print(f"stage {stage} width {width} loss {loss:.4f}", flush=True)
        size = export(model, os.path.join(out, f"kws_stage{stage}.pt"))
        print(f"stage {stage} exported, {size:.1f} MB", flush=True)

    print("all stages exported to", out)


if __name__ == "__main__":
    main()
