import ctypes
import os
import resource
import struct
import subprocess
import tempfile

import torch

MEMORY_OF_THE_SERVER = 4 << 30

SOURCE = r"""
#include <cstdint>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

struct Model {
    int64_t words, dim;
    std::vector<float> input, output;

    void load(const std::string &path) {
        std::ifstream file(path, std::ios::binary);
        file.read(reinterpret_cast<char *>(&words), sizeof words);
        file.read(reinterpret_cast<char *>(&dim), sizeof dim);
        input.resize(words * dim);
        output.resize(words * dim);
        file.read(reinterpret_cast<char *>(input.data()), 1 << 20);
    }
};

static Model model;

extern "C" int64_t load_model(const char *path) {
    model.load(path);
    return model.dim;
}

extern "C" void embed(const int64_t *ids, int64_t n, float *out) {
    std::memset(out, 0, model.dim * sizeof(float));
    for (int64_t i = 0; i < n; i++)
        for (int64_t d = 0; d < model.dim; d++) out[d] += model.input[ids[i] * model.dim + d] / n;
}
"""


def build(folder):
    source = os.path.join(folder, "sent2vec.cpp")
    with open(source, "w") as file:
        file.write(SOURCE)
    target = os.path.join(folder, "sent2vec.so")
    subprocess.check_call(["g++", "-O2", "-g", "-fPIC", "-shared", source, "-o", target])
    lib = ctypes.CDLL(target)
    lib.load_model.argtypes, lib.load_model.restype = [ctypes.c_char_p], ctypes.c_int64
    lib.embed.argtypes = [ctypes.c_void_p, ctypes.c_int64, ctypes.c_void_p]
    return lib


def write_model(path, words, dim):
    with open(path, "wb") as file:
        file.write(struct.pack("qq", words, dim))
        file.write(torch.randn(1 << 18).numpy().tobytes())


class Embedder:
    def __init__(self, lib, path):
        self.lib = lib
        self.dim = lib.load_model(path.encode())

    def __call__(self, ids):
        out = torch.empty(self.dim)
        self.lib.embed(ids.data_ptr(), ids.numel(), out.data_ptr())
        return out


def rank_phrases(lib, path):
    embedder = Embedder(lib, path)
    document = embedder(torch.randint(0, 300, (200,)))
    phrases = torch.stack([embedder(torch.randint(0, 300, (3,))) for _ in range(20)])
    return torch.nn.functional.cosine_similarity(phrases, document, dim=1).topk(5).indices.tolist()


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_OF_THE_SERVER, MEMORY_OF_THE_SERVER))
    with tempfile.TemporaryDirectory() as folder:
        lib = build(folder)
        for name, words, dim in [("toronto_unigrams.bin", 20_000, 100), ("wiki_bigrams.bin", 1_500_000, 700)]:
            path = os.path.join(folder, name)
            write_model(path, words, dim)
            print(name, rank_phrases(lib, path), flush=True)
