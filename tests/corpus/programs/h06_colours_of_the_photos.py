import os
import shutil
import subprocess
import sys
import tempfile

SETUP = """
from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, CppExtension

setup(name="trilinear", ext_modules=[CppExtension("trilinear", ["trilinear.cpp"], extra_compile_args=["-O0"])],
      cmdclass={"build_ext": BuildExtension.with_options(use_ninja=False)})
"""

SOURCE = """
#include <Python.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/ones.h>

static at::Tensor lookup(const at::Tensor& lut, const at::Tensor& image) {
  TORCH_CHECK(lut.dim() == 1, "the table needs one dimension");
  return at::clamp(image, 0, lut.size(0) - 1);
}

static PyObject* forward(PyObject*, PyObject*) {
  return PyLong_FromLong(lookup(at::ones({33}), at::ones({3, 8, 8})).dim());
}

static PyMethodDef methods[] = {{"forward", forward, METH_NOARGS, nullptr}, {nullptr, nullptr, 0, nullptr}};
static PyModuleDef module = {PyModuleDef_HEAD_INIT, "trilinear", nullptr, -1, methods};

PyMODINIT_FUNC PyInit_trilinear() { return PyModule_Create(&module); }
"""


def build(folder):
    with open(os.path.join(folder, "setup.py"), "w") as stream:
        stream.write(SETUP)
    with open(os.path.join(folder, "trilinear.cpp"), "w") as stream:
        stream.write(SOURCE)
    subprocess.run([sys.executable, "setup.py", "-q", "build_ext", "--inplace"], cwd=folder, check=True,
                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def enhance(folder):
    sys.path.insert(0, folder)
    import trilinear
    import torch

    lut = torch.linspace(0, 1, 33)
    image = torch.rand(3, 64, 64)
    print("enhanced", image.shape, lut.shape, trilinear.forward())


if __name__ == "__main__":
    build_folder = tempfile.mkdtemp(prefix="image_adaptive_lut_")
    try:
        build(build_folder)
        enhance(build_folder)
    finally:
        shutil.rmtree(build_folder)
