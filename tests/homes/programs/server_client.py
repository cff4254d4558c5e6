"""Starts the server, asks once, and ends it: by SIGTERM, as a supervisor would after a health check that fails."""

import signal
import subprocess
import sys
import time
import urllib.request

SECONDS = 14


def main(port: str) -> int:
    words = [
        sys.executable,
        "-m",
        "uvicorn",
        "server_job:app",
        "--port",
        port,
        "--workers",
        "2",
        "--log-level",
        "error",
    ]
    server = subprocess.Popen([*words, "--app-dir", __file__.rpartition("/")[0]])
    end = time.monotonic() + SECONDS
    answer = None
    while answer is None and time.monotonic() < end:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/generate", timeout=SECONDS) as reply:
                answer = reply.read().decode()
        except ConnectionRefusedError:
            time.sleep(0.2)
        except OSError as error:
            if not isinstance(getattr(error, "reason", None), ConnectionRefusedError):
                break
            time.sleep(0.2)
    print(answer, flush=True)
    server.send_signal(signal.SIGTERM)
    try:
        server.wait(10)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()
    return 0 if answer else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
