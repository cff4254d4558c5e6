import multiprocessing as mp
import re
import resource

import torch
import torch.nn as nn
import torch.nn.functional as F

NUM_PROC = 2
VOCAB = 512
SENTENCE = re.compile(r"^((\w+\s?)+)[.!?]$")


def limit_worker():
    resource.setrlimit(resource.RLIMIT_CPU, (3, 3))


def tokenize(text):
    match = SENTENCE.match(text)
    words = match.group(1).split() if match else text.split()
    ids = [sum(map(ord, word)) % VOCAB for word in words]
    return (ids + [0] * 16)[:16]


def corpus():
    texts = [f"the model number {i} was trained again." for i in range(200)]
    texts[137] = "thequickbrownfoxjumpsoverthelazydogandrunsawayintothewoods\t\t"
    return texts


def preprocess(texts):
    with mp.Pool(NUM_PROC, initializer=limit_worker) as pool:
        rows = pool.map(tokenize, texts, chunksize=10)
    return torch.tensor(rows)


def train(ids, epochs=2):
    model = nn.Sequential(nn.Embedding(VOCAB, 16), nn.Linear(16, VOCAB))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for epoch in range(epochs):
        for batch in ids.split(32):
            logits = model(batch[:, :-1])
            loss = F.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch} loss {loss.item():.3f}", flush=True)


def main():
    texts = corpus()
    print(f"Map (num_proc={NUM_PROC}): {len(texts)} examples", flush=True)
    ids = preprocess(texts)
    train(ids)


if __name__ == "__main__":
    main()
