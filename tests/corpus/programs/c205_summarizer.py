import logging
import math
import random
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.autograd import Variable
from torch.nn.utils.rnn import pad_sequence

sys.setrecursionlimit(1000000)

logging.basicConfig(level=logging.INFO, format="%(asctime)s [%(levelname)s:%(name)s]: %(message)s")
logger = logging.getLogger("train")

PAD, UNK, BOS, EOS = 0, 1, 2, 3


def _calculate_fan_in_and_fan_out(tensor):
    if tensor.ndimension() == 2:
        return tensor.size(1), tensor.size(0)
    receptive_field = tensor[0][0].numel()
    return tensor.size(1) * receptive_field, tensor.size(0) * receptive_field


@torch.no_grad()
def xavier_normal(tensor, gain=1):
    """Fills the input Tensor or Variable according to Glorot & Bengio (2010), normal distribution."""
    if isinstance(tensor, Variable):
        xavier_normal(tensor.data, gain=gain)
        return tensor

    fan_in, fan_out = _calculate_fan_in_and_fan_out(tensor)
    std = gain * math.sqrt(2.0 / (fan_in + fan_out))
    return tensor.normal_(0, std)


class Dict:
    def __init__(self):
        self.freq = {}
        self.label_to_idx = {}

    def add(self, label):
        self.freq[label] = self.freq.get(label, 0) + 1

    def prune(self, size):
        kept = sorted(self.freq, key=lambda w: (-self.freq[w], w))[:size]
        self.label_to_idx = {w: i + 4 for i, w in enumerate(kept)}

    def convert(self, labels):
        return [BOS] + [self.label_to_idx.get(w, UNK) for w in labels] + [EOS]

    def __len__(self):
        return len(self.label_to_idx) + 4


def make_corpus(count, rng):
    stems = ["".join(rng.choice("bcdfgklmnprst") + rng.choice("aeiou") for _ in range(3)) for _ in range(6000)]
    pairs = []
    for _ in range(count):
        src = [stems[min(int(rng.expovariate(1 / 800)), 5999)] for _ in range(rng.randint(20, 40))]
        pairs.append((src, src[:8]))
    return pairs


class Encoder(nn.Module):
    def __init__(self, vocab, dim):
        super().__init__()
        self.word_lut = nn.Embedding(vocab, dim, padding_idx=PAD)
        self.rnn = nn.GRU(dim, dim // 2, bidirectional=True, batch_first=True)

    def forward(self, src):
        out, hidden = self.rnn(self.word_lut(src))
        return out, torch.cat([hidden[0], hidden[1]], dim=1)


class Decoder(nn.Module):
    def __init__(self, vocab, dim):
        super().__init__()
        self.word_lut = nn.Embedding(vocab, dim, padding_idx=PAD)
        self.rnn = nn.GRU(dim, dim, batch_first=True)
        self.attn = nn.Linear(dim, dim, bias=False)
        self.generator = nn.Linear(2 * dim, vocab)

    def forward(self, tgt, context, state):
        out, _ = self.rnn(self.word_lut(tgt), state.unsqueeze(0))
        weight = torch.softmax(self.attn(out) @ context.transpose(1, 2), dim=-1)
        return self.generator(torch.cat([out, weight @ context], dim=-1))


class NMTModel(nn.Module):
    def __init__(self, vocab, dim=64):
        super().__init__()
        self.encoder = Encoder(vocab, dim)
        self.decoder = Decoder(vocab, dim)

    def forward(self, src, tgt):
        context, state = self.encoder(src)
        return self.decoder(tgt, context, state)


def main():
    torch.manual_seed(1)
    rng = random.Random(1)
    logger.info("Preparing data ...")
    pairs = make_corpus(12000, rng)
    vocab = Dict()
    for src, tgt in pairs:
        for word in src + tgt:
            vocab.add(word)
    vocab.prune(4000)
    data = [(torch.tensor(vocab.convert(s)), torch.tensor(vocab.convert(t))) for s, t in pairs]
    logger.info(" * vocabulary size. source = %d; number of training sentences. %d", len(vocab), len(data))

    logger.info("Building model...")
    model = NMTModel(len(vocab))
    for name, p in model.named_parameters():
        logger.info("%s %s", name, tuple(p.size()))
        if p.dim() == 1:
            p.data.zero_()
        else:
            xavier_normal(p, math.sqrt(3))

    optim = torch.optim.Adam(model.parameters(), lr=1e-3)
    start = time.time()
    for step in range(60):
        batch = rng.sample(data, 16)
        src = pad_sequence([b[0] for b in batch], batch_first=True)
        tgt = pad_sequence([b[1] for b in batch], batch_first=True)
        scores = model(src, tgt[:, :-1])
        loss = F.cross_entropy(scores.flatten(0, 1), tgt[:, 1:].flatten(), ignore_index=PAD)
        optim.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optim.step()
        if step % 20 == 0:
            logger.info("Epoch 1, %4d/60; ppl: %6.2f; %5.1f s elapsed", step, math.exp(min(loss.item(), 20)), time.time() - start)
    logger.info("finished training")


if __name__ == "__main__":
    main()
