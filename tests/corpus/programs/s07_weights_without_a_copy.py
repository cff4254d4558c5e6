import json
import mmap
import os
import tempfile
import torch
import torch.nn as nn


def save_weights(model, path):
    table, offset = {}, 0
    with open(path + ".bin", "wb") as f:
        for name, t in model.state_dict().items():
            raw = t.numpy().tobytes()
            table[name] = {"offset": offset, "shape": list(t.shape)}
            offset += f.write(raw)
    json.dump(table, open(path + ".json", "w"))


class WeightsFile:
    """Opens a file of weights without reading it."""

    def __init__(self, path):
        self.path = path

    def __enter__(self):
        self.table = json.load(open(self.path + ".json"))
        with open(self.path + ".bin", "r+b") as f:
            self.map = mmap.mmap(f.fileno(), 0)
        return self

    def __exit__(self, *error):
        self.map.close()

    def get(self, name):
        entry = self.table[name]
        count = torch.Size(entry["shape"]).numel()
        flat = torch.frombuffer(self.map, dtype=torch.float32, count=count, offset=entry["offset"])
        return flat.view(entry["shape"])


def build():
    return nn.Sequential(nn.Linear(512, 2048), nn.ReLU(), nn.Linear(2048, 512), nn.LayerNorm(512))


def load(path):
    with torch.device("meta"):
        model = build()
    with WeightsFile(path) as weights:
        state = {name: weights.get(name) for name in weights.table}
        model.load_state_dict(state, assign=True)
    return model.eval()


if __name__ == "__main__":
    torch.manual_seed(0)
    path = os.path.join(tempfile.mkdtemp(), "encoder")
    save_weights(build(), path)
    model = load(path)
    print(sum(p.numel() for p in model.parameters()), "parameters", flush=True)
    with torch.inference_mode():
        print(model(torch.randn(4, 512)).std().item())
