import argparse
import ctypes
import logging
import os.path as osp
import subprocess
import tempfile
import time

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

logging.basicConfig(level=logging.INFO, format="[%(asctime)s] [%(levelname).4s] %(message)s")
logger = logging.getLogger("tester")


class CppSubsample:
    def __init__(self):
        source = osp.join(osp.dirname(osp.abspath(__file__)), "c204_subsample.c")
        target = osp.join(tempfile.mkdtemp(prefix="cpp_wrappers_"), "cpp_subsampling.so")
        subprocess.run(["gcc", "-O1", "-g", "-shared", "-fPIC", source, "-o", target, "-lm"], check=True)
        self.lib = ctypes.CDLL(target)
        self.lib.subsample_batch.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32, ctypes.c_float,
                                             ctypes.c_void_p, ctypes.c_void_p]

    def subsample_batch(self, points, lengths, voxel_size):
        out = torch.empty_like(points)
        out_lengths = torch.empty_like(lengths)
        total = self.lib.subsample_batch(points.data_ptr(), lengths.data_ptr(), len(lengths), voxel_size,
                                         out.data_ptr(), out_lengths.data_ptr())
        return out[:total].clone(), out_lengths


cpp_subsample = CppSubsample()


def batch_grid_subsample_kpconv(points, lengths, voxel_size):
    return cpp_subsample.subsample_batch(points.contiguous(), lengths.int().contiguous(), voxel_size)


def batch_neighbors(queries, supports, q_lengths, s_lengths, k):
    index, s_offset = [], 0
    for q, s in zip(queries.split(q_lengths.tolist()), supports.split(s_lengths.tolist())):
        index.append(torch.cdist(q, s).topk(k, largest=False).indices + s_offset)
        s_offset += len(s)
    return torch.cat(index)


def generate_input_data(points, lengths, num_stages, voxel_size, k):
    stages = []
    for _ in range(num_stages):
        neighbors = batch_neighbors(points, points, lengths, lengths, k)
        stages.append({"points": points, "lengths": lengths, "neighbors": neighbors})
        points, lengths = batch_grid_subsample_kpconv(points, lengths, voxel_size)
        voxel_size *= 2
    return stages


class ScenePairs(Dataset):
    def __init__(self, count, seed=0):
        self.count, self.seed = count, seed

    def __len__(self):
        return self.count

    def __getitem__(self, i):
        rng = np.random.default_rng(self.seed + i)
        scene = rng.uniform(-1, 1, (1200, 3))
        scene[:, 2] = 0.2 * np.sin(3 * scene[:, 0]) * np.cos(2 * scene[:, 1])
        angle = rng.uniform(0, np.pi / 4)
        rot = np.array([[np.cos(angle), -np.sin(angle), 0], [np.sin(angle), np.cos(angle), 0], [0, 0, 1]])
        shift = rng.uniform(-0.3, 0.3, 3)
        src = scene[rng.permutation(1200)[:900]]
        ref = scene[rng.permutation(1200)[:900]] @ rot.T + shift
        return {"src": torch.from_numpy(src).float(), "ref": torch.from_numpy(ref).float(),
                "rot": torch.from_numpy(rot).float(), "shift": torch.from_numpy(shift).float()}


class RegistrationCollate:
    def __init__(self, num_stages=3, voxel_size=0.1, k=12):
        self.args = (num_stages, voxel_size, k)

    def __call__(self, batch):
        item = batch[0]
        points = torch.cat([item["ref"], item["src"]])
        lengths = torch.tensor([len(item["ref"]), len(item["src"])])
        return generate_input_data(points, lengths, *self.args), item


class Encoder(nn.Module):
    def __init__(self, dim=32):
        super().__init__()
        self.layers = nn.ModuleList([nn.Sequential(nn.Linear(3, dim), nn.LeakyReLU(0.1), nn.Linear(dim, dim))
                                     for _ in range(3)])

    def forward(self, stages):
        feats = None
        for layer, stage in zip(self.layers, stages):
            local = stage["points"][stage["neighbors"]] - stage["points"].unsqueeze(1)
            feats = layer(local).amax(dim=1)
        return nn.functional.normalize(feats, dim=1)


def procrustes(src, ref, weight):
    weight = (weight / weight.sum()).unsqueeze(1)
    src_c, ref_c = (weight * src).sum(0), (weight * ref).sum(0)
    u, _, vt = torch.linalg.svd(((src - src_c) * weight).T @ (ref - ref_c))
    d = torch.diag(torch.tensor([1.0, 1.0, torch.sign(torch.det(vt.T @ u.T)).item()]))
    rot = vt.T @ d @ u.T
    return rot, ref_c - rot @ src_c


@torch.no_grad()
def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--pairs", type=int, default=12)
    args = parser.parse_args()
    torch.manual_seed(0)
    loader = DataLoader(ScenePairs(args.pairs), batch_size=1, collate_fn=RegistrationCollate())
    model = Encoder().eval()
    logger.info("Testing on %d scene pairs, %d parameters", args.pairs, sum(p.numel() for p in model.parameters()))
    errors = []
    for i, (stages, item) in enumerate(loader):
        start = time.time()
        feats = model(stages)
        n_ref, n_src = stages[-1]["lengths"].tolist()
        ref_f, src_f = feats.split([n_ref, n_src])
        ref_p, src_p = stages[-1]["points"].split([n_ref, n_src])
        score, match = (src_f @ ref_f.T).max(dim=1)
        rot, shift = procrustes(src_p, ref_p[match], score.clamp(min=1e-3))
        errors.append((shift - item["shift"]).norm().item())
        logger.info("pair %d: RTE %.3f, time %.3fs", i, errors[-1], time.time() - start)
    logger.info("mean RTE %.3f", sum(errors) / len(errors))


if __name__ == "__main__":
    main()
