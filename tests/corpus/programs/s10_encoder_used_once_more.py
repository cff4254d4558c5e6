import torch
import torch.nn as nn

torch.manual_seed(0)


class Store:
    """Holds the weights of modules that are not needed at the moment."""

    def __init__(self):
        self.kept = {}

    def put_away(self, module):
        for p in module.parameters():
            self.kept[p] = p.data.to(torch.bfloat16)
            p.data.untyped_storage().resize_(0)

    def bring_back(self, module):
        for p in module.parameters():
            if p in self.kept:
                p.data.untyped_storage().resize_(p.numel() * p.element_size())
                p.data.copy_(self.kept.pop(p))


class Translator(nn.Module):
    def __init__(self, words=800, dim=96):
        super().__init__()
        self.store = Store()
        self.emb = nn.Embedding(words, dim)
        self.encoder = nn.LSTM(dim, dim, batch_first=True)
        self.decoder = nn.LSTM(dim, dim, batch_first=True)
        self.out = nn.Linear(dim, words)

    def encode(self, ids):
        return self.encoder(self.emb(ids))

    def translate(self, ids, steps=8):
        self.store.bring_back(self.encoder)
        _, state = self.encode(ids)
        self.store.put_away(self.encoder)
        word, words = ids[:, :1], []
        for _ in range(steps):
            h, state = self.decoder(self.emb(word), state)
            word = self.out(h).argmax(-1)
            words.append(word)
        return torch.cat(words, 1)

    def similarity(self, a, b):
        (_, (ha, _)), (_, (hb, _)) = self.encode(a), self.encode(b)
        return torch.cosine_similarity(ha[0], hb[0]).mean()


if __name__ == "__main__":
    model = Translator().eval()
    text = torch.randint(0, 800, (4, 20))
    with torch.inference_mode():
        result = model.translate(text)
        print("translated", tuple(result.shape), flush=True)
        back = model.translate(result)
        print("round trip", round(float(model.similarity(text, back)), 4))
