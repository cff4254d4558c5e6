import torch
import torch.nn as nn
import torch.multiprocessing as mp


def build_encoder():
    torch.manual_seed(5)
    return nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 32))


def encode_shard(index, shard, queue):
    torch.set_num_threads(1)
    encoder = build_encoder().eval()
    with torch.no_grad():
        features = encoder(shard)
    queue.put((index, features))
    print(f"shard {index}: {tuple(features.shape)} encoded", flush=True)


def encode_all(samples, num_shards):
    queue = mp.Queue()
    workers = []
    for index, shard in enumerate(samples.chunk(num_shards)):
        worker = mp.Process(target=encode_shard, args=(index, shard, queue))
        worker.start()
        workers.append(worker)
    for worker in workers:
        worker.join()
    parts = [None] * num_shards
    for _ in range(num_shards):
        index, features = queue.get()
        parts[index] = features
    return torch.cat(parts)


def main():
    mp.set_start_method("spawn")
    samples = torch.randn(512, 64)
    features = encode_all(samples, num_shards=2)
    print("features", tuple(features.shape), features.norm().item())


if __name__ == "__main__":
    main()
