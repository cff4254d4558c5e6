"""Prepare a TTS corpus: read wav files, cut silence, store log spectrograms, write the manifest."""
import json
import logging
import math
import struct
import sys
import wave
from multiprocessing import JoinableQueue, Process, Queue
from pathlib import Path

import numpy as np
import torch

WORK = Path("/tmp/e55_tts_prepare_corpus")
log = logging.getLogger("prepare")


def write_wav(path, samples, rate, width):
    pcm = np.clip(samples, -1, 1)
    with wave.open(str(path), "wb") as f:
        f.setnchannels(1)
        f.setsampwidth(width)
        f.setframerate(rate)
        if width == 2:
            f.writeframes((pcm * 32767).astype("<i2").tobytes())
        else:
            ints = (pcm * 8388607).astype(np.int64)
            f.writeframes(b"".join(struct.pack("<i", int(v))[:3] for v in ints))


def record_corpus(speakers=4, per_speaker=30, rate=16000):
    rng = np.random.default_rng(0)
    lines = []
    for s in range(speakers):
        folder = WORK / f"spk{s}"
        folder.mkdir(parents=True, exist_ok=True)
        for k in range(per_speaker):
            t = np.arange(int(rate * rng.uniform(0.3, 0.8))) / rate
            voice = 0.4 * np.sin(2 * math.pi * (110 + 40 * s) * t) + 0.01 * rng.standard_normal(t.size)
            padded = np.concatenate([np.zeros(800), voice, np.zeros(1600)])
            path = folder / f"utt{k:03d}.wav"
            write_wav(path, padded, rate, 3 if s == 2 and k % 6 == 5 else 2)
            lines.append({"speaker": s, "audio": str(path), "text": f"sentence {k} of speaker {s}"})
    (WORK / "metadata.json").write_text(json.dumps(lines))
    return lines


def read_wav(path):
    with wave.open(str(path), "rb") as f:
        if f.getsampwidth() != 2:
            log.info("%s: sample width %d not supported", path, f.getsampwidth())
            sys.exit(1)
        data = np.frombuffer(f.readframes(f.getnframes()), dtype="<i2")
        return torch.from_numpy(data.astype(np.float32) / 32768), f.getframerate()


def trim(signal, frame=400, threshold=0.02):
    usable = signal[:len(signal) // frame * frame].view(-1, frame)
    loud = (usable.abs().amax(1) > threshold).nonzero().flatten()
    return signal if len(loud) == 0 else usable[loud[0]:loud[-1] + 1].flatten()


def features(signal, n_fft=512, hop=160):
    spec = torch.stft(signal, n_fft, hop, window=torch.hann_window(n_fft), return_complex=True)
    return torch.log(spec.abs().clamp(min=1e-5))


def worker(queue_in, queue_out):
    torch.set_num_threads(1)
    while True:
        item = queue_in.get()
        if item is None:
            break
        try:
            signal, rate = read_wav(item["audio"])
            spec = features(trim(signal))
            target = Path(item["audio"]).with_suffix(".pt")
            torch.save(spec, target)
            queue_out.put({**item, "spec": str(target), "frames": spec.size(1), "rate": rate})
        except Exception:
            log.exception("failed on %s", item["audio"])
            queue_out.put({**item, "spec": None})
        finally:
            queue_in.task_done()


class Corpus:
    def __init__(self, lines, workers=2):
        self.lines, self.workers = lines, workers

    def prepare(self):
        queue_in, queue_out = JoinableQueue(), Queue()
        procs = [Process(target=worker, args=(queue_in, queue_out)) for _ in range(self.workers)]
        for p in procs:
            p.start()
        for line in self.lines:
            queue_in.put(line)
        done = []
        for _ in range(len(self.lines)):
            done.append(queue_out.get())
            if len(done) % 20 == 0:
                print(f"  {len(done)}/{len(self.lines)} utterances", flush=True)
        for _ in procs:
            queue_in.put(None)
        for p in procs:
            p.join()
        return [d for d in done if d["spec"] is not None]


def write_manifest(rows):
    frames = np.array([r["frames"] for r in rows])
    stats = {"utterances": len(rows), "frames_mean": float(frames.mean()), "frames_max": int(frames.max())}
    (WORK / "dataset.jsonl").write_text("\n".join(json.dumps(r) for r in rows))
    (WORK / "stats.json").write_text(json.dumps(stats))
    return stats


def main():
    logging.basicConfig(level=logging.WARNING)
    lines = record_corpus()
    print(f"{len(lines)} recordings, {len({l['speaker'] for l in lines})} speakers", flush=True)
    rows = Corpus(lines).prepare()
    print("manifest:", write_manifest(rows), flush=True)


if __name__ == "__main__":
    main()
