"""Runs another program after pytracer.enable(DIRECTORY): enabled.py DIRECTORY PROGRAM [ARGUMENT]..."""

import runpy
import sys

import pytracer

pytracer.enable(sys.argv[1])
sys.argv = sys.argv[2:]
runpy.run_path(sys.argv[0], run_name="__main__")
