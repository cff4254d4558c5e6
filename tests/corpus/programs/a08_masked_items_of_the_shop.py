import random

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

N_ITEMS = 11
MAX_ITEM_LIST_LENGTH = 50
MASK_RATIO = 0.2


class MaskItemSequence:
    def __init__(self, n_items, mask_ratio):
        self.n_items = n_items
        self.mask_token = n_items
        self.mask_ratio = mask_ratio

    def _neg_sample(self, item_set):
        item = random.randint(1, self.n_items - 1)
        while item in item_set:
            item = random.randint(1, self.n_items - 1)
        return item

    def __call__(self, samples):
        masked, positives, negatives = [], [], []
        for sequence in samples:
            masked_sequence, pos_item, neg_item = list(sequence), [], []
            for index, item in enumerate(sequence):
                if random.random() < self.mask_ratio or (index == len(sequence) - 1 and not pos_item):
                    pos_item.append(item)
                    neg_item.append(self._neg_sample(sequence))
                    masked_sequence[index] = self.mask_token
            masked.append(torch.tensor(masked_sequence))
            positives.append(torch.tensor(pos_item))
            negatives.append(torch.tensor(neg_item))
        return nn.utils.rnn.pad_sequence(masked, batch_first=True), positives, negatives


class Interactions(Dataset):
    def __init__(self, users=3000):
        rng = random.Random(11)
        self.sequences = []
        for user in range(users):
            favourites = rng.sample(range(1, N_ITEMS), 5)
            history = [rng.choice(favourites) for _ in range(rng.randint(2, 20))]
            if user == 1337:
                history = [rng.randint(1, N_ITEMS - 1) for _ in range(130)]
            self.sequences.append(history[-MAX_ITEM_LIST_LENGTH:])

    def __len__(self):
        return len(self.sequences)

    def __getitem__(self, idx):
        return self.sequences[idx]


class BERT4Rec(nn.Module):
    def __init__(self, hidden=32):
        super().__init__()
        self.item_embedding = nn.Embedding(N_ITEMS + 1, hidden, padding_idx=0)
        self.position_embedding = nn.Embedding(MAX_ITEM_LIST_LENGTH, hidden)
        layer = nn.TransformerEncoderLayer(hidden, 2, 64, batch_first=True)
        self.trm_encoder = nn.TransformerEncoder(layer, 1)

    def calculate_loss(self, item_seq, positives, negatives):
        positions = torch.arange(item_seq.size(1))
        output = self.trm_encoder(self.item_embedding(item_seq) + self.position_embedding(positions))
        state = output[item_seq == N_ITEMS]
        pos = (state * self.item_embedding(torch.cat(positives))).sum(-1)
        neg = (state * self.item_embedding(torch.cat(negatives))).sum(-1)
        return -nn.functional.logsigmoid(pos - neg).mean()


def fit(epochs=2):
    transform = MaskItemSequence(N_ITEMS, MASK_RATIO)
    train_data = DataLoader(Interactions(), batch_size=64, collate_fn=transform, num_workers=2)
    model = BERT4Rec()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(epochs):
        total = 0.0
        for batch_idx, interaction in enumerate(train_data):
            loss = model.calculate_loss(*interaction)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch} training [train loss: {total:.4f}]", flush=True)


if __name__ == "__main__":
    torch.manual_seed(2020)
    fit()
