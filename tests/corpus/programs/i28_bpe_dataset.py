import ctypes
import os
import subprocess

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

SOURCE = r"""
#include <pthread.h>
#include <stdint.h>
#include <string.h>
#define NTHREADS 2
typedef struct { const char *text; int32_t *out; int max_len; int vocab; } job_t;
static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t work = PTHREAD_COND_INITIALIZER, idle = PTHREAD_COND_INITIALIZER;
static job_t *jobs; static int next_job, n_jobs, pending, started;

static void encode_one(job_t *j) {
    int n = 0; size_t len = strlen(j->text);
    for (size_t i = 0; i < len && n < j->max_len; i += 3) {
        uint32_t h = 2166136261u;
        for (size_t k = i; k < i + 3 && k < len; k++) h = (h ^ (uint8_t)j->text[k]) * 16777619u;
        j->out[n++] = 1 + h % (j->vocab - 1);
    }
    while (n < j->max_len) j->out[n++] = 0;
}
static void *pool_main(void *arg) {
    pthread_mutex_lock(&mu);
    for (;;) {
        while (next_job >= n_jobs) pthread_cond_wait(&work, &mu);
        job_t *j = &jobs[next_job++];
        pthread_mutex_unlock(&mu);
        encode_one(j);
        pthread_mutex_lock(&mu);
        if (--pending == 0) pthread_cond_signal(&idle);
    }
    return arg;
}
void encode_batch(const char **texts, int n, int32_t *out, int max_len, int vocab) {
    job_t batch[n];
    for (int i = 0; i < n; i++) batch[i] = (job_t){texts[i], out + (size_t)i * max_len, max_len, vocab};
    pthread_mutex_lock(&mu);
    if (!started) {
        for (int t = 0; t < NTHREADS; t++) { pthread_t id; pthread_create(&id, 0, pool_main, 0); }
        started = 1;
    }
    jobs = batch; next_job = 0; n_jobs = n; pending = n;
    pthread_cond_broadcast(&work);
    while (pending > 0) pthread_cond_wait(&idle, &mu);
    n_jobs = 0;
    pthread_mutex_unlock(&mu);
}
"""


class FastTokenizer:
    def __init__(self, vocab_size=2000, max_len=48, build_dir="/tmp/i28_build"):
        os.makedirs(build_dir, exist_ok=True)
        src, lib = os.path.join(build_dir, "fastbpe.c"), os.path.join(build_dir, "libfastbpe.so")
        with open(src, "w") as f:
            f.write(SOURCE)
        subprocess.run(["gcc", "-O2", "-g", "-shared", "-fPIC", "-pthread", src, "-o", lib], check=True)
        self.lib = ctypes.CDLL(lib)
        self.vocab_size, self.max_len = vocab_size, max_len

    def encode_batch(self, texts):
        ids = torch.zeros(len(texts), self.max_len, dtype=torch.int32)
        array = (ctypes.c_char_p * len(texts))(*[t.encode() for t in texts])
        self.lib.encode_batch(array, len(texts), ctypes.c_void_p(ids.data_ptr()), self.max_len, self.vocab_size)
        return ids.long()


class ListDataset(Dataset):
    def __init__(self, data):
        self.data = data

    def __getitem__(self, index):
        return self.data[index]

    def __len__(self):
        return len(self.data)


class Collate:
    def __init__(self, tokenizer):
        self.tokenizer = tokenizer

    def __call__(self, batch):
        return self.tokenizer.encode_batch(batch)


def main():
    corpus = [f"sentence number {i} of the corpus, which is {i * 7919 % 1000} long" for i in range(512)]
    tokenizer = FastTokenizer()
    lengths = (tokenizer.encode_batch(corpus) > 0).sum(1).float()
    print(f"{len(corpus)} samples, mean length {lengths.mean():.1f}", flush=True)
    loader = DataLoader(ListDataset(corpus), batch_size=16, shuffle=True, num_workers=2,
                        collate_fn=Collate(tokenizer))
    model = nn.Sequential(nn.Embedding(tokenizer.vocab_size, 64), nn.Linear(64, tokenizer.vocab_size))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for step, ids in enumerate(loader):
        loss = F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten(), ignore_index=0)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step} loss {loss.item():.3f}", flush=True)


if __name__ == "__main__":
    main()
