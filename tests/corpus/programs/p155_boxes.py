"""Proposal filtering for a small detector; the suppression step is written in C."""
import argparse
import ctypes
import os
import subprocess
import tempfile

import numpy as np
import torch
import torch.nn as nn

SOURCE = r"""
#include <stdlib.h>

static float overlap(const float *a, const float *b) {
    float x1 = a[0] > b[0] ? a[0] : b[0], y1 = a[1] > b[1] ? a[1] : b[1];
    float x2 = a[2] < b[2] ? a[2] : b[2], y2 = a[3] < b[3] ? a[3] : b[3];
    float w = x2 > x1 ? x2 - x1 : 0, h = y2 > y1 ? y2 - y1 : 0;
    float inter = w * h;
    float area_a = (a[2] - a[0]) * (a[3] - a[1]), area_b = (b[2] - b[0]) * (b[3] - b[1]);
    return inter / (area_a + area_b - inter + 1e-9f);
}

void suppress(int *keep_out, int *num_out, const float *boxes, int boxes_num, int boxes_dim, float thresh) {
    char *removed = calloc(boxes_num, 1);
    int kept = 0;
    for (int i = 0; i < boxes_num; i++) {
        if (removed[i]) continue;
        keep_out[kept++] = i;
        for (int j = i + 1; j < boxes_num; j++)
            if (!removed[j] && overlap(boxes + i * boxes_dim, boxes + j * boxes_dim) > thresh) removed[j] = 1;
    }
    *num_out = kept;
    free(removed);
}
"""


def load_suppress():
    build = tempfile.mkdtemp(prefix="boxes_")
    source, target = os.path.join(build, "suppress.c"), os.path.join(build, "libsuppress.so")
    with open(source, "w") as f:
        f.write(SOURCE)
    subprocess.run(["gcc", "-O2", "-g", "-shared", "-fPIC", source, "-o", target], check=True)
    fn = ctypes.CDLL(target).suppress
    fn.restype = None
    fn.argtypes = [ctypes.POINTER(ctypes.c_int), ctypes.POINTER(ctypes.c_int),
                   ctypes.POINTER(ctypes.c_float), ctypes.c_int, ctypes.c_int, ctypes.c_float]
    return fn


class ProposalLayer:
    def __init__(self, pre_top_n, post_top_n, thresh):
        self.suppress = load_suppress()
        self.pre_top_n, self.post_top_n, self.thresh = pre_top_n, post_top_n, thresh

    def __call__(self, boxes, scores):
        order = np.argsort(-scores)[:self.pre_top_n]
        ranked = np.hstack([boxes[order], scores[order, None]]).astype(np.float32)
        keep = np.zeros(min(len(ranked), self.post_top_n), dtype=np.int32)
        count = ctypes.c_int(0)
        self.suppress(keep.ctypes.data_as(ctypes.POINTER(ctypes.c_int)), ctypes.byref(count),
                      ranked.ctypes.data_as(ctypes.POINTER(ctypes.c_float)),
                      len(ranked), ranked.shape[1], self.thresh)
        chosen = keep[:min(count.value, self.post_top_n)]
        return ranked[chosen, :4], ranked[chosen, 4]


class Scorer(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, boxes):
        return self.net(boxes / 640.0).squeeze(-1)


def make_image(rng, objects, per_object):
    centres = rng.uniform(60, 580, (objects, 2)).repeat(per_object, axis=0)
    centres += rng.normal(0, 3, centres.shape)
    size = rng.uniform(36, 44, (len(centres), 2))
    return np.hstack([centres - size / 2, centres + size / 2])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--images", type=int, default=24)
    parser.add_argument("--post-top-n", type=int, default=300)
    parser.add_argument("--thresh", type=float, default=0.3)
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    rng = np.random.default_rng(4)
    layer = ProposalLayer(pre_top_n=6000, post_top_n=args.post_top_n, thresh=args.thresh)
    scorer = Scorer()
    optimizer = torch.optim.Adam(scorer.parameters(), lr=1e-3)
    for index in range(args.images):
        crowd = 60 * (1 + index // 8 * 3)
        boxes = make_image(rng, crowd, 12)
        scores = torch.sigmoid(scorer(torch.tensor(boxes, dtype=torch.float32)))
        kept, conf = layer(boxes, scores.detach().numpy())
        picked = scorer(torch.from_numpy(kept))
        loss = nn.functional.binary_cross_entropy_with_logits(picked, torch.ones_like(picked))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"image {index}: {len(boxes)} proposals, {len(kept)} kept, loss {loss.item():.4f}", flush=True)
    print("done")


if __name__ == "__main__":
    main()
