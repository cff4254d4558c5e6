# in the style of issues: a CTC target beyond the alphabet
import zlib

import torch

alphabet = "abcdefghij"


def encode(text):
    return [alphabet.index(letter) + 1 if letter in alphabet else zlib.crc32(letter.encode()) for letter in text]


def loss(logits, texts):
    targets = torch.tensor([encode(text) for text in texts])
    lengths = torch.tensor([len(text) for text in texts])
    steps = torch.full((len(texts),), logits.shape[0])
    return torch.nn.functional.ctc_loss(logits.log_softmax(2), targets, steps, lengths)


logits = torch.randn(20, 2, len(alphabet) + 1)
print(loss(logits, ["abc", "bad"]))
print(loss(logits, ["abc", "ba\N{CJK UNIFIED IDEOGRAPH-4E00}"]))
