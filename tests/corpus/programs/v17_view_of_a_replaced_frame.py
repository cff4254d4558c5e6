"""Video inference: frames are handed to a NumPy tracker as views of the tensor's memory."""

import ctypes

import numpy as np
import torch


class Camera:
    def __init__(self, height, width):
        self.shape = (height, width, 3)
        self.frame = torch.zeros(self.shape, dtype=torch.uint8)

    def read(self):
        self.frame = torch.randint(0, 255, self.shape, dtype=torch.uint8)

    def view(self):
        """The frame as an array, without a copy."""
        pointer = ctypes.cast(self.frame.data_ptr(), ctypes.POINTER(ctypes.c_uint8))
        return np.ctypeslib.as_array(pointer, self.shape)


class Tracker:
    def __init__(self, frame):
        self.template = frame[100:900, 100:1500]

    def score(self, frame):
        return float(np.abs(frame[100:900, 100:1500].astype(np.int16) - self.template).mean())


def follow(camera, frames):
    camera.read()
    tracker = Tracker(camera.view())
    for number in range(frames):
        if number % 10 == 9:
            camera = Camera(*camera.shape[:2])
        camera.read()
        print(number, tracker.score(camera.view()))


follow(Camera(2160, 3840), 40)
