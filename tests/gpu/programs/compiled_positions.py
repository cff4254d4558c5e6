import torch
import torch.nn as nn

torch.manual_seed(0)
DEVICE = torch.device("cuda")
VOCAB, HIDDEN, MAX_POSITIONS, PAD = 5000, 128, 256, 1


class Embeddings(nn.Module):
    def __init__(self):
        super().__init__()
        self.word = nn.Embedding(VOCAB, HIDDEN, padding_idx=PAD)
        self.position = nn.Embedding(MAX_POSITIONS, HIDDEN, padding_idx=PAD)
        self.norm = nn.LayerNorm(HIDDEN)

    def forward(self, input_ids, position_ids):
        return self.norm(self.word(input_ids) + self.position(position_ids))


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.embeddings = Embeddings()
        self.ffn = nn.Sequential(nn.Linear(HIDDEN, 256), nn.GELU(), nn.Linear(256, HIDDEN))
        self.head = nn.Linear(HIDDEN, 4)

    def forward(self, input_ids, position_ids):
        hidden = self.embeddings(input_ids, position_ids)
        hidden = hidden + self.ffn(hidden)
        return self.head(hidden[:, 0])


def create_position_ids(input_ids):
    mask = input_ids.ne(PAD).long()
    return torch.cumsum(mask, dim=1) * mask + PAD


def batches():
    for filled in (180, 220, 256, 200):
        ids = torch.randint(4, VOCAB, (8, MAX_POSITIONS))
        ids[:, filled:] = PAD
        yield {"input_ids": ids, "labels": torch.randint(0, 4, (8,))}


def evaluate():
    model = Classifier().to(DEVICE).eval()
    model = torch.compile(model)
    correct = torch.zeros((), device=DEVICE, dtype=torch.long)
    seen = 0
    with torch.no_grad():
        for batch in batches():
            input_ids = batch["input_ids"].to(DEVICE)
            labels = batch["labels"].to(DEVICE)
            position_ids = create_position_ids(input_ids)
            logits = model(input_ids, position_ids)
            predicted = logits.argmax(dim=-1)
            correct += (predicted == labels).sum()
            seen += labels.numel()
    accuracy = correct.item() / seen
    print(f"accuracy {accuracy:.3f}")


evaluate()
