import ctypes
import os
import subprocess
import tempfile
import torch
import torch.nn as nn

SOURCE = r"""
#include <algorithm>
#include <cstdint>
#include <vector>

struct Box { float x0, y0, x1, y1, score; };

extern "C" int64_t best_boxes(const Box *boxes, int64_t n, int64_t *keep, int64_t most) {
    std::vector<const Box *> order;
    for (int64_t i = 0; i < n; i++) order.push_back(boxes + i);
    std::sort(order.begin(), order.end(), [](const Box *a, const Box *b) { return a->score >= b->score; });
    int64_t kept = std::min(n, most);
    for (int64_t i = 0; i < kept; i++) keep[i] = order[i] - boxes;
    return kept;
}
"""


def build():
    folder = tempfile.mkdtemp()
    src, lib = os.path.join(folder, "boxes.cpp"), os.path.join(folder, "libboxes.so")
    open(src, "w").write(SOURCE)
    subprocess.run(["g++", "-O2", "-g", "-shared", "-fPIC", "-o", lib, src], check=True)
    return ctypes.CDLL(lib)


LIB = build()
LIB.best_boxes.restype = ctypes.c_int64


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU())
        self.head = nn.Conv2d(8, 5, 1)

    def forward(self, x):
        out = self.head(self.features(x)).flatten(2)[0].T
        return torch.cat([out[:, :4], out[:, 4:].sigmoid()], 1).contiguous()


def select(boxes, most=100):
    keep = torch.empty(most, dtype=torch.int64)
    n, addresses = len(boxes), [ctypes.c_void_p(t.data_ptr()) for t in (boxes, keep)]
    kept = LIB.best_boxes(addresses[0], ctypes.c_int64(n), addresses[1], ctypes.c_int64(most))
    return boxes[keep[:kept]]


if __name__ == "__main__":
    torch.manual_seed(0)
    model = Detector().eval()
    street, night = torch.rand(1, 3, 160, 160), torch.zeros(1, 3, 160, 160)
    with torch.inference_mode():
        for name, picture in {"street": street, "night": night}.items():
            best = select(model(picture))
            print(name, tuple(best.shape), round(float(best[:, 4].mean()), 3), flush=True)
