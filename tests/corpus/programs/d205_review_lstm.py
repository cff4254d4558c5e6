import re
import time
from collections import Counter

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

POS = "great lovely superb charming clever moving bright delightful honest warm".split()
NEG = "dull awful boring clumsy bleak noisy weak tedious silly cold".split()
FILL = "the a film plot actor scene music story camera ending was felt seemed with and of in very quite".split()


def write_reviews(n, seed):
    rng = np.random.default_rng(seed)
    texts, labels = [], []
    for _ in range(n):
        y = int(rng.integers(0, 2))
        words = list(rng.choice(FILL, rng.integers(12, 30)))
        for _ in range(int(rng.integers(2, 5))):
            words.insert(int(rng.integers(0, len(words))), str(rng.choice(POS if y else NEG)))
        if rng.random() < 0.3:
            words.insert(0, str(rng.choice(NEG if y else POS)))
        texts.append(" ".join(words) + ".")
        labels.append(y)
    return texts, np.array(labels)


def tokenize(text):
    return re.sub(r"[^a-z ]", "", text.lower()).split()


def pad(sentences, seq_len):
    out = np.zeros((len(sentences), seq_len), dtype=np.int64)
    for i, s in enumerate(sentences):
        if len(s):
            out[i, -len(s):] = np.array(s)[:seq_len]
    return out


class SentimentNet(nn.Module):
    def __init__(self, vocab_size, output_size, embedding_dim, hidden_dim, n_layers, drop_prob=0.5):
        super().__init__()
        self.output_size, self.n_layers, self.hidden_dim = output_size, n_layers, hidden_dim
        self.embedding = nn.Embedding(vocab_size, embedding_dim)
        self.lstm = nn.LSTM(embedding_dim, hidden_dim, n_layers, dropout=drop_prob, batch_first=True)
        self.dropout = nn.Dropout(drop_prob)
        self.fc = nn.Linear(hidden_dim, output_size)
        self.sigmoid = nn.Sigmoid()

    def forward(self, x, hidden):
        lstm_out, hidden = self.lstm(self.embedding(x), hidden)
        out = self.fc(self.dropout(lstm_out[:, -1]))
        return self.sigmoid(out), hidden

    def init_hidden(self, batch_size):
        weight = next(self.parameters()).data
        return (weight.new_zeros(self.n_layers, batch_size, self.hidden_dim),
                weight.new_zeros(self.n_layers, batch_size, self.hidden_dim))


def main():
    torch.manual_seed(1)
    texts, labels = write_reviews(1230, seed=4)
    sentences = [tokenize(t) for t in texts]
    counts = Counter(w for s in sentences for w in s)
    vocab = ["_PAD", "_UNK"] + sorted(counts, key=counts.get, reverse=True)
    word2idx = {w: i for i, w in enumerate(vocab)}
    features = pad([[word2idx.get(w, 1) for w in s] for s in sentences], 40)

    split = 1000
    train_data = TensorDataset(torch.from_numpy(features[:split]), torch.from_numpy(labels[:split]))
    val_data = TensorDataset(torch.from_numpy(features[split:]), torch.from_numpy(labels[split:]))
    batch_size = 100
    train_loader = DataLoader(train_data, shuffle=True, batch_size=batch_size)
    val_loader = DataLoader(val_data, shuffle=True, batch_size=batch_size)
    print(f"vocab {len(vocab)} train {len(train_data)} val {len(val_data)}", flush=True)

    model = SentimentNet(len(vocab), 1, 48, 64, 2)
    criterion = nn.BCELoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.005)
    epochs, print_every, clip, counter = 3, 5, 5, 0
    valid_loss_min = np.inf

    for epoch in range(epochs):
        t0 = time.time()
        h = model.init_hidden(batch_size)
        model.train()
        for inputs, targets in train_loader:
            counter += 1
            h = tuple(e.data for e in h)
            model.zero_grad()
            output, h = model(inputs, h)
            loss = criterion(output.squeeze(), targets.float())
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), clip)
            optimizer.step()
            if counter % print_every == 0:
                print(f"Epoch: {epoch + 1}/{epochs}... Step: {counter}... Loss: {loss.item():.6f}", flush=True)

        val_h = model.init_hidden(batch_size)
        val_losses, correct = [], 0
        model.eval()
        with torch.no_grad():
            for inp, lab in val_loader:
                val_h = tuple(e.data for e in val_h)
                out, val_h = model(inp, val_h)
                val_losses.append(criterion(out.squeeze(), lab.float()).item())
                correct += (out.squeeze().round() == lab).sum().item()
        print(f"Val Loss: {np.mean(val_losses):.6f} acc {correct / len(val_data):.3f} ({time.time() - t0:.1f}s)", flush=True)
        valid_loss_min = min(valid_loss_min, np.mean(val_losses))
    print(f"best val loss {valid_loss_min:.6f}", flush=True)


if __name__ == "__main__":
    main()
