"""Clean scraped reviews with the C text normalizer and train a bag-of-words sentiment model on them."""
import argparse
import ctypes
import subprocess
import tempfile
from collections import Counter
from pathlib import Path

import numpy as np
import torch
from torch import nn

TEXTNORM_C = r"""
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* lower case, letters and digits only, runs of anything else become one space; NULL when nothing has to change */
char *tn_normalize(const char *text)
{
    size_t n = strlen(text), used = 0;
    char *result = malloc(n + 1);
    for (size_t i = 0; i < n; ++i) {
        unsigned char ch = (unsigned char)text[i];
        if (isalnum(ch))
            result[used++] = (char)tolower(ch);
        else if (used && result[used - 1] != ' ')
            result[used++] = ' ';
    }
    while (used && result[used - 1] == ' ')
        --used;
    result[used] = '\0';
    if (used == n && memcmp(result, text, n) == 0) {
        free(result);
        return NULL;
    }
    return result;
}

void tn_free(char *text)
{
    free(text);
}
"""


class TextNormalizer:
    def __init__(self, build_dir):
        source = Path(build_dir) / "textnorm.c"
        source.write_text(TEXTNORM_C)
        target = source.with_name("libtextnorm.so")
        subprocess.run(["gcc", "-O2", "-g", "-shared", "-fPIC", "-o", str(target), str(source)], check=True)
        self.lib = ctypes.CDLL(str(target))
        self.lib.tn_normalize.argtypes = [ctypes.c_char_p]
        self.lib.tn_normalize.restype = ctypes.c_char_p
        self.lib.tn_free.argtypes = [ctypes.c_char_p]
        self.lib.tn_free.restype = None

    def __call__(self, text):
        result = self.lib.tn_normalize(text.encode("utf-8"))
        if result is None:
            return text
        cleaned = result.decode("utf-8")
        self.lib.tn_free(result)
        return cleaned


def synthetic_reviews(count, rng, shouting):
    good = "great lovely sturdy quick bright useful excellent".split()
    bad = "broken slow flimsy awful noisy late useless".split()
    neutral = "the box came with charger and cable on monday for my desk".split()
    reviews = []
    for _ in range(count):
        label = int(rng.integers(2))
        words = list(rng.choice(good if label else bad, 3)) + list(rng.choice(neutral, 9))
        rng.shuffle(words)
        text = " ".join(words)
        reviews.append((text.capitalize() + " !!" if shouting else text, label))
    return reviews


def vectorize(texts, vocabulary):
    features = np.zeros((len(texts), len(vocabulary)), dtype=np.float32)
    for row, text in enumerate(texts):
        for word in text.split():
            if word in vocabulary:
                features[row, vocabulary[word]] += 1
    return torch.from_numpy(features)


def train_source(name, reviews, normalizer, vocabulary, model, optimizer, epochs):
    texts = [normalizer(text) for text, _ in reviews]
    if not vocabulary:
        counts = Counter(word for text in texts for word in text.split())
        vocabulary.update({word: n for n, (word, _) in enumerate(counts.most_common(24))})
    x, y = vectorize(texts, vocabulary), torch.tensor([label for _, label in reviews])
    for _ in range(epochs):
        order = torch.randperm(len(x))
        for rows in order.split(64):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x[rows]), y[rows])
            loss.backward()
            optimizer.step()
    print(f"{name}: {len(texts)} reviews, loss {loss.item():.3f}", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--reviews", type=int, default=1500)
    parser.add_argument("--epochs", type=int, default=3)
    args = parser.parse_args()
    torch.manual_seed(2)
    rng = np.random.default_rng(2)
    normalizer = TextNormalizer(tempfile.mkdtemp(prefix="textnorm_"))
    vocabulary = {}
    model = nn.Sequential(nn.Linear(24, 16), nn.ReLU(), nn.Linear(16, 2))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for name, shouting in (("catalogue", False), ("marketplace", True)):
        reviews = synthetic_reviews(args.reviews, rng, shouting)
        train_source(name, reviews, normalizer, vocabulary, model, optimizer, args.epochs)
    print("training finished")


if __name__ == "__main__":
    main()
