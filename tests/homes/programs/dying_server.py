"""An application for uvicorn: /bad dies on the main thread of a worker, /thread on one of its pool."""

import ctypes

from fastapi import FastAPI

app = FastAPI()


@app.get("/good")
def good():
    return "good"


@app.get("/bad")
async def bad():
    ctypes.string_at(0)


@app.get("/thread")
def thread():
    ctypes.string_at(0)
