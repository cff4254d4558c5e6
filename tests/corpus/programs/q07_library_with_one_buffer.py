"""A library in C has one buffer for all its calls; two threads load files with it at once."""

import ctypes
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch

SOURCE = """
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static float *buffer;
static void fill(long count) {
    for (long i = 0; i < count; i++) {
        buffer[i] = (float)i;
        if (i % 65536 == 0) usleep(2000);  /* waits for the disk */
    }
}
void decode(float *out, long count) {
    free(buffer);
    buffer = calloc(count, sizeof(float));
    fill(count);
    memcpy(out, buffer, count * sizeof(float));
    free(buffer);
    buffer = 0;
}
"""


def build(folder):
    source, library = Path(folder, "decoder.c"), Path(folder, "libdecoder.so")
    source.write_text(SOURCE)
    subprocess.run(["gcc", "-O1", "-g", "-shared", "-fPIC", str(source), "-o", str(library)], check=True)
    decoder = ctypes.CDLL(str(library))
    decoder.decode.argtypes, decoder.decode.restype = [ctypes.c_void_p, ctypes.c_long], None
    return decoder


def load(decoder, count):
    samples = torch.empty(count)
    decoder.decode(samples.data_ptr(), count)
    return samples.mean()


def load_all(decoder, counts, threads):
    with ThreadPoolExecutor(threads, thread_name_prefix="loader") as pool:
        return list(pool.map(lambda count: load(decoder, count), counts))


with tempfile.TemporaryDirectory() as folder:
    decoder = build(folder)
    print(load_all(decoder, [1_000_000, 2_000_000], 1))
    print(load_all(decoder, [8_000_000, 200_000], 2))
