"""Company-name matching: bi-encoder training, then comparison with a tf-idf n-gram baseline."""
import ctypes
import logging
import subprocess
import tempfile
import zlib
from collections import Counter, namedtuple
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

log = logging.getLogger("matching")
HERE = Path(__file__).resolve().parent
BUCKETS = 2 ** 20
SYLLABLES = ["al", "tec", "nor", "vex", "ban", "co", "ri", "sol", "um", "dra", "pix", "gen", "mar", "tol", "zen", "qua"]
SUFFIXES = ["inc", "ltd", "gmbh", "bv", "sa", "llc"]

Csr = namedtuple("Csr", "indptr indices data shape")


def build(workdir):
    so = Path(workdir) / "libsparsetopn.so"
    subprocess.run(["g++", "-O1", "-g", "-shared", "-fPIC", str(HERE / "a226_sparse_topn.cpp"), "-o", str(so)], check=True)
    return ctypes.CDLL(str(so)).sparse_dot_topn


def company_names(rng, count):
    return sorted({" ".join(["".join(rng.choice(SYLLABLES, 4)), rng.choice(SUFFIXES)]) for _ in range(count)})


def misspell(rng, name):
    chars = list(name)
    for _ in range(2):
        chars[int(rng.integers(len(chars)))] = chr(97 + int(rng.integers(26)))
    return "".join(chars)


def ngrams(text, n=3):
    text = f" {text} "
    return [zlib.crc32(text[i:i + n].encode()) % BUCKETS for i in range(len(text) - n + 1)]


def tfidf(texts):
    rows = [Counter(ngrams(t)) for t in texts]
    seen = Counter(g for row in rows for g in row)
    indptr, indices, data = [0], [], []
    for row in rows:
        keys = sorted(row)
        value = np.array([row[k] * np.log(1 + len(texts) / seen[k]) for k in keys])
        indices.extend(keys)
        data.extend(value / np.linalg.norm(value))
        indptr.append(len(indices))
    return Csr(np.array(indptr, np.int32), np.array(indices, np.int32), np.array(data, np.float32), (len(texts), BUCKETS))


def transpose(m):
    row = np.repeat(np.arange(m.shape[0], dtype=np.int32), np.diff(m.indptr))
    order = np.argsort(m.indices, kind="stable")
    indptr = np.concatenate([[0], np.cumsum(np.bincount(m.indices, minlength=m.shape[1]))]).astype(np.int32)
    return Csr(indptr, row[order], m.data[order], (m.shape[1], m.shape[0]))


def cossim_topn(kernel, a, b, ntop, lower_bound):
    best = np.full((a.shape[0], ntop), -1, np.int32)
    score = np.zeros((a.shape[0], ntop), np.float32)
    address = lambda array: ctypes.c_void_p(array.ctypes.data)
    kernel(a.shape[0], b.shape[1], *map(address, (*a[:3], *b[:3])), ntop, ctypes.c_float(lower_bound), address(best), address(score))
    return best, score


class PairDataset(Dataset):
    def __init__(self, queries, names, owner):
        self.queries, self.names, self.owner = queries, names, owner

    def __len__(self):
        return len(self.queries)

    def __getitem__(self, i):
        return self.queries[i], self.names[self.owner[i]]


def bag(texts):
    grams = [[g % 8192 for g in ngrams(t)] for t in texts]
    offsets = np.concatenate([[0], np.cumsum([len(g) for g in grams])[:-1]])
    return torch.tensor([g for row in grams for g in row]), torch.from_numpy(offsets)


def collate(pairs):
    return bag([q for q, _ in pairs]), bag([n for _, n in pairs])


def main():
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s: %(message)s")
    torch.manual_seed(2)
    rng = np.random.default_rng(2)
    names = company_names(rng, 3000)
    owner = rng.integers(len(names), size=4000)
    queries = [misspell(rng, names[i]) for i in owner]
    encoder = nn.EmbeddingBag(8192, 64, mode="mean")
    optimizer = torch.optim.Adam(encoder.parameters(), lr=5e-3)
    loader = DataLoader(PairDataset(queries[:3500], names, owner), batch_size=64, shuffle=True, collate_fn=collate)
    for epoch in range(3):
        for query, name in loader:
            q, n = (nn.functional.normalize(encoder(*side), dim=1) for side in (query, name))
            loss = nn.functional.cross_entropy(20 * q @ n.t(), torch.arange(len(q)))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        log.info("epoch %d loss %.4f", epoch, loss.item())
    held, truth = queries[3500:], owner[3500:]
    with torch.no_grad():
        q, n = (nn.functional.normalize(encoder(*bag(side)), dim=1) for side in (held, names))
        recall = ((q @ n.t()).topk(5).indices == torch.from_numpy(truth)[:, None]).any(1).float().mean().item()
    log.info("bi-encoder recall@5 %.3f over %d names", recall, len(names))
    with tempfile.TemporaryDirectory() as workdir:
        kernel = build(workdir)
        best, _ = cossim_topn(kernel, tfidf(held), tfidf(names), ntop=5, lower_bound=0.1)
        log.info("tf-idf recall@5 %.3f", float((best == truth[:, None]).any(1).mean()))


if __name__ == "__main__":
    main()
