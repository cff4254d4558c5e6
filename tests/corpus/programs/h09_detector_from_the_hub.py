import os
import sys
import tempfile
import textwrap

import torch

PROJECT = {
    "utils.py": """
        def colour_of(label):
            return {"person": (255, 0, 0)}.get(label, (0, 255, 0))
        """,
    "hub/tinydet_master/hubconf.py": """
        dependencies = ["torch"]

        def tinydet(classes=80):
            from models.detector import Detector
            return Detector(classes)
        """,
    "hub/tinydet_master/models/__init__.py": "",
    "hub/tinydet_master/models/detector.py": """
        from torch import nn
        from utils.general import autopad

        class Detector(nn.Module):
            def __init__(self, classes):
                super().__init__()
                self.conv = nn.Conv2d(3, 16, 3, 2, autopad(3))
                self.head = nn.Conv2d(16, classes + 5, 1)

            def forward(self, images):
                return self.head(self.conv(images).relu())
        """,
    "hub/tinydet_master/utils/__init__.py": "",
    "hub/tinydet_master/utils/general.py": """
        def autopad(kernel):
            return kernel // 2
        """,
}


def prepare(folder):
    for name, text in PROJECT.items():
        path = os.path.join(folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as stream:
            stream.write(textwrap.dedent(text))


def watch_camera(folder):
    sys.path.insert(0, folder)
    import utils

    repository = os.path.join(folder, "hub", "tinydet_master")
    model = torch.hub.load(repository, "tinydet", source="local", classes=2)
    frame = torch.rand(1, 3, 64, 64)
    scores = model(frame)[:, 5:].amax((2, 3))
    label = ["person", "car"][scores.argmax().item()]
    print(label, utils.colour_of(label))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as project:
        prepare(project)
        watch_camera(project)
