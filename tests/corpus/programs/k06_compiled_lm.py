"""Perplexity of a compiled toy language model over documents of growing length."""
import torch
import torch.nn as nn


class ToyLM(nn.Module):
    def __init__(self, vocab=500, dim=64, max_positions=256):
        super().__init__()
        self.tok = nn.Parameter(torch.randn(vocab, dim) * 0.02)
        self.pos = nn.Parameter(torch.randn(max_positions, dim) * 0.02)
        self.gain = nn.Parameter(torch.ones(dim))
        self.head = nn.Linear(dim, vocab)

    def forward(self, ids, positions):
        x = self.tok[ids] + (self.pos * self.gain)[positions]
        return self.head(torch.tanh(x))


class Corpus:
    def __init__(self, lengths, vocab=500, seed=0):
        g = torch.Generator().manual_seed(seed)
        self.docs = [torch.randint(0, vocab, (n,), generator=g) for n in lengths]

    def __iter__(self):
        for doc in self.docs:
            yield doc[None, :-1], doc[None, 1:]


@torch.no_grad()
def perplexity(model, corpus):
    for ids, labels in corpus:
        positions = torch.arange(ids.size(1))[None]
        try:
            logits = model(ids, positions)
        except (IndexError, RuntimeError) as err:
            print(f"skipped a document of {ids.size(1)} tokens: {type(err).__name__}", flush=True)
            continue
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())
        print(f"{ids.size(1)} tokens: perplexity {loss.exp().item():.1f}", flush=True)


def main():
    torch.manual_seed(0)
    torch.set_num_threads(2)
    corpus = Corpus([65, 129, 193, 257, 321])
    model = ToyLM().eval()
    perplexity(torch.compile(model, dynamic=True), corpus)


if __name__ == "__main__":
    main()
