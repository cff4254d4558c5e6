"""Score a line-recognition network with the CTC cost of our C library."""
import ctypes
import os
import subprocess
import tempfile

import torch
from torch import nn

CTC_C = r"""
#include <math.h>
#include <stdlib.h>
static float lse(float a, float b) { float m = a > b ? a : b; return m < -1e29f ? m : m + logf(expf(a - m) + expf(b - m)); }
int cpu_ctc(const float *acts, const int *labels, const int *label_lens, const int *act_lens,
            int B, int C, float *costs)
{
    const int *lab = labels;
    for (int b = 0; b < B; b++) {
        int L = label_lens[b], S = 2 * L + 1;
        float *prev = malloc(S * sizeof(float)), *cur = malloc(S * sizeof(float));
        for (int s = 0; s < S; s++) prev[s] = -1e30f;
        prev[0] = 0.f;
        for (int t = 0; t < act_lens[b]; t++) {
            const float *p = acts + ((size_t)t * B + b) * C;
            for (int s = 0; s < S; s++) {
                int k = (s & 1) ? lab[s / 2] : 0;
                float a = prev[s];
                if (s > 0) a = lse(a, prev[s - 1]);
                if (s > 1 && (s & 1) && lab[s / 2] != lab[s / 2 - 1]) a = lse(a, prev[s - 2]);
                cur[s] = a + p[k];
            }
            float *tmp = prev; prev = cur; cur = tmp;
        }
        costs[b] = -lse(prev[S - 1], S > 1 ? prev[S - 2] : -1e30f);
        free(prev); free(cur); lab += L;
    }
    return 0;
}
"""


def build():
    folder = tempfile.mkdtemp(prefix="warpctc_")
    src, so = os.path.join(folder, "ctc.c"), os.path.join(folder, "libctc.so")
    with open(src, "w") as f:
        f.write(CTC_C)
    subprocess.check_call(["gcc", "-O2", "-g", "-shared", "-fPIC", src, "-o", so, "-lm"])
    return ctypes.CDLL(so)


class CTCCost:
    def __init__(self):
        self.lib = build()

    def __call__(self, acts, labels, act_lens, label_lens):
        acts = acts.log_softmax(-1).contiguous()
        T, B, C = acts.shape
        costs = torch.zeros(B)
        ptr = lambda t: ctypes.c_void_p(t.data_ptr())
        self.lib.cpu_ctc(ptr(acts), ptr(labels), ptr(label_lens), ptr(act_lens), B, C, ptr(costs))
        return costs


class LineNet(nn.Module):
    def __init__(self, height=32, n_classes=40):
        super().__init__()
        self.conv = nn.Sequential(nn.Conv2d(1, 16, 3, stride=2, padding=1), nn.ReLU(), nn.Conv2d(16, 32, 3, padding=1), nn.ReLU())
        self.rnn = nn.GRU(32 * height // 2, 64, bidirectional=True)
        self.fc = nn.Linear(128, n_classes)

    def forward(self, x):
        h = self.conv(x).flatten(1, 2).permute(2, 0, 1)
        return self.fc(self.rnn(h)[0])


def collate(lines):
    width = max(img.shape[-1] for img, _ in lines)
    images = torch.zeros(len(lines), 1, 32, width)
    percentages = torch.zeros(len(lines))
    for i, (img, _) in enumerate(lines):
        images[i, 0, :, : img.shape[-1]] = img
        percentages[i] = img.shape[-1] / width
    labels = torch.cat([text for _, text in lines])
    label_sizes = torch.tensor([len(text) for _, text in lines], dtype=torch.int32)
    return images, labels, percentages, label_sizes


def main():
    torch.manual_seed(0)
    model, criterion = LineNet().eval(), CTCCost()
    data = [(torch.rand(32, w), torch.randint(1, 40, (n,), dtype=torch.int32)) for w, n in [(200, 9), (160, 7), (240, 12), (120, 5)]]
    with torch.no_grad():
        images, labels, percentages, label_sizes = collate(data)
        out = model(images)
        sizes = percentages.mul_(out.shape[0]).round()
        print("scoring", len(data), "lines of", out.shape[0], "steps", flush=True)
        print("mean cost", criterion(out, labels, sizes, label_sizes).mean().item())


if __name__ == "__main__":
    main()
