"""Run the detector over the recorded frames of a camera and write the found objects to a log."""
import argparse
import ctypes as C
import json
import os
import subprocess
import tempfile

import torch
import torch.nn as nn

LIB_SRC = r"""
#include <stdlib.h>
typedef struct { float x, y, w, h; } box;

typedef struct detection {
    box bbox;
    int classes;
    float *prob;
    float *mask;
    float objectness;
    int sort_class;
    float *uc;
    int points;
} detection;
detection *get_network_boxes(const float *map, int grid, int classes, float thresh, int *num)
{
    int cells = grid * grid, n = 0, i, c;
    for (i = 0; i < cells; i++) if (map[i] > thresh) n++;
    detection *dets = calloc(n ? n : 1, sizeof(detection));
    n = 0;
    for (i = 0; i < cells; i++) {
        if (map[i] <= thresh) continue;
        detection *d = dets + n++;
        d->bbox.x = (i % grid + 0.5f) / grid; d->bbox.y = (i / grid + 0.5f) / grid;
        d->bbox.w = 0.18f + 0.01f * (i % 3);  d->bbox.h = 0.24f + 0.02f * (i % 5);
        d->classes = classes;
        d->objectness = map[i];
        d->prob = calloc(classes, sizeof(float));
        for (c = 0; c < classes; c++) d->prob[c] = map[(1 + c) * cells + i] * map[i];
        d->uc = calloc(4, sizeof(float));
        d->sort_class = -1;
    }
    *num = n; return dets;
}
void free_detections(detection *dets, int n)
{
    for (int i = 0; i < n; i++) { free(dets[i].prob); free(dets[i].mask); free(dets[i].uc); }
    free(dets);
}
"""


class BOX(C.Structure):
    _fields_ = [("x", C.c_float), ("y", C.c_float), ("w", C.c_float), ("h", C.c_float)]


class DETECTION(C.Structure):
    _fields_ = [("bbox", BOX),
                ("classes", C.c_int),
                ("prob", C.POINTER(C.c_float)),
                ("mask", C.POINTER(C.c_float)),
                ("objectness", C.c_float),
                ("sort_class", C.c_int)]


def load_library(folder):
    src, lib = os.path.join(folder, "darknet.c"), os.path.join(folder, "libdarknet.so")
    with open(src, "w") as f:
        f.write(LIB_SRC)
    subprocess.check_call(["gcc", "-O2", "-g", "-shared", "-fPIC", src, "-o", lib])
    dn = C.CDLL(lib)
    dn.get_network_boxes.argtypes = [C.c_void_p, C.c_int, C.c_int, C.c_float, C.POINTER(C.c_int)]
    dn.get_network_boxes.restype = C.POINTER(DETECTION)
    dn.free_detections.argtypes = [C.POINTER(DETECTION), C.c_int]
    return dn


class Yolo:
    def __init__(self, dn, names, grid=13):
        self.dn, self.names, self.grid = dn, names, grid
        self.pool, self.cls = nn.AvgPool2d(8), nn.Conv2d(1, len(names), 1)

    @torch.no_grad()
    def detect(self, frame, thresh=0.5):
        cells = self.pool(frame[None, None])
        fmap = torch.cat([cells, self.cls(cells).softmax(1)], 1).contiguous()
        num = C.c_int(0)
        dets = self.dn.get_network_boxes(fmap.data_ptr(), self.grid, len(self.names), thresh, C.byref(num))
        found = []
        for j in range(num.value):
            for k, name in enumerate(self.names):
                score = dets[j].prob[k]
                if score > 0.2:
                    b = dets[j].bbox
                    found.append((name, round(score, 3), (b.x, b.y, b.w, b.h)))
        self.dn.free_detections(dets, num.value)
        return found


def record(frames, size):
    for i in range(frames):
        frame = torch.rand(size, size) * 0.2
        for obj in range(1 + (i > 24)):
            y, x = 8 * (2 + (i + 5 * obj) % 9), 8 * (1 + i % 11)
            frame[y:y + 8, x:x + 8] = 0.9
        yield i, frame


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--frames", type=int, default=60)
    args = ap.parse_args()
    torch.manual_seed(3)
    with tempfile.TemporaryDirectory() as folder:
        yolo = Yolo(load_library(folder), ["person", "car", "dog"])
        events = 0
        for i, frame in record(args.frames, 104):
            for name, score, box in yolo.detect(frame):
                events += 1
                if events % 10 == 0:
                    print(json.dumps({"frame": i, "label": name, "score": score}), flush=True)
        print("frames", args.frames, "events", events)


if __name__ == "__main__":
    main()
