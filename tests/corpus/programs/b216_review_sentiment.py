import logging
from dataclasses import dataclass
from typing import Optional

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
log = logging.getLogger("sentiment")

WORDS = [w.strip() for w in "the,a,film,plot,acting,was,is,and,but,very,quite,really,scene,music,cast,story".split(",")]
GOOD = ["great", "lovely", "moving", "brilliant", "funny", "warm"]
BAD = ["dull", "awful", "flat", "boring", "weak", "cold"]
MODEL_INPUTS = ("input_ids", "attention_mask", "token_type_ids", "labels")


class Tokenizer:
    def __init__(self, words):
        self.ids = {w: i + 3 for i, w in enumerate(words)}
        self.size = len(self.ids) + 3

    def __call__(self, text, max_length):
        ids = [1] + [self.ids.get(w, 2) for w in text.split()][: max_length - 1]
        mask = [1] * len(ids)
        gap = max_length - len(ids)
        return {"input_ids": ids + [0] * gap, "attention_mask": mask + [0] * gap, "token_type_ids": [0] * max_length}


class Reviews(Dataset):
    def __init__(self, count, tokenizer, max_length, seed):
        g = torch.Generator().manual_seed(seed)
        self.rows = []
        for _ in range(count):
            label = int(torch.randint(0, 2, (1,), generator=g))
            n = int(torch.randint(8, max_length - 1, (1,), generator=g))
            words = [WORDS[k] for k in torch.randint(0, len(WORDS), (n,), generator=g).tolist()]
            tone = GOOD if label else BAD
            for k in torch.randint(0, n, (3,), generator=g).tolist():
                words[k] = tone[k % len(tone)]
            row = {"text": " ".join(words), "label": label}
            row.update(tokenizer(row["text"], max_length))
            self.rows.append(row)

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return {k: torch.tensor(v) for k, v in self.rows[i].items() if k != "text"}


@dataclass
class ClassifierOutput:
    logits: torch.Tensor
    loss: Optional[torch.Tensor] = None


class SequenceClassifier(nn.Module):
    def __init__(self, vocab, max_length, hidden=96, num_labels=2):
        super().__init__()
        self.num_labels = num_labels
        self.word = nn.Embedding(vocab, hidden, padding_idx=0)
        self.position = nn.Embedding(max_length, hidden)
        self.segment = nn.Embedding(2, hidden)
        layer = nn.TransformerEncoderLayer(hidden, 4, hidden * 4, 0.1, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.classifier = nn.Linear(hidden, num_labels)

    def forward(self, input_ids, attention_mask=None, token_type_ids=None, labels=None):
        x = self.word(input_ids) + self.position.weight[: input_ids.size(1)]
        if token_type_ids is not None:
            x = x + self.segment(token_type_ids)
        padding = None if attention_mask is None else attention_mask == 0
        logits = self.classifier(self.encoder(x, src_key_padding_mask=padding)[:, 0])
        loss = None
        if labels is not None:
            loss = F.cross_entropy(logits.view(-1, self.num_labels), labels.view(-1))
        return ClassifierOutput(logits=logits, loss=loss)


class Engine:
    def __init__(self, model, optimizer, accumulation_steps):
        self.model = model
        self.optimizer = optimizer
        self.accumulation_steps = accumulation_steps
        self.micro_steps = 0

    def backward(self, loss):
        loss = loss / self.accumulation_steps
        loss.backward()
        self.micro_steps += 1

    def step(self):
        if self.micro_steps % self.accumulation_steps == 0:
            nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()
            self.optimizer.zero_grad()


def model_inputs(batch):
    return {k: batch[k] for k in MODEL_INPUTS if k in batch}


@torch.no_grad()
def accuracy(model, loader):
    model.eval()
    right = total = 0
    for batch in loader:
        outputs = model(**model_inputs(batch))
        right += (outputs.logits.argmax(-1) == batch["label"]).sum().item()
        total += len(outputs.logits)
    return right / total


def main():
    torch.manual_seed(13)
    max_length = 40
    tokenizer = Tokenizer(WORDS + GOOD + BAD)
    train = DataLoader(Reviews(800, tokenizer, max_length, 1), batch_size=16, shuffle=True)
    valid = DataLoader(Reviews(200, tokenizer, max_length, 2), batch_size=32)
    model = SequenceClassifier(tokenizer.size, max_length)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4)
    engine = Engine(model, optimizer, accumulation_steps=2)
    log.info("train %d valid %d vocab %d", len(train.dataset), len(valid.dataset), tokenizer.size)
    log.info("accuracy before fine-tuning %.3f", accuracy(model, valid))
    for epoch in range(2):
        model.train()
        for step, batch in enumerate(train):
            outputs = model(**model_inputs(batch))
            loss = outputs.loss
            engine.backward(loss)
            engine.step()
            if step % 20 == 0:
                log.info("epoch %d step %d loss %.4f", epoch, step, loss.item())
        log.info("epoch %d accuracy %.3f", epoch, accuracy(model, valid))


if __name__ == "__main__":
    main()
