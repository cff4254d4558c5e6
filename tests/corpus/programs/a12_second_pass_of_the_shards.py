import os
import shutil
import tempfile
from collections import deque

import pyarrow as pa
import pyarrow.parquet as pq
import torch
import torch.nn as nn


def write_shards(data_dir, shards=3, groups=2, docs=40):
    for shard in range(shards):
        table = pa.table({"text": [f"document {shard}-{i}: " + "the quick brown fox " * 20 for i in range(groups * docs)]})
        pq.write_table(table, os.path.join(data_dir, f"shard_{shard:05d}.parquet"), row_group_size=docs)


def list_parquet_files(data_dir):
    return [os.path.join(data_dir, name) for name in sorted(os.listdir(data_dir)) if name.endswith(".parquet")]


def tokenizing_data_loader_with_state(data_dir, B, T, split, tokenizer_batch_size=16, resume_state_dict=None):
    def document_batches():
        parquet_paths = list_parquet_files(data_dir)
        parquet_paths = parquet_paths[:-1] if split == "train" else parquet_paths[-1:]
        resume_pq_idx = resume_state_dict["pq_idx"] if resume_state_dict is not None else 0
        pq_idx = resume_pq_idx
        while True:
            while pq_idx < len(parquet_paths):
                pf = pq.ParquetFile(parquet_paths[pq_idx])
                for rg_idx in range(pf.num_row_groups):
                    batch = pf.read_row_group(rg_idx).column("text").to_pylist()
                    for i in range(0, len(batch), tokenizer_batch_size):
                        yield batch[i:i + tokenizer_batch_size], (pq_idx, rg_idx)
                pq_idx += 1

    batches = document_batches()
    needed_tokens = B * T + 1
    token_buffer = deque()
    while True:
        while len(token_buffer) < needed_tokens:
            doc_batch, (pq_idx, rg_idx) = next(batches)
            for doc in doc_batch:
                token_buffer.extend([256] + list(doc.encode()))
        tokens = torch.tensor([token_buffer.popleft() for _ in range(needed_tokens)])
        inputs, targets = tokens[:-1].view(B, T), tokens[1:].view(B, T)
        yield inputs, targets, {"pq_idx": pq_idx, "rg_idx": rg_idx}


def base_train(data_dir, num_iterations=200):
    model = nn.Sequential(nn.Embedding(257, 64), nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 257))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    train_loader = tokenizing_data_loader_with_state(data_dir, B=8, T=128, split="train")
    for step in range(num_iterations):
        x, y, dataloader_state_dict = next(train_loader)
        loss = nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if step % 10 == 0:
            print(f"step {step:05d}/{num_iterations:05d} | loss: {loss.item():.6f} | {dataloader_state_dict}", flush=True)


if __name__ == "__main__":
    torch.manual_seed(42)
    base_dir = tempfile.mkdtemp()
    try:
        write_shards(base_dir)
        base_train(base_dir)
    finally:
        shutil.rmtree(base_dir)
