"""Frame-level acoustic model; saves intra-epoch checkpoints every few minutes and once per epoch."""
import argparse
import logging
import os
import tempfile
import time

import numpy as np
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

logger = logging.getLogger("brain")
PHONES = 40


def log_mel(signal, frame=400, hop=160, bins=40):
    frames = np.lib.stride_tricks.sliding_window_view(signal, frame)[::hop] * np.hanning(frame)
    power = np.abs(np.fft.rfft(frames, 512)) ** 2
    bands = np.array_split(power[:, :-1], bins, axis=1)
    return np.log(np.stack([b.mean(axis=1) for b in bands], axis=1) + 1e-6).astype(np.float32)


class UtteranceDataset(Dataset):
    def __init__(self, count, seconds, seed):
        rng = np.random.default_rng(seed)
        self.items = []
        for _ in range(count):
            feats = log_mel(rng.standard_normal(int(16000 * seconds)))
            self.items.append((torch.from_numpy(feats), torch.from_numpy(rng.integers(0, PHONES, len(feats)))))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]


class AcousticModel(nn.Module):
    def __init__(self, bins=40, width=96):
        super().__init__()
        self.conv = nn.Sequential(nn.Conv1d(bins, width, 5, padding=2), nn.BatchNorm1d(width), nn.ReLU(),
                                  nn.Conv1d(width, width, 5, padding=2), nn.BatchNorm1d(width), nn.ReLU())
        self.out = nn.Linear(width, PHONES)

    def forward(self, feats):
        return self.out(self.conv(feats.transpose(1, 2)).transpose(1, 2))


def if_main_process():
    return dist.get_rank() == 0


def run_on_main(func, *args):
    if if_main_process():
        func(*args)
    dist.barrier()


class Brain:
    def __init__(self, module, hparams, save_folder):
        self.module = DistributedDataParallel(module)
        self.optimizer = torch.optim.Adam(self.module.parameters(), lr=hparams.lr)
        self.hparams = hparams
        self.save_folder = save_folder
        self.step = 0

    def save_checkpoint(self, name):
        state = {"model": self.module.module.state_dict(), "optimizer": self.optimizer.state_dict(), "step": self.step}
        torch.save(state, os.path.join(self.save_folder, f"CKPT_{name}.pt"))
        logger.info("saved %s checkpoint at step %d", name, self.step)

    def fit_batch(self, feats, phones):
        loss = F.cross_entropy(self.module(feats).flatten(0, 1), phones.flatten())
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.step += 1
        return loss.item()

    def evaluate(self, valid_set):
        self.module.eval()
        with torch.no_grad():
            errors = [(self.module.module(f[None]).argmax(-1)[0] != p).float().mean() for f, p in valid_set]
        logger.info("valid frame error %.3f", torch.stack(errors).mean().item())

    def fit(self, train_loader, valid_set):
        interval = self.hparams.ckpt_interval_minutes * 60
        if if_main_process():
            self.evaluate(valid_set)
        last_ckpt_time = time.time()
        for epoch in range(self.hparams.number_of_epochs):
            self.module.train()
            train_loader.sampler.set_epoch(epoch)
            for feats, phones in train_loader:
                loss = self.fit_batch(feats, phones)
                if if_main_process() and self.step % 10 == 0:
                    logger.info("epoch %d step %d loss %.3f", epoch, self.step, loss)
                if interval > 0 and time.time() - last_ckpt_time >= interval:
                    run_on_main(self.save_checkpoint, "intra_epoch")
                    last_ckpt_time = time.time()
            run_on_main(self.save_checkpoint, f"epoch_{epoch}")
        if if_main_process():
            self.evaluate(valid_set)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--number_of_epochs", type=int, default=40)
    parser.add_argument("--batch_size", type=int, default=8)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--ckpt_interval_minutes", type=float, default=0.05)
    hparams = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s - %(message)s")
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(3456)
    folder = [tempfile.mkdtemp(prefix="asr_brain_") if if_main_process() else None]
    dist.broadcast_object_list(folder, src=0)

    train_set = UtteranceDataset(480, 1.0, seed=1)
    valid_set = UtteranceDataset(120, 2.5, seed=2) if if_main_process() else None
    loader = DataLoader(train_set, hparams.batch_size, sampler=DistributedSampler(train_set), drop_last=True)
    brain = Brain(AcousticModel(), hparams, folder[0])
    brain.fit(loader, valid_set)
    if if_main_process():
        logger.info("training finished after %d steps", brain.step)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
