import json
import logging
import os
import random
import tempfile

import torch
import torch.nn as nn

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
log = logging.getLogger("chat")

PAD, GO, EOS, UNK = 0, 1, 2, 3
CONFIG = {
    "embedding_dim": 64,
    "hidden_dim": 96,
    "input_size": 900,
    "output_size": 900,
    "max_length": 12,
    "batch_size": 16,
    "epochs": 2,
    "lr": 2e-3,
}


def write_dialogues(path, pairs=1600):
    rng = random.Random(4)
    syllables = [a + b for a in "bdfgklmnprstvz" for b in "aeiou"]
    names = ["".join(rng.choice(syllables) for _ in range(2)) for _ in range(1500)]
    with open(path, "w") as f:
        for i in range(pairs):
            known = names[: 200 + i]
            ask = [rng.choice(known) for _ in range(rng.randint(3, 8))]
            reply = [rng.choice(known) for _ in range(rng.randint(2, 6))]
            f.write(" ".join(ask) + "\t" + " ".join(reply) + "\n")


class Preprocessing:
    def __init__(self, folder, max_length):
        self.folder = folder
        self.max_length = max_length
        self.vocab = {"<pad>": PAD, "<go>": GO, "<eos>": EOS, "<unk>": UNK}

    def build(self, source):
        with open(source) as f:
            rows = [line.rstrip("\n").split("\t") for line in f]
        for ask, reply in rows:
            for word in ask.split() + reply.split():
                self.vocab.setdefault(word, len(self.vocab))
        with open(os.path.join(self.folder, "vocab.json"), "w") as f:
            json.dump(self.vocab, f)
        return [(self.encode(ask), self.encode(reply)) for ask, reply in rows]

    def encode(self, text):
        ids = [self.vocab.get(w, UNK) for w in text.split()][: self.max_length - 1]
        return ids + [EOS]


class Encoder(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.embedding = nn.Embedding(cfg["input_size"], cfg["embedding_dim"], padding_idx=PAD)
        self.gru = nn.GRU(cfg["embedding_dim"], cfg["hidden_dim"], batch_first=True)

    def forward(self, words):
        return self.gru(self.embedding(words))


class AttnDecoder(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.embedding = nn.Embedding(cfg["output_size"], cfg["embedding_dim"], padding_idx=PAD)
        self.gru = nn.GRU(cfg["embedding_dim"], cfg["hidden_dim"], batch_first=True)
        self.out = nn.Linear(cfg["hidden_dim"] * 2, cfg["output_size"])

    def forward(self, words, hidden, memory):
        states, hidden = self.gru(self.embedding(words), hidden)
        weights = torch.softmax(states @ memory.transpose(1, 2), dim=-1)
        return self.out(torch.cat([states, weights @ memory], dim=-1))


class Seq2Seq:
    def __init__(self, cfg):
        self.cfg = cfg
        self.encoder = Encoder(cfg)
        self.decoder = AttnDecoder(cfg)
        params = list(self.encoder.parameters()) + list(self.decoder.parameters())
        self.optimizer = torch.optim.Adam(params, lr=cfg["lr"])
        self.criterion = nn.CrossEntropyLoss(ignore_index=PAD)

    def pad(self, rows):
        width = max(len(r) for r in rows)
        return torch.tensor([r + [PAD] * (width - len(r)) for r in rows])

    def step(self, batch):
        inputs = self.pad([a for a, _ in batch])
        targets = self.pad([r for _, r in batch])
        starts = torch.full((len(batch), 1), GO)
        memory, hidden = self.encoder(inputs)
        logits = self.decoder(torch.cat([starts, targets[:, :-1]], 1), hidden, memory)
        loss = self.criterion(logits.flatten(0, 1), targets.flatten())
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()

    def train(self, pairs):
        size = self.cfg["batch_size"]
        for epoch in range(self.cfg["epochs"]):
            for i in range(0, len(pairs), size):
                loss = self.step(pairs[i:i + size])
                if (i // size) % 10 == 0:
                    log.info("epoch %d step %d loss %.4f", epoch, i // size, loss)


def main():
    torch.manual_seed(21)
    with tempfile.TemporaryDirectory() as folder:
        source = os.path.join(folder, "dialogues.tsv")
        write_dialogues(source)
        pairs = Preprocessing(folder, CONFIG["max_length"]).build(source)
        log.info("%d dialogue pairs", len(pairs))
        Seq2Seq(CONFIG).train(pairs)
        log.info("done")


if __name__ == "__main__":
    main()
