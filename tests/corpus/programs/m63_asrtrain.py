"""Train a small acoustic model on two ranks, validate after every epoch and
keep 'last' and the previous checkpoint. torchrun --standalone --nproc-per-node 2"""
import os
import shutil
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

RUN = "/tmp/m63_asrtrain_run"
FEATS, LABELS = 40, 28
EPOCHS = 4


def make_utterances(n, seed, lo=20, hi=60):
    g = torch.Generator().manual_seed(seed)
    frames = torch.randint(lo, hi, (n,), generator=g).tolist()
    return [(torch.randn(t, FEATS, generator=g), torch.randint(0, LABELS, (t,), generator=g)) for t in frames]


class AcousticModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.context = nn.Conv1d(FEATS, 64, 5, padding=2)
        self.out = nn.Linear(64, LABELS)

    def forward(self, x):
        return self.out(self.context(x.transpose(1, 2)).relu().transpose(1, 2))


class Decoder:
    """Greedy decoding with a little prefix search for long recordings."""

    def __init__(self, model):
        self.model = model

    def __call__(self, feats):
        logp = self.model(feats[None]).log_softmax(-1)[0]
        hyp = logp.argmax(-1)
        if len(feats) > 400:
            beam = logp[:, :8].double()
            deadline = time.monotonic() + 0.05
            while time.monotonic() < deadline:
                beam = torch.logaddexp(beam, beam.roll(1, 0) - 0.1)
        return hyp


class CheckpointKeeper:
    def __init__(self, folder, rank):
        self.folder, self.rank = folder, rank
        self.last = os.path.join(folder, "last.pt")
        self.previous = os.path.join(folder, "previous.pt")

    def rotate(self):
        if self.rank == 0:
            shutil.copyfile(self.last, self.previous)
        dist.barrier()

    def save(self, model, epoch, wer):
        if os.path.exists(self.last):
            self.rotate()
        if self.rank == 0:
            state = {"model": model.module.state_dict(), "epoch": epoch, "wer": wer}
            torch.save(state, self.last + ".tmp")
            os.replace(self.last + ".tmp", self.last)


class Trainer:
    def __init__(self, rank, world):
        self.rank = rank
        torch.manual_seed(0)
        self.model = DDP(AcousticModel())
        self.opt = torch.optim.Adam(self.model.parameters(), lr=2e-3)
        self.train_set = make_utterances(24, seed=10 + rank)
        valid = make_utterances(20, seed=3) + make_utterances(20, seed=4, lo=600, hi=900)
        per_rank = len(valid) // world
        self.valid_set = valid[rank * per_rank:(rank + 1) * per_rank]
        self.keeper = CheckpointKeeper(RUN, rank)

    def train_epoch(self):
        self.model.train()
        total = 0.0
        for feats, labels in self.train_set:
            loss = nn.functional.cross_entropy(self.model(feats[None])[0], labels)
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
            total += loss.item()
        return total / len(self.train_set)

    @torch.no_grad()
    def validate(self):
        self.model.eval()
        decode = Decoder(self.model.module)
        wrong = count = 0
        for feats, labels in self.valid_set:
            wrong += (decode(feats) != labels).sum().item()
            count += len(labels)
        return wrong / count

    def fit(self):
        for epoch in range(EPOCHS):
            loss = self.train_epoch()
            wer = self.validate()
            self.keeper.save(self.model, epoch, wer)
            print(f"rank {self.rank} epoch {epoch} loss {loss:.3f} error {wer:.3f}", flush=True)


def main():
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    if rank == 0:
        shutil.rmtree(RUN, ignore_errors=True)
        os.makedirs(RUN)
    dist.barrier()
    Trainer(rank, world).fit()
    dist.barrier()
    dist.destroy_process_group()
    if rank == 0:
        print("finished", flush=True)


if __name__ == "__main__":
    main()
