"""Body pose: heat maps from the network, peaks found by a small C++ helper."""
import ctypes
import os
import subprocess
import tempfile

import torch
import torch.nn as nn

SOURCE = r"""
#include <cstring>
#include <vector>

extern "C" void find_peaks(const float* net_output, int parts, int h, int w, float* peaks) {
    const int total = parts * h * w;
    float* list = new float(total);
    std::memcpy(list, net_output, total * sizeof(float));
    for (int p = 0; p < parts; ++p) {
        float* map = list + p * h * w;
        int best = 0;
        for (int i = 1; i < h * w; ++i)
            if (map[i] > map[best]) best = i;
        peaks[p * 3 + 0] = static_cast<float>(best % w);
        peaks[p * 3 + 1] = static_cast<float>(best / w);
        peaks[p * 3 + 2] = map[best];
    }
    delete list;
}
"""


def build_decoder(folder):
    src, lib = os.path.join(folder, "decode.cpp"), os.path.join(folder, "libdecode.so")
    with open(src, "w") as f:
        f.write(SOURCE)
    subprocess.run(["g++", "-O1", "-g", "-fPIC", "-shared", src, "-o", lib], check=True)
    decoder = ctypes.CDLL(lib)
    decoder.find_peaks.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_void_p]
    decoder.find_peaks.restype = None
    return decoder


class PoseNet(nn.Module):
    def __init__(self, parts=57):
        super().__init__()
        self.backbone = nn.Sequential(
            nn.Conv2d(3, 16, 3, stride=2, padding=1), nn.ReLU(),
            nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.ReLU(),
            nn.Conv2d(32, 32, 3, stride=2, padding=1), nn.ReLU(),
        )
        self.head = nn.Conv2d(32, parts, 1)

    def forward(self, x):
        return self.head(self.backbone(x))


def decode(decoder, heatmaps):
    heatmaps = heatmaps.contiguous()
    parts, h, w = heatmaps.shape
    peaks = torch.zeros(parts, 3)
    decoder.find_peaks(heatmaps.data_ptr(), parts, h, w, peaks.data_ptr())
    return peaks


def main():
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        decoder = build_decoder(folder)
    model = PoseNet().eval()
    poses = []
    for frame in range(200):
        image = torch.rand(1, 3, 64, 64)
        with torch.no_grad():
            heatmaps = model(image)[0]
        poses.append(decode(decoder, heatmaps))
        if frame % 50 == 0:
            print("frame", frame, "best score", round(poses[-1][:, 2].max().item(), 4), flush=True)
    print("decoded", len(poses), "frames")


if __name__ == "__main__":
    main()
