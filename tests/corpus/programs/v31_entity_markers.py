import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

ADDITIONAL_SPECIAL_TOKENS = ["<e1>", "</e1>", "<e2>", "</e2>"]
SENTENCES = [
    ("the <e1> audits </e1> were about <e2> waste </e2>", "Message-Topic"),
    ("the <e1> company </e1> fabricates plastic <e2> chairs </e2>", "Product-Producer"),
    ("the <e1> lawsonite </e1> was contained in a <e2> crystal </e2>", "Content-Container"),
    ("the <e1> author </e1> of a keygen uses a <e2> disassembler </e2>", "Instrument-Agency"),
]


class Tokenizer:
    def __init__(self, words):
        self.vocab = {w: i for i, w in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]"] + sorted(words))}
        self.vocab_size = len(self.vocab)

    def add_special_tokens(self, tokens):
        for token in tokens:
            self.vocab.setdefault(token, len(self.vocab))

    def encode(self, text, max_len):
        tokens = ["[CLS]"] + text.split() + ["[SEP]"]
        ids = [self.vocab.get(t, self.vocab["[UNK]"]) for t in tokens]
        return ids + [0] * (max_len - len(ids))


class RBert(nn.Module):
    def __init__(self, vocab_size, num_labels, hidden=48, max_position=64):
        super().__init__()
        self.word_embeddings = nn.Embedding(vocab_size, hidden, padding_idx=0)
        self.position_embeddings = nn.Embedding(max_position, hidden)
        self.encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(hidden, 4, 96, batch_first=True), 2)
        self.classifier = nn.Linear(hidden, num_labels)

    def forward(self, input_ids):
        positions = torch.arange(input_ids.size(1), device=input_ids.device)
        x = self.word_embeddings(input_ids) + self.position_embeddings(positions)
        return self.classifier(self.encoder(x)[:, 0])


def main():
    torch.manual_seed(42)
    words = {w for text, _ in SENTENCES for w in text.split() if w not in ADDITIONAL_SPECIAL_TOKENS}
    tokenizer = Tokenizer(words)
    labels = sorted({label for _, label in SENTENCES})
    model = RBert(tokenizer.vocab_size, len(labels))
    tokenizer.add_special_tokens(ADDITIONAL_SPECIAL_TOKENS)
    ids = torch.tensor([tokenizer.encode(text, 16) for text, _ in SENTENCES * 4])
    targets = torch.tensor([labels.index(label) for _, label in SENTENCES * 4])
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5)
    for epoch in range(3):
        for input_ids, target in DataLoader(TensorDataset(ids, targets), batch_size=4, shuffle=True):
            loss = nn.functional.cross_entropy(model(input_ids), target)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        print(f"epoch {epoch} loss {loss.item():.3f}")


main()
