import os
import tempfile
import torch
import torch.nn as nn

CONFIG = """\
# fine-tuning of the retrieval model
batch_size: 32
epochs: 3
warmup: true
optimizer:
  lr: 1e-4
  weight_decay: 0.02
  amsgrad: false
"""


def number(text):
    if text in ("true", "false"):
        return text == "true"
    if text.lstrip("-").isdigit():
        return int(text)
    if text.replace(".", "", 1).lstrip("-").isdigit():
        return float(text)
    return text


def read_config(path):
    """Sections by indentation, one value a line."""
    config, section = {}, None
    for line in open(path):
        line = line.split("#")[0].rstrip()
        if not line:
            continue
        key, _, value = line.partition(":")
        target = config[section] if line.startswith(" ") else config
        if value.strip():
            target[key.strip()] = number(value.strip())
        else:
            section = key.strip()
            config[section] = {}
    return config


class TwoTowers(nn.Module):
    def __init__(self, dim=32):
        super().__init__()
        self.query, self.item = nn.Linear(48, dim), nn.Linear(64, dim)

    def forward(self, q, i):
        return self.query(q) @ self.item(i).T


def train(config):
    torch.manual_seed(0)
    model = TwoTowers()
    opt = torch.optim.AdamW(model.parameters(), **config["optimizer"])
    for epoch in range(config["epochs"]):
        n = config["batch_size"]
        loss = nn.functional.cross_entropy(model(torch.randn(n, 48), torch.randn(n, 64)), torch.arange(n))
        opt.zero_grad()
        loss.backward()
        opt.step()
        print("epoch", epoch, round(loss.item(), 4))


if __name__ == "__main__":
    path = os.path.join(tempfile.mkdtemp(), "retrieval.yaml")
    open(path, "w").write(CONFIG)
    train(read_config(path))
