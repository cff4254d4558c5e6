"""Starts the server, asks once, and ends it by SIGTERM, as a supervisor does whose health check fails."""

import os
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

STARTS_SECONDS, ANSWERS_SECONDS = 60, 6


def ask(port: str, answers: list[str]) -> None:
    """Until there is an answer; a server that starts refuses connections."""
    while True:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/generate") as reply:
                answers.append(reply.read().decode())
                return
        except urllib.error.URLError as error:
            if not isinstance(error.reason, ConnectionRefusedError):
                return
        except OSError:
            return
        time.sleep(0.2)


def main(port: str) -> int:
    words = ["--port", port, "--workers", "2", "--log-level", "error", "--app-dir", str(Path(__file__).parent)]
    server = subprocess.Popen([sys.executable, "-m", "uvicorn", "server_job:app", *words])
    answers: list[str] = []
    asks = threading.Thread(target=ask, args=(port, answers), daemon=True)
    asks.start()
    end = time.monotonic() + STARTS_SECONDS
    dies = Path(os.environ["HOMES_WORK"], "dies")
    while asks.is_alive() and time.monotonic() < end:
        asks.join(0.2)
        if dies.exists():
            end = min(end, time.monotonic() + ANSWERS_SECONDS)
    print(answers, flush=True)
    server.send_signal(signal.SIGTERM)
    try:
        server.wait(10)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()
    return 0 if answers else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
