import torch
import torch.nn as nn

torch.manual_seed(0)


class Vocabulary:
    def __init__(self, words):
        self.ids = {w: i for i, w in enumerate(words)}

    def add(self, words):
        for w in words:
            self.ids.setdefault(w, len(self.ids))
        return len(self.ids)


class Tagger(nn.Module):
    def __init__(self, n, dim=128, tags=9):
        super().__init__()
        self.emb = nn.Embedding(n, dim)
        self.rnn = nn.GRU(dim, 64, batch_first=True)
        self.out = nn.Linear(64, tags)

    def resize(self, n):
        more = torch.empty(n - self.emb.num_embeddings, self.emb.embedding_dim).normal_(0, 0.02)
        self.emb.weight.data = torch.cat([self.emb.weight.data, more])
        self.emb.num_embeddings = n

    def forward(self, ids):
        return self.out(self.rnn(self.emb(ids))[0])


def epoch(model, opt, n, steps):
    for _ in range(steps):
        ids = torch.randint(0, n, (16, 20))
        loss = nn.functional.cross_entropy(model(ids).transpose(1, 2), ids % 9)
        opt.zero_grad()
        loss.backward()
        opt.step()
    return loss.item()


vocab = Vocabulary(f"word{i}" for i in range(4000))
model = Tagger(len(vocab.ids))
opt = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
print("first corpus", epoch(model, opt, len(vocab.ids), 5), flush=True)
model.resize(vocab.add(f"term{i}" for i in range(60000)))
print("second corpus", epoch(model, opt, len(vocab.ids), 5), flush=True)
