from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from torch import nn


class SentenceEncoder(nn.Module):
    def __init__(self, vocab_size=5000, dim=64):
        super().__init__()
        self.embedding = nn.EmbeddingBag(vocab_size, dim)
        self.project = nn.Sequential(nn.Linear(dim, dim), nn.GELU(), nn.Linear(dim, dim))

    def forward(self, tokens):
        return nn.functional.normalize(self.project(self.embedding(tokens)), dim=1)


class EmbeddingService:
    def __init__(self, workers=2):
        self.model = SentenceEncoder().eval()
        self.pool = ThreadPoolExecutor(workers)

    def encode(self, tokens):
        return self.model(tokens).numpy()

    def warm_up(self):
        example = torch.zeros(1, 8, dtype=torch.long)
        print("warm up", self.encode(example).shape)

    def encode_all(self, documents, batch_size=32):
        batches = documents.split(batch_size)
        return np.concatenate(list(self.pool.map(self.encode, batches)))


def build_index():
    torch.manual_seed(0)
    documents = torch.randint(0, 5000, (256, 20))
    service = EmbeddingService()
    with torch.no_grad():
        service.warm_up()
        vectors = service.encode_all(documents)
    scores = vectors @ vectors[0]
    print("nearest", scores.argsort()[::-1][:5])


if __name__ == "__main__":
    build_index()
