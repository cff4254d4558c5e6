import ctypes
import os
import subprocess
import tempfile
import torch

SOURCE = r"""
#include <stdio.h>
#include <string.h>
static int read_into(const char *name, float *out, int n) {
    FILE *f = fopen(name, "rb");
    if (!f) return -1;
    int got = fread(out, sizeof(float), n, f);
    fclose(f);
    return got;
}
int load_scan(const char *folder, const char *patient, int slice, float *out, int n) {
    char name[96];
    sprintf(name, "%s/%s/slice_%04d.raw", folder, patient, slice);
    return read_into(name, out, n);
}
"""
SIDE = 32


def build():
    place = tempfile.mkdtemp()
    src, lib = os.path.join(place, "scans.c"), os.path.join(place, "libscans.so")
    open(src, "w").write(SOURCE)
    subprocess.run(["gcc", "-O1", "-g", "-fstack-protector-strong", "-w", "-shared", "-fPIC", "-o", lib, src], check=True)
    return ctypes.CDLL(lib)


LIB = build()


class Scans(torch.utils.data.Dataset):
    def __init__(self, folder, patients, slices=4):
        self.folder = folder
        self.items = [(p, s) for p in patients for s in range(slices)]
        for p, s in self.items:
            os.makedirs(os.path.join(folder, p), exist_ok=True)
            torch.rand(SIDE * SIDE).numpy().tofile(os.path.join(folder, p, f"slice_{s:04d}.raw"))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        patient, s = self.items[i]
        out = torch.empty(SIDE, SIDE)
        got = LIB.load_scan(self.folder.encode(), patient.encode(), s, ctypes.c_void_p(out.data_ptr()), SIDE * SIDE)
        assert got == SIDE * SIDE, (patient, s, got)
        return out[None]


root = tempfile.mkdtemp()
patients = ["anna", "bert", "multicentre-study-2024-follow-up-after-twelve-months-with-contrast-agent-patient-000317"]
net = torch.nn.Conv2d(1, 4, 3)
for batch in torch.utils.data.DataLoader(Scans(root, patients), batch_size=2):
    print(tuple(batch.shape), round(float(net(batch).abs().mean()), 4), flush=True)
