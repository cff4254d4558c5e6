import os
import tempfile

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

CONFIG = {"model": "osnet_x0_25", "sources": ["market1501", "dukemtmcreid", "msmt17"], "loss": "triplet",
          "optim": "amsgrad", "lr": 0.0015, "stepsize": 60, "batch": 16, "workers": 2}


def experiment_dir(root, cfg):
    name = "_".join([cfg["model"], *cfg["sources"], cfg["loss"], cfg["optim"], f"lr{cfg['lr']}",
                     f"step{cfg['stepsize']}", f"bs{cfg['batch']}"])
    path = os.path.join(root, "experiments", name)
    os.makedirs(os.path.join(path, "scratch"), exist_ok=True)
    return path


def use_scratch(exp_dir):
    """Keeps the temporary files of a run on the data disk and not on the small /tmp of the node."""
    os.environ["TMPDIR"] = os.path.join(exp_dir, "scratch")
    tempfile.tempdir = None


class PersonImages(Dataset):
    def __init__(self, ids=32, per_id=4):
        self.ids, self.per_id = ids, per_id

    def __len__(self):
        return self.ids * self.per_id

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(i)
        pid = i // self.per_id
        return torch.rand(3, 64, 32, generator=g) + pid / self.ids, pid


class TinyReID(nn.Module):
    def __init__(self, ids=32):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(3, 8, 3, stride=2), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten())
        self.classifier = nn.Linear(128, ids)

    def forward(self, x):
        return self.classifier(self.features(x))


def main():
    torch.set_num_threads(1)
    exp_dir = experiment_dir(tempfile.mkdtemp(prefix="reid_"), CONFIG)
    use_scratch(exp_dir)
    print("experiment", os.path.basename(exp_dir), flush=True)
    loader = DataLoader(PersonImages(), batch_size=CONFIG["batch"], shuffle=True, num_workers=CONFIG["workers"])
    model = TinyReID()
    optimizer = torch.optim.Adam(model.parameters(), lr=CONFIG["lr"], amsgrad=True)
    for epoch in range(2):
        for images, pids in loader:
            loss = nn.functional.cross_entropy(model(images), pids)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch} loss {loss.item():.4f}", flush=True)
    torch.save(model.state_dict(), os.path.join(exp_dir, "model.pt"))


if __name__ == "__main__":
    main()
