"""Decode documents with a pool of worker processes and collect the hypotheses through one queue."""
import torch
import torch.multiprocessing as mp
import torch.nn as nn


class TinyDecoder(nn.Module):
    def __init__(self, vocab=500, dim=32):
        super().__init__()
        self.emb = nn.Embedding(vocab, dim)
        self.gru = nn.GRU(dim, dim, batch_first=True)
        self.out = nn.Linear(dim, vocab)

    @torch.no_grad()
    def forward(self, tokens, steps=12):
        h, state = self.gru(self.emb(tokens))
        token, result = self.out(h[:, -1]).argmax(-1, keepdim=True), []
        for _ in range(steps):
            h, state = self.gru(self.emb(token), state)
            token = self.out(h[:, -1]).argmax(-1, keepdim=True)
            result.append(token)
        return torch.cat(result, 1)


def decode_shard(worker, documents, results):
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = TinyDecoder().eval()
    for doc_id, text in documents:
        tokens = torch.tensor([[hash_word(w) for w in text.split()]])
        hyp = model(tokens)[0].tolist()
        results.put({"doc": doc_id, "source": text, "hypothesis": hyp, "worker": worker})


def hash_word(word):
    return sum(ord(c) * 31 ** i for i, c in enumerate(word)) % 500


def load_documents(n):
    words = "the model reads a line of text and writes another line".split()
    return [(i, " ".join(words[(i + k) % len(words)] for k in range(20))) for i in range(n)]


def run(n_docs, n_workers=2):
    docs, results = load_documents(n_docs), mp.Queue()
    workers = [mp.Process(target=decode_shard, args=(w, docs[w::n_workers], results)) for w in range(n_workers)]
    for p in workers:
        p.start()
    for p in workers:
        p.join()
    out = [results.get() for _ in range(n_docs)]
    return sorted(out, key=lambda r: r["doc"])


if __name__ == "__main__":
    mp.set_start_method("spawn")
    for size in (10, 100, 3000):
        hyps = run(size)
        print(f"{size} documents decoded, first: {hyps[0]['hypothesis'][:5]}", flush=True)
