from collections import OrderedDict
from dataclasses import dataclass, fields

import torch
from torch import nn


@dataclass
class EncoderOutput(OrderedDict):
    last_hidden_state: torch.Tensor = None
    pooler_output: torch.Tensor = None

    def __post_init__(self):
        for field in fields(self):
            self[field.name] = getattr(self, field.name)

    def to_tuple(self):
        return tuple(self.values())


class Encoder(nn.Module):
    def __init__(self, vocab_size=1000, hidden=64):
        super().__init__()
        self.embeddings = nn.Embedding(vocab_size, hidden)
        self.layer = nn.TransformerEncoderLayer(hidden, 4, 128, batch_first=True)
        self.pooler = nn.Linear(hidden, hidden)

    def forward(self, input_ids, attention_mask=None, return_dict=True):
        padding = attention_mask == 0 if attention_mask is not None else None
        states = self.layer(self.embeddings(input_ids), src_key_padding_mask=padding)
        output = EncoderOutput(states, torch.tanh(self.pooler(states[:, 0])))
        return output if return_dict else output.to_tuple()


class AspectClassifier(nn.Module):
    def __init__(self, bert, dropout=0.1, polarities=3):
        super().__init__()
        self.bert = bert
        self.dropout = nn.Dropout(dropout)
        self.dense = nn.Linear(64, polarities)

    def forward(self, input_ids, attention_mask):
        _, pooled_output = self.bert(input_ids, attention_mask=attention_mask)
        pooled_output = self.dropout(pooled_output)
        return self.dense(pooled_output)


def train(steps=5):
    torch.manual_seed(0)
    model = AspectClassifier(Encoder())
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-5)
    criterion = nn.CrossEntropyLoss()
    for step in range(steps):
        input_ids = torch.randint(1, 1000, (8, 20))
        attention_mask = torch.ones(8, 20, dtype=torch.long)
        labels = torch.randint(0, 3, (8,))
        loss = criterion(model(input_ids, attention_mask), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step}: loss {loss.item():.4f}")


if __name__ == "__main__":
    train()
