"""A run of two ranks with private values wherever a report can hold some. Nothing was redacted when it was recorded."""

from __future__ import annotations

from pathlib import Path

from tests.support.secrets import AWS, GHP, HF, JWT, SK
from tests.support.synth import Box, write_run

USER, HOST, OTHER_HOST, DOMAIN = "aliceliddell", "rabbithole7", "teaparty03", "wonderland.internal"
HOME = f"/home/{USER}/queens-project"
PRIVATE: dict[str, str] = {
    "user in a path": USER,
    "directory above the project": "queens-project",
    "directory elsewhere": "looking-glass",
    "host": HOST,
    "host in an exception": OTHER_HOST,
    "domain of a host": DOMAIN,
    "address of a host": "10.11.12.13",
    "IPv6 address": "2001:db8:7:8::9",
    "mail address": "mad.hatter",
    "value of an option": "optionvalue4242",
    "word behind an option": "worduncovered17",
    "token of GitHub in argv": GHP,
    "token of Hugging Face in a path": HF,
    "token of OpenAI in an exception": SK,
    "JSON web token in an exception": JWT,
    "key of AWS in the environment": AWS,
    "password of a URL in argv": "urlpassw0rd",
    "password of a URL in an exception": "dbpassw0rd",
    "user of a URL": "cheshire-svc",
    "parameter of a URL": "urlparameter99",
    "bearer of a header": "bearervalue123456",
    "assignment in an exception": "assignedvalue5",
    "secret of another process": "sendersecret88",
    "secret in the C library's text": "abortedsecret6",
    "secret in memory": "memorysecret77",
}


def planted_run(directory: Path) -> Path:
    """Writes the run: rank 0 raises an exception, rank 1 aborts."""
    frames = [("load", f"{HOME}/data/load.py", 7), ("<module>", f"{HOME}/train.py", 30)]
    argv = [
        f"/home/{USER}/venv/bin/python", f"{HOME}/train.py", "--api-key=optionvalue4242",
        "--password", "worduncovered17", GHP,
        "https://bob:urlpassw0rd@mlflow.example.com/x?token=urlparameter99", f"/mnt/looking-glass/{HF}.txt",
    ]  # fmt: skip
    environment = {
        "MASTER_ADDR": f"{HOST}.{DOMAIN}",
        "SLURM_NODELIST": "teaparty[01-03]",
        "NCCL_DEBUG_FILE": f"/mnt/looking-glass/{USER}/nccl.log",
        "PYTHONPATH": f"{HOME}/lib:/opt/looking-glass/lib",
        "NCCL_NET_PLUGIN": AWS,
    }
    message = (
        f"no answer of {OTHER_HOST} (10.11.12.13, 2001:db8:7:8::9) for {USER}: "
        f"postgres://cheshire-svc:dbpassw0rd@db.{DOMAIN}:5432/x refused\n"
        f"Authorization: Bearer bearervalue123456; key {SK}; token {JWT}; password = 'assignedvalue5'; "
        f"again assignedvalue5; ask mad.hatter@{DOMAIN}; see /mnt/looking-glass/a/b.log and file:///home/{USER}/notes.txt"
    )
    first = Box(pid=101, ppid=100, rank=0, host=HOST, argv=argv, environment=environment)
    first.versions(python="3.11.7", torch="2.13.0+cpu", cuda=None).at(500).exception("ConnectionError", message, frames)
    second = Box(pid=102, ppid=100, rank=1, host=HOST, argv=argv, environment={**environment, "HOSTNAME": HOST})
    second.versions(python="3.11.7", torch="2.13.0+cpu", cuda=None).at(900).crash(
        signal=6,
        code=-6,
        sender_pid=77,
        sender_command=["curl", "-u", "me:sendersecret88", f"/home/{USER}/kill.sh"],
        abort_text=f"{HOME}/op.cpp:9: check: Assertion `password=abortedsecret6' failed.",
        python=frames,
        native=[(f"{HOME}/libop.so", 0x1100), ("/usr/lib/libc.so.6", 0x3300)],
        mappings=[(0x5555_0000_0000, 0x5555_0001_0000, "r-xp", 0, f"/mnt/looking-glass/{USER} files/libop.so")],
        memory=[("rdi", 0x7F00_0000_1000, 0x7F00_0000_1000, b"memorysecret77".ljust(32, b"\0"))],
    )
    launcher = Box(pid=100, ppid=99, host=HOST, argv=["torchrun", *argv])
    launcher.at(800).wait(101, exit_code=1).at(1000).wait(102, signal=6).exit(1)
    return write_run(directory, launcher, first.exit(1), second, launcher={"command": argv, "cwd": HOME})


def leaks(text: str) -> dict[str, str]:
    """What of `PRIVATE` is in a text, in clear or as hexadecimal digits."""
    folded = text.lower()
    return {what: value for what, value in PRIVATE.items() if value.lower() in folded or value.encode().hex() in folded}
