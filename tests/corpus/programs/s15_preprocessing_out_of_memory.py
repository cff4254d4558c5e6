"""A process pool prepares spectrograms; a file that is far longer than the rest does not fit in the job's memory."""

from concurrent.futures import ProcessPoolExecutor

import numpy as np


def spectrogram(seconds):
    samples = np.ones(int(seconds * 22_050), dtype=np.float64)
    frames = np.concatenate([samples * window for window in np.hanning(64)])
    return float(frames.mean())


def main(lengths):
    with ProcessPoolExecutor(2) as executor:
        futures = [executor.submit(spectrogram, seconds) for seconds in lengths]
        for future in futures:
            print(future.result())


if __name__ == "__main__":
    main([1, 2, 3, 7200, 2])
