import torch
import torch.multiprocessing as mp
from torch import nn

SHARDS = 6


def make_scorer():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 1)).eval()


def score_shard(shard, progress):
    torch.set_num_threads(1)
    scorer = make_scorer()
    generator = torch.Generator().manual_seed(shard)
    features = torch.randn(1000, 32, generator=generator)
    with torch.inference_mode():
        scores = scorer(features).squeeze(1)
    progress.put((shard, scores.mean().item(), scores.max().item()))


def score_corpus():
    progress = mp.Queue()
    results = {}
    with mp.Pool(2) as pool:
        for shard in range(SHARDS):
            pool.apply_async(score_shard, args=(shard, progress))
        pool.close()
        while len(results) < SHARDS:
            shard, mean, best = progress.get()
            results[shard] = best
            print(f"shard {shard}: mean {mean:.4f}, best {best:.4f} ({len(results)}/{SHARDS})", flush=True)
        pool.join()
    print("best shard", max(results, key=results.get))


if __name__ == "__main__":
    mp.set_start_method("spawn")
    score_corpus()
