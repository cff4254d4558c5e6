"""Beam search decoding of a toy translation model, sharded over worker processes."""
import argparse
import time

import torch
import torch.multiprocessing as mp
import torch.nn as nn

VOCAB = 64
EOS = 1


class ToyDecoder(nn.Module):
    def __init__(self, dim=32):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, dim)
        self.cell = nn.GRUCell(dim, dim)
        self.out = nn.Linear(dim, VOCAB)

    def step(self, token, state):
        state = self.cell(self.embed(token), state)
        return self.out(state).log_softmax(dim=-1), state


def pretrain(model, steps):
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for step in range(steps):
        tokens = torch.randint(2, VOCAB, (32,))
        log_probs, _ = model.step(tokens, torch.zeros(32, 32))
        loss = nn.functional.nll_loss(log_probs, (tokens + 1) % VOCAB)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"pretrained, loss {loss.item():.3f}", flush=True)


@torch.no_grad()
def beam_search(model, source, beam, max_len):
    state = model.embed(source).mean(dim=0, keepdim=True).expand(beam, -1)
    tokens = source[-1].expand(beam).clone()
    scores = torch.zeros(beam)
    hypotheses = [[] for _ in range(beam)]
    for position in range(max_len):
        log_probs, state = model.step(tokens, state)
        if position == 0:
            scores, tokens = log_probs[0].topk(beam)
            parents = torch.zeros(beam, dtype=torch.long)
        else:
            scores, flat = (scores.unsqueeze(1) + log_probs).flatten().topk(beam)
            parents, tokens = flat // VOCAB, flat % VOCAB
        state = state[parents]
        hypotheses = [hypotheses[p] + [t] for p, t in zip(parents.tolist(), tokens.tolist())]
    return list(zip(hypotheses, scores.tolist()))


def decode_worker(worker_id, model, sentences, beam, max_len, output_queue):
    torch.set_num_threads(1)
    results = []
    for sentence_id, source in sentences:
        nbest = beam_search(model, source, beam, max_len)
        results.append((sentence_id, nbest))
    output_queue.put((worker_id, results))


def generate(model, sentences, num_workers, beam, max_len):
    output_queue = mp.Queue()
    workers = []
    for worker_id in range(num_workers):
        shard = sentences[worker_id::num_workers]
        process = mp.Process(target=decode_worker,
                             args=(worker_id, model, shard, beam, max_len, output_queue))
        process.start()
        workers.append(process)
    for process in workers:
        process.join()

    translations = {}
    for _ in workers:
        _, results = output_queue.get()
        translations.update(dict(results))
    return translations


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--valid", type=int, default=16)
    parser.add_argument("--test", type=int, default=300)
    parser.add_argument("--beam", type=int, default=8)
    parser.add_argument("--max-len", type=int, default=40)
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()

    mp.set_start_method("spawn")
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = ToyDecoder()
    pretrain(model, 200)
    model.share_memory()

    for name, count in (("valid", args.valid), ("test", args.test)):
        sentences = [(i, torch.randint(2, VOCAB, (10,))) for i in range(count)]
        started = time.time()
        translations = generate(model, sentences, args.workers, args.beam, args.max_len)
        mean = sum(nbest[0][1] for nbest in translations.values()) / len(translations)
        print(f"{name}: {len(translations)} sentences, score {mean:.3f}, {time.time() - started:.1f}s", flush=True)


if __name__ == "__main__":
    main()
