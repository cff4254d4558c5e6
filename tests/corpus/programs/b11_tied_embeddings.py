import torch
from torch import nn


class Seq2Seq(nn.Module):
    def __init__(self, vocab=500, dim=32, share_decoder_embeddings=True):
        super().__init__()
        self.src_embeddings = nn.Embedding(vocab, dim, sparse=True)
        self.tgt_embeddings = nn.Embedding(vocab, dim, sparse=True)
        self.encoder = nn.GRU(dim, dim, batch_first=True)
        self.decoder = nn.GRU(dim, dim, batch_first=True)
        self.generator = nn.Linear(dim, vocab)
        if share_decoder_embeddings:
            self.generator.weight = self.tgt_embeddings.weight

    def forward(self, src, tgt):
        _, state = self.encoder(self.src_embeddings(src))
        out, _ = self.decoder(self.tgt_embeddings(tgt), state)
        return self.generator(out)


class MultipleOptimizer:
    def __init__(self, optimizers):
        self.optimizers = optimizers

    def zero_grad(self):
        for op in self.optimizers:
            op.zero_grad()

    def step(self):
        for op in self.optimizers:
            op.step()


def build_optim(model, lr=1e-3):
    dense, sparse = [], []
    for name, param in model.named_parameters():
        (sparse if "embeddings" in name else dense).append(param)
    return MultipleOptimizer([torch.optim.Adam(dense, lr=lr), torch.optim.SparseAdam(sparse, lr=lr)])


def train(model, optim, steps=20):
    criterion = nn.CrossEntropyLoss()
    for step in range(steps):
        src, tgt = torch.randint(0, 500, (8, 12)), torch.randint(0, 500, (8, 11))
        logits = model(src, tgt[:, :-1])
        loss = criterion(logits.flatten(0, 1), tgt[:, 1:].flatten())
        optim.zero_grad()
        loss.backward()
        optim.step()
        if step % 5 == 0:
            print(f"step {step} xent {loss.item():.3f}")


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = Seq2Seq()
    train(model, build_optim(model))
