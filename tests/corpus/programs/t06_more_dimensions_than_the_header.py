"""A reader in C has room for the sizes of 8 dimensions; a file has more."""

import ctypes
import subprocess
import tempfile
from pathlib import Path

import numpy as np

SOURCE = """
#include <stdint.h>
static int64_t product(const int64_t *sizes, int count) {
    int64_t all = 1;
    for (int i = 0; i < count; i++) all *= sizes[i];
    return all;
}
int64_t elements(const int64_t *header, int count) {
    int64_t sizes[8];
    for (int i = 0; i < count; i++) sizes[i] = header[i];
    return product(sizes, count < 8 ? count : 8);
}
"""


def build(folder):
    source, library = Path(folder, "reader.c"), Path(folder, "libreader.so")
    source.write_text(SOURCE)
    options = ["-O0", "-g", "-fstack-protector-all", "-shared", "-fPIC"]
    subprocess.run(["gcc", *options, str(source), "-o", str(library)], check=True)
    return ctypes.CDLL(str(library))


def elements(reader, sizes):
    header = np.array(sizes, dtype=np.int64)
    return reader.elements(header.ctypes.data_as(ctypes.c_void_p), len(sizes))


with tempfile.TemporaryDirectory() as folder:
    reader = build(folder)
    print(elements(reader, [64, 64, 3]))
    print(elements(reader, [2] * 10))
