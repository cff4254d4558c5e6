"""Tokenise a folder of text shards with a process pool and write the token file for the training."""
import argparse
import collections
import json
import multiprocessing as mp
import os
import random

import numpy as np
import torch

WORK = "/tmp/o17_corpus"
SHARDS = 48
WORDS = ("model data layer batch epoch loss gradient token head value query key weight bias step rate "
         "train test valid split index store cache queue worker process thread memory page file").split()


class ShardError(Exception):
    """A shard that does not follow the format."""

    def __init__(self, shard, line, reason):
        super().__init__(f"{shard}:{line}: {reason}")
        self.shard = shard
        self.line = line
        self.reason = reason


def write_shards(folder):
    os.makedirs(folder, exist_ok=True)
    rng = random.Random(4)
    for shard in range(SHARDS):
        with open(os.path.join(folder, f"shard_{shard:03d}.jsonl"), "w") as f:
            for line in range(400):
                text = " ".join(rng.choices(WORDS, k=rng.randint(5, 40)))
                row = {"id": shard * 400 + line, "text": text}
                if (shard, line) == (29, 233):
                    row = {"id": row["id"], "body": text}
                f.write(json.dumps(row) + "\n")


def read_shard(path):
    name = os.path.basename(path)
    with open(path) as f:
        for number, line in enumerate(f, start=1):
            row = json.loads(line)
            if "text" not in row:
                raise ShardError(name, number, "no field 'text'")
            yield row["text"]


def count_words(path):
    counter = collections.Counter()
    for text in read_shard(path):
        counter.update(text.split()[:4])
    return counter


class Tokeniser:
    def __init__(self, counts, size=64):
        common = [word for word, _ in counts.most_common(size - 2)]
        self.index = {word: k + 2 for k, word in enumerate(common)}

    def encode(self, text):
        return [self.index.get(word, 1) for word in text.split()] + [0]


_tokeniser = None


def start_worker(tokeniser):
    global _tokeniser
    _tokeniser = tokeniser
    torch.set_num_threads(1)


def encode_shard(path):
    tokens = []
    for text in read_shard(path):
        tokens.extend(_tokeniser.encode(text))
    return os.path.basename(path), np.asarray(tokens, dtype=np.uint16)


class TokenWriter:
    def __init__(self, path):
        self.path = path
        self.file = open(path, "wb")
        self.total = 0

    def add(self, tokens):
        tokens.tofile(self.file)
        self.total += len(tokens)

    def close(self):
        self.file.close()


def bigram_loss(path, vocabulary):
    tokens = torch.from_numpy(np.fromfile(path, dtype=np.uint16).astype(np.int64))
    counts = torch.ones(vocabulary, vocabulary)
    counts.index_put_((tokens[:-1], tokens[1:]), torch.ones(len(tokens) - 1), accumulate=True)
    probability = counts / counts.sum(1, keepdim=True)
    return -probability[tokens[:-1], tokens[1:]].log().mean().item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--processes", type=int, default=2)
    args = parser.parse_args()
    write_shards(WORK)
    paths = sorted(os.path.join(WORK, n) for n in os.listdir(WORK) if n.endswith(".jsonl"))
    counts = sum((count_words(path) for path in paths[:8]), collections.Counter())
    tokeniser = Tokeniser(counts)
    print(f"vocabulary of {len(tokeniser.index)} words from 8 shards", flush=True)
    writer = TokenWriter(os.path.join(WORK, "tokens.bin"))
    with mp.Pool(args.processes, initializer=start_worker, initargs=(tokeniser,)) as pool:
        for done, (name, tokens) in enumerate(pool.imap(encode_shard, paths), start=1):
            writer.add(tokens)
            if done % 8 == 0:
                print(f"{done}/{len(paths)} shards, {writer.total} tokens", flush=True)
    writer.close()
    print(f"bigram loss {bigram_loss(writer.path, 64):.3f}")
    print("corpus ready")


if __name__ == "__main__":
    main()
