"""Log motor positions from a small native driver and smooth them with a torch filter."""
import argparse
import importlib.util
import os
import subprocess
import sysconfig

import torch

DRIVER = r"""
#include <Python.h>
#include <pthread.h>
#include <unistd.h>

static pthread_t reader;
static volatile int running = 0;
static PyObject *callback = NULL;
static int period_us = 1000;

static void *read_loop(void *arg) {
  long tick = 0;
  while (running) {
    usleep(period_us);
    double pos = (double)((tick * 37) % 360);
    tick++;
    PyGILState_STATE st = PyGILState_Ensure();
    PyObject *r = PyObject_CallFunction(callback, "ld", tick, pos);
    if (!r) PyErr_WriteUnraisable(callback);
    Py_XDECREF(r);
    PyGILState_Release(st);
  }
  return NULL;
}

static PyObject *start(PyObject *self, PyObject *args) {
  PyObject *cb;
  if (!PyArg_ParseTuple(args, "Oi", &cb, &period_us)) return NULL;
  Py_INCREF(cb);
  callback = cb;
  running = 1;
  pthread_create(&reader, NULL, read_loop, NULL);
  Py_RETURN_NONE;
}

static PyObject *finalize(PyObject *self, PyObject *args) {
  running = 0;
  pthread_join(reader, NULL);
  Py_CLEAR(callback);
  Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
  {"start", start, METH_VARARGS, "start(callback, period_us)"},
  {"finalize", finalize, METH_NOARGS, "stop the reader"},
  {NULL, NULL, 0, NULL}};
static struct PyModuleDef module = {PyModuleDef_HEAD_INIT, "hatdriver", NULL, -1, methods};
PyMODINIT_FUNC PyInit_hatdriver(void) { return PyModule_Create(&module); }
"""


def build_driver():
    folder = os.path.abspath("hatdriver_build")
    os.makedirs(folder, exist_ok=True)
    src, lib = os.path.join(folder, "hatdriver.c"), os.path.join(folder, "hatdriver.so")
    with open(src, "w") as f:
        f.write(DRIVER)
    subprocess.check_call(["gcc", "-O1", "-g", "-shared", "-fPIC", "-pthread",
                           "-I" + sysconfig.get_path("include"), src, "-o", lib])
    spec = importlib.util.spec_from_file_location("hatdriver", lib)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class MotorLog:
    def __init__(self, window):
        self.samples = []
        self.kernel = torch.hann_window(window)
        self.kernel /= self.kernel.sum()

    def on_position(self, tick, pos):
        self.samples.append((tick, pos))

    def smooth(self):
        pos = torch.tensor([p for _, p in list(self.samples)])
        return torch.nn.functional.conv1d(pos.view(1, 1, -1), self.kernel.view(1, 1, -1)).flatten()


class Motor:
    def __init__(self, driver, log, period_us):
        self.driver = driver
        self.log = log
        driver.start(log.on_position, period_us)

    def wait_for(self, n):
        while len(self.log.samples) < n:
            torch.randn(64, 64).mm(torch.randn(64, 64))

    def close(self):
        self.driver.finalize()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--samples", type=int, default=500)
    p.add_argument("--window", type=int, default=15)
    p.add_argument("--period-us", type=int, default=1000)
    args = p.parse_args()
    torch.set_num_threads(1)

    driver = build_driver()
    log = MotorLog(args.window)
    motor = Motor(driver, log, args.period_us)
    for part in range(1, 5):
        motor.wait_for(part * args.samples // 4)
        curve = log.smooth()
        print(f"part {part}: {len(log.samples)} samples, mean {curve.mean():.2f}, spread {curve.std():.2f}", flush=True)
    print("stopping motor", flush=True)
    motor.close()
    torch.save(log.smooth(), "positions.pt")
    print("wrote positions.pt")


if __name__ == "__main__":
    main()
