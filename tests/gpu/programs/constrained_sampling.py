import torch
import torch.nn as nn

torch.manual_seed(21)
DEVICE = "cuda"
VOCAB, DIM, EOS = 96, 64, 0


class TinyLM(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(VOCAB, DIM)
        self.rnn = nn.GRU(DIM, DIM, batch_first=True)
        self.out = nn.Linear(DIM, VOCAB)

    def forward(self, ids, state=None):
        y, state = self.rnn(self.emb(ids), state)
        return self.out(y[:, -1]), state


def allowed_table():
    allowed = torch.ones(VOCAB, VOCAB, dtype=torch.bool)
    for token in range(VOCAB):
        allowed[token, token] = False
    allowed[:, 40:] &= (torch.arange(VOCAB) < 40)[:, None]
    allowed[90:, :40] = False
    return allowed


def mask_logits(logits, last, table):
    return logits.masked_fill(~table[last], float("-inf"))


def temperature_softmax(scores, temperature):
    return torch.softmax(scores / temperature, dim=-1)


@torch.no_grad()
def generate(model, prompts, table, steps=12, temperature=0.8):
    ids = prompts
    state = None
    last_column = ids
    for _ in range(steps):
        logits, state = model(last_column, state)
        scores = mask_logits(logits, ids[:, -1], table)
        probs = temperature_softmax(scores, temperature)
        next_token = torch.multinomial(probs, num_samples=1)
        ids = torch.cat([ids, next_token], dim=1)
        last_column = next_token
        if bool((next_token == EOS).all()):
            break
    return ids


def main():
    model = TinyLM().to(DEVICE).eval()
    table = allowed_table().to(DEVICE)
    prompts = torch.tensor([[3, 7], [12, 18], [5, 92], [30, 31]], device=DEVICE)
    sequences = generate(model, prompts, table)
    lengths = (sequences != EOS).sum(dim=1)
    for row, n in zip(sequences.tolist(), lengths.tolist(), strict=True):
        print(n, row)


main()
