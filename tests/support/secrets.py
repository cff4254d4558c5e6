"""Command lines with secrets, and look-alikes without: what a recording may contain of them."""

from __future__ import annotations

SECRET = "hunter2hunter2"
MIXED = "aB3" * 12
HEX40 = "0123456789abcdef0123456789abcdef01234567"
GHP, HF, SK = f"ghp_{MIXED}", f"hf_{MIXED}", f"sk-{MIXED}"
JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abc-_d"
AWS = "AKIAIOSFODNN7EXAMPLE"

# Arguments, and what is recorded of them.
HIDDEN: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = tuple(
    (tuple(given), tuple(kept))
    for given, kept in (
        # an option and its value, in one word or two, by all conventions
        ([f"--api-key={SECRET}"], ["--api-key=***"]),
        (["--api-key", SECRET, "--lr", "1"], ["--api-key", "***", "--lr", "1"]),
        (["-password", SECRET], ["-password", "***"]),
        (["--password", SECRET + " with blanks & more"], ["--password", "***"]),
        (["--password=a b&c,d"], ["--password=***"]),
        (["--password=a"], ["--password=*"]),
        (["--PASSWORD", SECRET], ["--PASSWORD", "***"]),
        (["--client_secret=" + SECRET], ["--client_secret=***"]),
        (["--wandb.apiKey=" + SECRET], ["--wandb.apiKey=***"]),
        (["--hfToken", SECRET], ["--hfToken", "***"]),
        (["--token", "--lr"], ["--token", "--lr"]),
        # Hydra, variables, numbered names
        (["+wandb.api_key=" + SECRET], ["+wandb.api_key=***"]),
        (["~db.password=" + SECRET], ["~db.password=***"]),
        (["WANDB_API_KEY=" + SECRET, "python"], ["WANDB_API_KEY=***", "python"]),
        (["SLURM_JWT=" + SECRET], ["SLURM_JWT=***"]),
        (["PGPASSWORD=" + SECRET], ["PGPASSWORD=***"]),
        (["DB_PWD=" + SECRET], ["DB_PWD=***"]),
        (["api_key_2=" + SECRET], ["api_key_2=***"]),
        (["AccountKey=" + SECRET], ["AccountKey=***"]),
        (["--set", f"a=1,db.password={SECRET},b=2"], ["--set", "a=1,db.password=***,b=2"]),
        # inside other syntax
        (["--x", f'{{"api_key": "{SECRET}", "lr": 3}}'], ["--x", '{"api_key": "***", "lr": 3}']),
        (["--x", f'{{\\"api_key\\": \\"{SECRET}\\"}}'], ["--x", '{\\"api_key\\": \\"***\\"}']),
        (["--x", f'{{"secrets": ["{SECRET}", "b"]}}'], ["--x", '{"secrets": ***']),
        ([f"['--api-key', '{SECRET}']"], ["['--api-key', '***']"]),
        ([f"cfg['api_key']='{SECRET}'"], ["cfg['api_key']='***'"]),
        (["--x=a\\'b", f"x password: '{SECRET}'"], ["--x=a\\'b", "x password: '***'"]),
        (["-c", f"WANDB_API_KEY={SECRET} python t.py"], ["-c", "WANDB_API_KEY=*** python t.py"]),
        (["-lc", f"mysql --password {SECRET} && echo"], ["-lc", "mysql --password *** && echo"]),
        (["-c", f"password = '{SECRET}'; train()"], ["-c", "password = '***'; train()"]),
        (["-H", f"Authorization: Bearer {SECRET}"], ["-H", "Authorization: ***"]),
        (["-c", f"curl -H 'Authorization: Bearer {SECRET}' x"], ["-c", "curl -H 'Authorization: Bearer ***' x"]),
        (["--x", f"see bearer {SECRET} there"], ["--x", "see bearer *** there"]),
        (["-H", f"X-Api-Key: {SECRET}"], ["-H", "X-Api-Key: ***"]),
        # addresses
        ([f"postgres://u:{SECRET}@h/db"], ["postgres://u:***@h/db"]),
        ([f"--store=redis://:{SECRET}@h:1/0"], ["--store=redis://:***@h:1/0"]),
        (["https://u:pa/ss@h/p"], ["https://u:***@h/p"]),
        ([f"--url=https://h/?x=1&token={SECRET}&y=2"], ["--url=https://h/?x=1&token=***&y=2"]),
        ([f"https://h/b?sv=1&sig={SECRET}"], ["https://h/b?sv=1&sig=***"]),
        # tokens recognized by their shape, anywhere
        ([GHP], ["***"]),
        ([f"--x={GHP}"], ["--x=***"]),
        ([f"https://{GHP}@github.com/x"], ["https://***@github.com/x"]),
        ([f"/p/{HF}.txt"], ["/p/***.txt"]),
        ([f"a_{SK}-proj"], ["a_***"]),
        ([JWT, f"a.{JWT}"], ["***", "a.***"]),
        ([f"x{GHP}", f"my_{GHP}", f"a=b:{GHP},c"], ["x***", "my_***", "a=b:***,c"]),
        ([f"github_pat_{MIXED}", f"glpat-{MIXED}", "xoxb-123456789012-abc"], ["***", "***", "***"]),
        ([AWS, f"id:{AWS}:x"], ["***", "id:***:x"]),
        (["--key", HEX40], ["--key", "***"]),
        ([f"WANDB_KEY={HEX40}"], ["WANDB_KEY=***"]),
        (["-----BEGIN RSA PRIVATE KEY-----\nabc\n-----END"], ["-----BEGIN RSA PRIVATE KEY-----***"]),
    )
)

