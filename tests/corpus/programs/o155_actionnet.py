"""Train an inflated 3D network on short clips, stop, and carry on from the saved state."""
import argparse
import json
import os
import tempfile

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

DEFAULT = {
    "num_classes": 5,
    "lr": 2e-3,
    "end_points": {
        "stem": {"kind": "conv", "out": 8, "kernel": 5, "stride": 2},
        "reduce": {"kind": "conv", "out": 8, "kernel": 1, "stride": 1},
        "mixed_a": {"kind": "conv", "out": 16, "kernel": 3, "stride": 2},
        "expand": {"kind": "conv", "out": 24, "kernel": 1, "stride": 1},
        "mixed_b": {"kind": "conv", "out": 32, "kernel": 3, "stride": 2},
    },
    "flow": ["stem", "reduce", "mixed_a", "expand", "mixed_b"],
}


class Unit3D(nn.Module):
    def __init__(self, cin, out, kernel, stride):
        super().__init__()
        self.conv3d = nn.Conv3d(cin, out, kernel, stride, kernel // 2, bias=False)
        self.bn = nn.BatchNorm3d(out)

    def forward(self, x):
        return F.relu(self.bn(self.conv3d(x)))


class ActionNet(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.flow = cfg["flow"]
        width, cin = {}, 3
        for name in self.flow:
            width[name], cin = cin, cfg["end_points"][name]["out"]
        for name, spec in cfg["end_points"].items():
            self.add_module(name, Unit3D(width[name], spec["out"], spec["kernel"], spec["stride"]))
        self.logits = nn.Linear(cin, cfg["num_classes"])

    def forward(self, clip):
        for name in self.flow:
            clip = self._modules[name](clip)
        return self.logits(clip.mean((2, 3, 4)))


def clips(count, classes, seed=0):
    g = torch.Generator().manual_seed(seed)
    label = torch.randint(classes, (count,), generator=g)
    video = torch.rand(count, 3, 8, 24, 24, generator=g) * 0.5
    for i, c in enumerate(label.tolist()):
        for t in range(8):
            pos = (2 * t + 3 * c) % 20
            video[i, c % 3, t, pos:pos + 4, 3 * c:3 * c + 6] += 1.0
    return TensorDataset(video, label)


class Trainer:
    def __init__(self, cfg):
        self.cfg, self.epoch = cfg, 0
        self.net = ActionNet(cfg)
        self.opt = torch.optim.Adam(self.net.parameters(), lr=cfg["lr"])
        self.sched = torch.optim.lr_scheduler.StepLR(self.opt, 4, 0.5)

    def save(self, folder):
        with open(os.path.join(folder, "config.json"), "w") as f:
            json.dump(self.cfg, f, indent=2, sort_keys=True)
        torch.save({"net": self.net.state_dict(), "opt": self.opt.state_dict(),
                    "sched": self.sched.state_dict(), "epoch": self.epoch}, os.path.join(folder, "last.pt"))

    @classmethod
    def resume(cls, folder):
        with open(os.path.join(folder, "config.json")) as f:
            trainer = cls(json.load(f))
        state = torch.load(os.path.join(folder, "last.pt"))
        trainer.net.load_state_dict(state["net"])
        trainer.opt.load_state_dict(state["opt"])
        trainer.sched.load_state_dict(state["sched"])
        trainer.epoch = state["epoch"]
        return trainer

    def run(self, data, epochs):
        for _ in range(epochs):
            total, right = 0.0, 0
            for clip, label in DataLoader(data, 16, shuffle=True):
                out = self.net(clip)
                loss = F.cross_entropy(out, label)
                self.opt.zero_grad()
                loss.backward()
                self.opt.step()
                total, right = total + loss.item(), right + (out.argmax(1) == label).sum().item()
            self.sched.step()
            self.epoch += 1
            print(f"epoch {self.epoch} loss {total:.3f} top1 {right / len(data):.3f}", flush=True)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=3)
    ap.add_argument("--more", type=int, default=3)
    args = ap.parse_args()
    torch.manual_seed(5)
    torch.set_num_threads(1)
    data = clips(96, DEFAULT["num_classes"])
    with tempfile.TemporaryDirectory() as folder:
        first = Trainer(DEFAULT)
        first.run(data, args.epochs)
        first.save(folder)
        second = Trainer.resume(folder)
        print("resumed at epoch", second.epoch, "parameters", sum(p.numel() for p in second.net.parameters()))
        second.run(data, args.more)


if __name__ == "__main__":
    main()
