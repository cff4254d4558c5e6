import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

VOCABULARY, LENGTH, MASK = 1000, 32, 3


class BertDataset(Dataset):
    def __init__(self, documents, num_samples, seed):
        self.documents = documents
        self.num_samples = num_samples
        self.seed = seed

    def __len__(self):
        return self.num_samples

    def __getitem__(self, idx):
        tokens = self.documents[idx % len(self.documents)]
        np_rng = np.random.RandomState(seed=(self.seed + idx))
        masked = np_rng.rand(LENGTH) < 0.15
        return torch.from_numpy(np.where(masked, MASK, tokens)), torch.from_numpy(tokens)


class PretrainingSampler:
    def __init__(self, total_samples, consumed_samples, batch_size):
        self.total_samples = total_samples
        self.consumed_samples = consumed_samples
        self.batch_size = batch_size

    def __iter__(self):
        for start in range(self.consumed_samples, self.total_samples - self.batch_size + 1, self.batch_size):
            yield list(range(start, start + self.batch_size))


def pretrain(iteration, train_iters, batch_size=64, global_batch_size=7808, seed=1234):
    documents = np.random.RandomState(seed).randint(4, VOCABULARY, (500, LENGTH))
    total = train_iters * global_batch_size
    dataset = BertDataset(documents, total, seed)
    sampler = PretrainingSampler(total, iteration * global_batch_size, batch_size)
    model = nn.Sequential(nn.Embedding(VOCABULARY, 64), nn.Linear(64, VOCABULARY))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for step, (tokens, labels) in enumerate(DataLoader(dataset, batch_sampler=sampler, num_workers=2)):
        loss = nn.functional.cross_entropy(model(tokens).flatten(0, 1), labels.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(f"consumed samples {sampler.consumed_samples + step * batch_size} | lm loss {loss.item():.3f}", flush=True)


if __name__ == "__main__":
    torch.manual_seed(0)
    pretrain(iteration=550072, train_iters=1000000)
