import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(13)
DEVICE = "cuda"
VOCAB, DIM, T, B = 512, 128, 64, 16
IGNORE = -1


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(VOCAB, DIM)
        self.mix = nn.Sequential(nn.Linear(DIM, 256), nn.GELU(), nn.Linear(256, DIM))
        self.head = nn.Linear(DIM, 32)

    def forward(self, ids):
        h = self.emb(ids)
        return self.head(h + self.mix(h))


def tagging_loss(logits, labels):
    keep = labels.ne(IGNORE)
    per_token = F.cross_entropy(logits.flatten(0, 1), labels.clamp_min(0).flatten(), reduction="none")
    kept = per_token[keep.flatten()]
    return kept.mean()


def make_batch():
    ids = torch.randint(0, VOCAB, (B, T), device=DEVICE)
    labels = torch.randint(0, 32, (B, T), device=DEVICE)
    labels[:, 50:] = IGNORE
    return ids, labels


def train_step(model, optimizer, ids, labels):
    optimizer.zero_grad(set_to_none=True)
    loss = tagging_loss(model(ids), labels)
    loss.backward()
    optimizer.step()
    return loss


def main():
    model = Tagger().to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, capturable=True)
    static_ids, static_labels = make_batch()
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            train_step(model, optimizer, static_ids, static_labels)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        static_loss = train_step(model, optimizer, static_ids, static_labels)
    for step in range(10):
        ids, labels = make_batch()
        static_ids.copy_(ids)
        static_labels.copy_(labels)
        graph.replay()
        print(step, static_loss.item())


main()
