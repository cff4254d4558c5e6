import os
import subprocess
import sys
import tempfile
import torch

ROWS, DIM = 60000, 64
BUILD = """
import sys, torch
path, rows, dim = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
with open(path, "wb") as out:
    for start in range(0, rows, 1000):
        out.write(torch.randn(1000, dim).numpy().tobytes())
"""


def build_cache(path, rows):
    print("building", rows, "rows", flush=True)
    subprocess.run([sys.executable, "-c", BUILD, path, str(rows), str(DIM)], check=True)


class Features:
    def __init__(self, folder, rows):
        self.path = os.path.join(folder, "features.f32")
        self.rows = rows
        if not os.path.exists(self.path):
            build_cache(self.path, rows)
        self.table = torch.from_file(self.path, shared=False, size=rows * DIM).view(rows, DIM)

    def batch(self, n):
        return self.table[torch.randint(0, self.rows, (n,))]

    def describe(self):
        return [round(float(c), 3) for c in self.table.mean(0)[:3]]


def evaluate(folder, rows):
    build_cache(os.path.join(folder, "features.f32"), rows)
    held_out = Features(folder, rows)
    print("held out", held_out.describe(), flush=True)


folder = tempfile.mkdtemp()
train = Features(folder, ROWS)
print("train", train.describe(), flush=True)
model = torch.nn.Linear(DIM, 1)
opt = torch.optim.SGD(model.parameters(), lr=0.01)
for epoch in range(2):
    for step in range(20):
        loss = (model(train.batch(256)) - 1).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    evaluate(folder, ROWS // 10)
