"""Train a sentence classifier on two processes; snapshots of the tables are written by forked children."""
import argparse
import os
import pickle
import signal
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


class Recorder:
    """Writes each logged object in a child of its own, so that the caller does not wait for the disk."""

    def __init__(self, folder):
        self.folder = folder
        self.count = 0
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)

    def log(self, name, value):
        self.count += 1
        path = os.path.join(self.folder, f"{self.count:03d}_{name}.pkl")
        if os.fork() == 0:
            with open(path, "wb") as f:
                pickle.dump(value, f)
            os._exit(0)
        return path


class Classifier(nn.Module):
    def __init__(self, words, classes, width=48):
        super().__init__()
        self.embed = nn.EmbeddingBag(words, width)
        self.head = nn.Sequential(nn.Linear(width, 64), nn.GELU(), nn.Linear(64, classes))

    def forward(self, tokens):
        return self.head(self.embed(tokens))


def make_sentences(count, words, length, classes, seed):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, classes, (count,), generator=generator)
    tokens = torch.randint(0, words // 2, (count, length), generator=generator)
    tokens += labels[:, None] * (words // (2 * classes))
    return tokens, labels


def train(rank, args, port, folder):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=args.processes)
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)
    data = TensorDataset(*make_sentences(960, args.words, 24, args.classes, args.seed))
    sampler = DistributedSampler(data, shuffle=True, seed=args.seed)
    loader = DataLoader(data, batch_size=32, sampler=sampler)
    model = DDP(Classifier(args.words, args.classes))
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        correct = torch.zeros(2)
        for tokens, labels in loader:
            scores = model(tokens)
            loss = nn.functional.cross_entropy(scores, labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            correct += torch.tensor([(scores.argmax(1) == labels).sum(), len(labels)])
        dist.all_reduce(correct)
        if rank == 0:
            print(f"epoch {epoch} accuracy {correct[0] / correct[1]:.3f}", flush=True)
    if rank == 0:
        torch.save(model.module.state_dict(), os.path.join(folder, "model.pt"))
    dist.barrier()
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--words", type=int, default=800)
    parser.add_argument("--classes", type=int, default=4)
    parser.add_argument("--seed", type=int, default=5)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="sentences_") as folder:
        recorder = Recorder(folder)
        recorder.log("args", vars(args))
        recorder.log("vocabulary", {f"w{i}": i for i in range(args.words)})
        with dist_port() as port:
            mp.spawn(train, args=(args, port, folder), nprocs=args.processes, join=True)
        weights = torch.load(os.path.join(folder, "model.pt"))
        recorder.log("weights", {k: v.numpy() for k, v in weights.items()})
        print("trained", sum(v.numel() for v in weights.values()), "parameters", flush=True)


class dist_port:
    """A port that is free now."""

    def __enter__(self):
        import socket
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            return s.getsockname()[1]

    def __exit__(self, *exc):
        return False


if __name__ == "__main__":
    main()
