"""Train a small regressor on weather-station text shards, parsed by a native multi-threaded reader."""
import argparse
import ctypes
import os
import subprocess
import tempfile

import numpy as np
import torch
import torch.nn as nn

READER = r"""
#include <cstdio>
#include <cstring>
#include <exception>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

static std::vector<std::string> read_lines(const char *path) {
  std::ifstream in(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);)
    if (!line.empty()) lines.push_back(line);
  return lines;
}

static void parse_rows(const std::vector<std::string> &lines, size_t lo, size_t hi, int cols, float *out) {
  for (size_t r = lo; r < hi; ++r) {
    size_t pos = 0;
    for (int c = 0; c < cols; ++c) {
      size_t end = lines[r].find(',', pos);
      out[r * cols + c] = std::stof(lines[r].substr(pos, end - pos));
      pos = end + 1;
    }
  }
}

extern "C" long shard_rows(const char *path) { return (long)read_lines(path).size(); }

extern "C" int shard_read(const char *path, float *out, int cols, int nthreads, char *message, int size) {
  try {
    const std::vector<std::string> lines = read_lines(path);
    if (nthreads <= 1) {
      parse_rows(lines, 0, lines.size(), cols, out);
      return 0;
    }
    std::vector<std::thread> pool;
    const size_t step = (lines.size() + nthreads - 1) / nthreads;
    for (size_t lo = 0; lo < lines.size(); lo += step) {
      const size_t hi = std::min(lo + step, lines.size());
      pool.emplace_back([&lines, lo, hi, cols, out] { parse_rows(lines, lo, hi, cols, out); });
    }
    for (auto &t : pool) t.join();
    return 0;
  } catch (const std::exception &e) {
    std::snprintf(message, size, "%s", e.what());
    return -1;
  }
}
"""


class ShardReader:
    def __init__(self, folder, threads):
        src, lib = os.path.join(folder, "reader.cpp"), os.path.join(folder, "libreader.so")
        with open(src, "w") as f:
            f.write(READER)
        subprocess.check_call(["g++", "-std=c++17", "-O1", "-g", "-shared", "-fPIC", "-pthread", src, "-o", lib])
        self.dll = ctypes.CDLL(lib)
        self.dll.shard_rows.argtypes, self.dll.shard_rows.restype = [ctypes.c_char_p], ctypes.c_long
        self.dll.shard_read.argtypes = [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_int,
                                        ctypes.c_char_p, ctypes.c_int]
        self.threads = threads

    def read(self, path, cols):
        out = np.empty((self.dll.shard_rows(path.encode()), cols), dtype=np.float32)
        message = ctypes.create_string_buffer(200)
        if self.dll.shard_read(path.encode(), out.ctypes.data, cols, self.threads, message, 200):
            raise ValueError(f"{os.path.basename(path)}: {message.value.decode()}")
        return torch.from_numpy(out)


def write_shards(folder, count, rows):
    rng = np.random.default_rng(5)
    paths = []
    for k in range(count):
        temp, hum, wind = rng.normal(15, 8, rows), rng.uniform(20, 100, rows), rng.gamma(2.0, 2.0, rows)
        dew = temp - (100 - hum) / 5 + 0.1 * wind
        lines = [f"{t:.2f},{h:.1f},{w:.2f},{d:.2f}" for t, h, w, d in zip(temp, hum, wind, dew)]
        if k == 3:
            lines[rows - 17] = f"{temp[rows - 17]:.2f},NULL,{wind[rows - 17]:.2f},{dew[rows - 17]:.2f}"
        paths.append(os.path.join(folder, f"station_{k:02d}.csv"))
        with open(paths[-1], "w") as f:
            f.write("\n".join(lines) + "\n")
    return paths


def train_shard(model, optimizer, table):
    x = (table[:, :3] - torch.tensor([15.0, 60.0, 4.0])) / torch.tensor([8.0, 25.0, 3.0])
    y = table[:, 3:] / 10
    for xb, yb in zip(x.split(256), y.split(256)):
        loss = nn.functional.mse_loss(model(xb), yb)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--shards", type=int, default=6)
    p.add_argument("--rows", type=int, default=8000)
    p.add_argument("--threads", type=int, default=2)
    args = p.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        reader = ShardReader(folder, args.threads)
        model = nn.Sequential(nn.Linear(3, 32), nn.ReLU(), nn.Linear(32, 1))
        optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
        for path in write_shards(folder, args.shards, args.rows):
            try:
                table = reader.read(path, 4)
            except ValueError as e:
                print("skipping", e, flush=True)
                continue
            print(f"{os.path.basename(path)}: {len(table)} rows, loss {train_shard(model, optimizer, table):.4f}", flush=True)
    print("done")


if __name__ == "__main__":
    main()
