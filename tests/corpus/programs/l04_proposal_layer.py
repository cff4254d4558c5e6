import ctypes
import os
import subprocess

import torch
import torch.nn as nn
import torch.nn.functional as F

HERE = os.path.dirname(os.path.abspath(__file__))
SO = "/tmp/l04_libcpu_nms.so"


def build():
    src = os.path.join(HERE, "nms_src", "cpu_nms.c")
    if not os.path.exists(SO):
        subprocess.check_call(["gcc", "-O2", "-g", "-shared", "-fPIC", src, "-o", SO])
    return ctypes.CDLL(SO)


lib = build()


def nms(dets, thresh, max_out):
    """dets (N, 5), sorted by score; returns the indices that are kept."""
    keep = torch.zeros(max_out, dtype=torch.int32)
    num = ctypes.c_int(0)
    dets = dets.contiguous()
    lib.cpu_nms(
        ctypes.c_void_p(keep.data_ptr()), ctypes.byref(num), ctypes.c_void_p(dets.data_ptr()),
        ctypes.c_int(dets.shape[0]), ctypes.c_int(dets.shape[1]), ctypes.c_float(thresh))
    return keep[: num.value].long()


class ProposalLayer(nn.Module):
    def __init__(self, stride=8, pre_nms_top_n=6000, post_nms_top_n=300, thresh=0.7):
        super().__init__()
        self.stride = stride
        self.pre_nms_top_n, self.post_nms_top_n, self.thresh = pre_nms_top_n, post_nms_top_n, thresh

    def forward(self, scores, deltas):
        h, w = scores.shape[-2:]
        ys, xs = torch.meshgrid(torch.arange(h), torch.arange(w), indexing="ij")
        centers = torch.stack([xs, ys], -1).reshape(-1, 2) * self.stride
        sizes = deltas.exp().permute(1, 2, 0).reshape(-1, 2) * 16
        boxes = torch.cat([centers - sizes / 2, centers + sizes / 2], 1)
        order = scores.flatten().argsort(descending=True)[: self.pre_nms_top_n]
        dets = torch.cat([boxes[order], scores.flatten()[order, None]], 1)
        keep = nms(dets, self.thresh, min(self.post_nms_top_n, len(order)))
        return dets[keep][: self.post_nms_top_n]


class RPN(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, 32, 3, 4, 1), nn.ReLU())
        self.score = nn.Conv2d(32, 1, 1)
        self.delta = nn.Conv2d(32, 2, 1)
        self.proposals = ProposalLayer()

    def forward(self, img):
        x = self.body(img)
        return self.proposals(self.score(x)[0, 0].sigmoid(), 0.1 * self.delta(x)[0])


@torch.no_grad()
def main():
    torch.manual_seed(0)
    model = RPN().eval()
    for i, size in enumerate([128, 128, 256, 256, 512, 512]):
        img = torch.rand(1, 3, size, size)
        rois = model(img)
        print(f"image {i} ({size}x{size}): {len(rois)} proposals, best {rois[0, 4]:.3f}", flush=True)


if __name__ == "__main__":
    main()