# The same for programs whose short options take a secret.
PROGRAMS: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = (
    (("/usr/bin/mysql", f"-p{SECRET}", "db"), ("/usr/bin/mysql", "-p***", "db")),
    (("sshpass", "-p", SECRET, "ssh", "h"), ("sshpass", "-p", "***", "ssh", "h")),
    (("curl", "-u", f"me:{SECRET}", "x"), ("curl", "-u", "***", "x")),
    (("python", "-p", "3"), ("python", "-p", "3")),
)

# None of these is a secret.
PLAIN: tuple[tuple[str, ...], ...] = (
    ("--tokenizer=llama",), ("--max-tokens", "4096"), ("--max_token=7",), ("--key-dim", "64"), ("--num-keys=3",),
    ("tokens=5",), ("--pad-token=<pad>",), ("--eos_token", "</s>"), ("--sort-key", "loss"), ("--key=image",),
    ("--token-budget=4",), ("--password-file=/run/x",), ("--no-password", "train.py"),
    ("--use-auth-token", "train.py"), ("--secretary=x",), ("--config=conf/token.yaml",), ("--passes=3",),
    ("--n-pass=3",), ("--pass-rate=0.5",), ("--bypass=2",), ("PWD=/home/x",), ("--private=true",), ("--author=me",),
    ("--seed=7",), ("--salt-and-pepper",), ("http://localhost:8080/npm/@scope/x",), ("http://[::1]:80/@x",),
    ("ssh://git@github.com/x",), ("tcp://[::1]:29500",), ("git@github.com:x/y.git",), ("--device=cuda:0",),
    ("/data/sk-resnet50-imagenet-baseline-1",), ("secret://vault/x",), ("task-aaaaaaaaaaaaaaaaaaaa1111",),
    ("ckpt_0123456789abcdef0123456789abcdef01234567.pt",), ("bearer of news",),
    ("-c", "import os; print(os.getpid())"), ("--password",), ("--password=",), ("",), ("--",), ("=",), ("://",),
    ("://:@",), ("--empty", "", "x"), ("encoder8_0123456789abcdef0123456789abcdef",), ("eyJhbGciOiJIUzI1NiJ9",),
    ("AKIASHORT",), ("--shards", "0123456789abcdef0123456789abcdef"),
)  # fmt: skip
