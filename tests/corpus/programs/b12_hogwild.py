import torch
import torch.multiprocessing as mp
from torch import nn


def tokenize(line):
    return [hash_char(c) for c in line]


def hash_char(c):
    return (ord(c) * 31) % 97


def prepare(lines):
    with mp.Pool(2) as pool:
        return torch.tensor(pool.map(tokenize, lines))


def train(rank, model, data):
    torch.manual_seed(rank)
    torch.set_num_threads(1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for epoch in range(3):
        ids = data[torch.randperm(len(data))[:16]]
        loss = nn.functional.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"worker {rank} epoch {epoch} loss {loss.item():.3f}", flush=True)


def main():
    torch.manual_seed(1)
    torch.set_num_threads(1)
    lines = [f"sentence number {i:04d} of the corpus" for i in range(64)]
    data = prepare(lines)
    mp.set_start_method("spawn")
    model = nn.Sequential(nn.Embedding(97, 16), nn.Linear(16, 97))
    model.share_memory()
    processes = []
    for rank in range(2):
        p = mp.Process(target=train, args=(rank, model, data))
        p.start()
        processes.append(p)
    for p in processes:
        p.join()


if __name__ == "__main__":
    main()
