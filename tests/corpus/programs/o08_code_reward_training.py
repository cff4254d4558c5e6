"""Trains a small scorer of generated programs; rewards come from running the candidates."""
import builtins
import contextlib
import faulthandler
import io
import os
import shutil
import subprocess
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

WORK = "/tmp/o08_rewards"
BODIES = ["return a + b", "return a - b", "return a * b", "return max(a, b)", "return b",
          "s = 0\n    for v in (a, b):\n        s += v\n    return s", "return a // b"]
CASES = [(1, 2, 3), (5, 7, 12), (0, 0, 0), (-4, 9, 5)]


def harden():
    """Keeps candidate programs away from the file system and from other processes."""
    faulthandler.disable()
    os.environ["OMP_NUM_THREADS"] = "1"
    for name in ("kill", "system", "putenv", "remove", "removedirs", "rmdir", "fchdir", "setuid",
                 "fork", "forkpty", "killpg", "rename", "renames", "truncate", "replace",
                 "unlink", "fchmod", "fchown", "chmod", "chown", "chroot", "getcwd", "chdir"):
        setattr(os, name, None)
    for name in ("rmtree", "move", "chown"):
        setattr(shutil, name, None)
    subprocess.Popen = None
    builtins.quit = None
    for name in ("ipdb", "joblib", "psutil", "tkinter"):
        sys.modules[name] = None


class Runner:
    def __init__(self):
        self.ready = False
        self.executed = 0

    def reward(self, source):
        if not self.ready:
            harden()
            self.ready = True
        self.executed += 1
        scope = {}
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                exec(source, scope)
                good = sum(scope["add"](a, b) == want for a, b, want in CASES)
        except Exception:
            return 0.0
        return good / len(CASES)


class Programs(Dataset):
    def __init__(self, n, length=96):
        self.sources = [f"def add(a, b):\n    {BODIES[i % len(BODIES)]}\n" for i in range(n)]
        self.length = length
        self.rewards = torch.zeros(n)

    def __len__(self):
        return len(self.sources)

    def __getitem__(self, i):
        codes = list(self.sources[i].encode())[:self.length]
        codes += [0] * (self.length - len(codes))
        return torch.tensor(codes), self.rewards[i], i


class Scorer(nn.Module):
    def __init__(self, dim=48):
        super().__init__()
        self.embed = nn.Embedding(256, dim, padding_idx=0)
        self.conv = nn.Conv1d(dim, dim, 5, padding=2)
        self.out = nn.Linear(dim, 1)

    def forward(self, codes):
        x = F.relu(self.conv(self.embed(codes).transpose(1, 2)))
        return self.out(x.amax(2)).squeeze(1)


def train_epoch(model, opt, data):
    loader = DataLoader(data, batch_size=32, shuffle=True, num_workers=2)
    total = 0.0
    for codes, reward, _ in loader:
        loss = F.mse_loss(model(codes), reward)
        opt.zero_grad()
        loss.backward()
        opt.step()
        total += loss.item()
    return total / len(loader)


def refresh_rewards(data, runner, share):
    chosen = torch.randperm(len(data))[:int(share * len(data))]
    for i in chosen.tolist():
        data.rewards[i] = runner.reward(data.sources[i])
    return data.rewards[chosen].mean().item()


def main():
    torch.manual_seed(0)
    shutil.rmtree(WORK, ignore_errors=True)
    os.makedirs(WORK)
    data, runner = Programs(280), Runner()
    model = Scorer()
    opt = torch.optim.Adam(model.parameters(), 2e-3)
    print(f"warm-up loss {train_epoch(model, opt, data):.4f}", flush=True)
    for round_ in range(3):
        mean = refresh_rewards(data, runner, 0.5)
        print(f"round {round_}: {runner.executed} programs run, mean reward {mean:.3f}", flush=True)
        loss = train_epoch(model, opt, data)
        print(f"round {round_}: loss {loss:.4f}", flush=True)
        torch.save(model.state_dict(), os.path.join(WORK, f"scorer{round_}.pt"))


if __name__ == "__main__":
    main()
