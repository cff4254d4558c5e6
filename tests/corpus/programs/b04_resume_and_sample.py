import os
import tempfile
import torch
from torch import nn


class GPT(nn.Module):
    def __init__(self, vocab=64, n_embd=32, block_size=32):
        super().__init__()
        self.wte = nn.Embedding(vocab, n_embd)
        self.wpe = nn.Embedding(block_size, n_embd)
        self.mlp = nn.Sequential(nn.Linear(n_embd, 4 * n_embd), nn.GELU(), nn.Linear(4 * n_embd, n_embd))
        self.lm_head = nn.Linear(n_embd, vocab, bias=False)

    def forward(self, idx):
        x = self.wte(idx) + self.wpe(torch.arange(idx.shape[1]))
        return self.lm_head(x + self.mlp(x))


def train(out_dir, max_iters=6):
    model = GPT()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    print("compiling the model... (takes a ~minute)")
    model = torch.compile(model, backend="aot_eager")
    for it in range(max_iters):
        idx = torch.randint(0, 64, (8, 33))
        logits = model(idx[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), idx[:, 1:].flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
    checkpoint = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "iter_num": max_iters}
    torch.save(checkpoint, os.path.join(out_dir, "ckpt.pt"))
    print(f"saved checkpoint at iter {max_iters}, loss {loss.item():.3f}")


@torch.no_grad()
def sample(out_dir, tokens=10):
    checkpoint = torch.load(os.path.join(out_dir, "ckpt.pt"), map_location="cpu")
    model = GPT()
    model.load_state_dict(checkpoint["model"])
    model.eval()
    idx = torch.zeros(1, 1, dtype=torch.long)
    for _ in range(tokens):
        probs = model(idx)[:, -1].softmax(-1)
        idx = torch.cat([idx, torch.multinomial(probs, 1)], dim=1)
    print(idx.tolist())


def main():
    torch.manual_seed(1337)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as out_dir:
        train(out_dir)
        sample(out_dir)


if __name__ == "__main__":
    main()
