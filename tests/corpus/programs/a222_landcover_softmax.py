"""Land-cover classification (water / vegetation / built-up) from pixel spectra with our C++ softmax loss."""
import ctypes
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

HERE = Path(__file__).resolve().parent
CLASSES = ["water", "vegetation", "built-up"]
BANDS = 11


def load_native(workdir):
    so = Path(workdir) / "libsoftmaxloss.so"
    subprocess.run(["g++", "-O1", "-g", "-shared", "-fPIC", str(HERE / "a222_softmax_loss.cpp"), "-o", str(so)], check=True)
    lib = ctypes.CDLL(str(so))
    ptr = ctypes.c_void_p
    lib.softmax_loss.argtypes = [ptr, ptr, ptr, ctypes.c_int, ctypes.c_int, ptr]
    lib.softmax_loss.restype = ctypes.c_float
    return lib


class SoftmaxLoss(torch.autograd.Function):
    @staticmethod
    def forward(ctx, lib, scores, labels, weights):
        scores = scores.contiguous()
        grad = torch.empty_like(scores)
        batch, classes = scores.shape
        value = lib.softmax_loss(scores.data_ptr(), labels.data_ptr(), weights.data_ptr(), batch, classes, grad.data_ptr())
        ctx.save_for_backward(grad)
        return scores.new_tensor(value)

    @staticmethod
    def backward(ctx, upstream):
        (grad,) = ctx.saved_tensors
        return None, grad * upstream, None, None


def write_survey(path, rng, rows):
    centers = rng.normal(size=(4, BANDS))
    kind = rng.choice(4, size=rows, p=[0.33, 0.33, 0.335, 0.005])
    spectra = centers[kind] + 0.8 * rng.normal(size=(rows, BANDS))
    np.savez(path, spectra=spectra.astype(np.float32), label=kind.astype(np.int64))


class SpectraDataset(Dataset):
    def __init__(self, path):
        with np.load(path) as survey:
            self.spectra = torch.from_numpy(survey["spectra"])
            self.label = torch.from_numpy(survey["label"])
        self.spectra = (self.spectra - self.spectra.mean(0)) / self.spectra.std(0)

    def __len__(self):
        return len(self.label)

    def __getitem__(self, index):
        return self.spectra[index], self.label[index]


class PixelNet(nn.Module):
    def __init__(self, hidden=64):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(BANDS, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, len(CLASSES))
        )

    def forward(self, x):
        return self.layers(x)


def main():
    torch.manual_seed(11)
    rng = np.random.default_rng(11)
    with tempfile.TemporaryDirectory() as workdir:
        lib = load_native(workdir)
        write_survey(Path(workdir) / "survey_2021.npz", rng, 40000)
        data = SpectraDataset(Path(workdir) / "survey_2021.npz")
        loader = DataLoader(data, batch_size=250, shuffle=True, drop_last=True)
        weights = torch.tensor([1.0, 0.8, 1.2])
        model = PixelNet()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        print(f"{len(data)} pixels, {len(loader)} iterations per epoch", flush=True)
        iteration = 0
        for epoch in range(20):
            for spectra, label in loader:
                optimizer.zero_grad()
                loss = SoftmaxLoss.apply(lib, model(spectra), label, weights)
                loss.backward()
                optimizer.step()
                iteration += 1
                if iteration % 20 == 0:
                    print(f"epoch {epoch} iteration {iteration} loss {loss.item():.4f}", flush=True)
        torch.save(model.state_dict(), Path(workdir) / "pixelnet.pt")
    print("done")
    return 0


if __name__ == "__main__":
    sys.exit(main())
