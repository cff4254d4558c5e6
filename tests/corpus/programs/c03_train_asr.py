"""Small CTC acoustic model on synthetic utterances."""
import torch
import torch.nn as nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset

VOCAB = "_abcdefghijklmnopqrstuvwxyz '"


class Utterances(Dataset):
    def __init__(self, n=400, n_mels=40, seed=0):
        g = torch.Generator().manual_seed(seed)
        self.items = []
        for _ in range(n):
            n_chars = int(torch.randint(12, 30, (1,), generator=g))
            n_frames = 2 * n_chars + int(torch.randint(20, 60, (1,), generator=g))
            feats = torch.randn(n_frames, n_mels, generator=g)
            labels = torch.randint(1, len(VOCAB), (n_chars,), generator=g)
            self.items.append((feats, labels))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, idx):
        return self.items[idx]


class DataCollatorCTC:
    """Pads features and labels of a batch."""

    def __init__(self, label_pad=-100):
        self.label_pad = label_pad

    def __call__(self, batch):
        feats, labels = zip(*batch)
        return {
            "input_values": pad_sequence(feats, batch_first=True),
            "input_lengths": torch.tensor([f.size(0) for f in feats]),
            "labels": pad_sequence(labels, batch_first=True, padding_value=self.label_pad),
        }


class AcousticModel(nn.Module):
    def __init__(self, n_mels=40, hidden=96):
        super().__init__()
        self.rnn = nn.GRU(n_mels, hidden, batch_first=True, bidirectional=True)
        self.head = nn.Linear(2 * hidden, len(VOCAB))

    def forward(self, x):
        return self.head(self.rnn(x)[0]).log_softmax(-1)


def compute_loss(model, batch):
    log_probs = model(batch["input_values"]).transpose(0, 1)
    labels = batch["labels"]
    target_lengths = torch.full((labels.size(0),), labels.size(1), dtype=torch.long)
    return nn.functional.ctc_loss(
        log_probs, labels, batch["input_lengths"], target_lengths, blank=0, zero_infinity=True
    )


def main():
    torch.manual_seed(0)
    loader = DataLoader(Utterances(), batch_size=16, shuffle=True, collate_fn=DataCollatorCTC())
    model = AcousticModel()
    opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for epoch in range(5):
        for step, batch in enumerate(loader):
            loss = compute_loss(model, batch)
            opt.zero_grad()
            loss.backward()
            opt.step()
            print(f"epoch {epoch} step {step} loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
