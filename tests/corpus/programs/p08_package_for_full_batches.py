import os
import tempfile
import torch
import torch.nn as nn

torch.manual_seed(0)
BATCH = 64


class Pixels(nn.Module):
    """Normalises the pictures and makes a small description of each."""

    def __init__(self):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(3, 1, 1))

    def forward(self, x):
        x = (x / 255 - 0.5) * self.gain
        return torch.cat([x.clamp(-1, 1).mean((2, 3)), x.abs().amax((2, 3))], 1)


def build(path):
    with torch.no_grad():
        program = torch.export.export(Pixels().eval(), (torch.zeros(BATCH, 3, 224, 224),))
        return torch._inductor.aoti_compile_and_package(program, package_path=path)


class Service:
    def __init__(self, package):
        self.model = torch._inductor.aoti_load_package(package)
        self.waiting = []

    def submit(self, picture):
        self.waiting.append(picture)
        if len(self.waiting) == BATCH:
            return self.flush()

    def flush(self):
        batch = torch.stack(self.waiting)
        self.waiting = []
        out = self.model(batch)
        print("batch of", len(batch), "->", tuple(out.shape), flush=True)
        return out


if __name__ == "__main__":
    package = build(os.path.join(tempfile.mkdtemp(), "pixels.pt2"))
    service = Service(package)
    for i in range(BATCH + 3):
        service.submit(torch.randint(0, 255, (3, 224, 224)).float())
    service.flush()
