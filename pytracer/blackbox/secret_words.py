"""How secrets are recognized in a command line: names of options and variables, and formats of well-known tokens.

One table for all: `redaction.py` uses it when a command is recorded and when a report is shared, and
scripts/gen_redaction.py generates that of csrc/crashsafe. Names are compared by their last words, in lower case:
`--wandb.apiKey` ends in `api`, `key`. All words are ASCII.
"""

from __future__ import annotations

MASK = "***"
"""What is written instead; fewer characters when the secret had fewer."""

# The last word of a name, or its end: the value is a secret.
SECRET_WORDS = (
    "authorization", "bearer", "cookie", "cookies", "credential", "credentials", "creds", "dsn", "jwt",
    "masterauth", "otp", "passcode", "pw", "requirepass", "secret", "secrets", "signature", "sshpass", "totp",
    "userpass",
)  # fmt: skip
SECRET_ENDS = (
    "accesskey", "accesstoken", "apikey", "apitoken", "authkey", "authtoken", "bearertoken", "connectionstring",
    "hftoken", "passphrase", "passwd", "password", "passwords", "privatekey", "secretkey", "sessiontoken",
)  # fmt: skip
# `token` is a secret, but not with these before it: models have tokens, too.
PLAIN_TOKENS = (
    "a", "action", "audio", "bad", "bos", "by", "class", "cls", "context", "decoder", "doc", "document", "draft",
    "each", "end", "eos", "eot", "extra", "first", "forced", "image", "img", "initial", "last", "mask", "max",
    "min", "n", "new", "next", "no", "num", "oov", "pad", "padding", "patch", "per", "prefix", "prompt", "query",
    "region", "register", "sep", "single", "sos", "special", "start", "stop", "suffix", "system", "tag", "target",
    "text", "think", "unk", "unknown", "vision", "vq", "word",
)  # fmt: skip
# `key` is a secret behind these; behind others only when its value is 32 hexadecimal digits or more, as wandb's are.
SECRET_KEYS = (
    "access", "account", "admin", "api", "app", "application", "auth", "client", "deploy", "encryption", "host",
    "license", "master", "private", "secret", "service", "session", "shared", "signing", "ssh", "storage",
    "subscription",
)  # fmt: skip
HEX_KEY_DIGITS = 32
# `pass` is one alone and behind these; `pwd` only behind another word: PWD itself is a directory.
SECRET_PASSES = (
    "admin", "auth", "db", "email", "ftp", "http", "login", "mail", "mysql", "pg", "proxy", "redis", "root", "smtp",
    "ssh", "sudo", "user",
)  # fmt: skip
# An option that begins with these takes no value: `--no-password train.py`.
SWITCHES = (
    "add", "allow", "ask", "disable", "enable", "force", "has", "hide", "is", "no", "print", "prompt", "read",
    "require", "show", "skip", "trust", "use", "with", "without",
)  # fmt: skip
# Programs whose short option takes a secret, and its letter; in `-pSECRET` and in `-p SECRET`.
PROGRAM_OPTIONS = (
    ("curl", "u"), ("mariadb", "p"), ("mysql", "p"), ("mysqladmin", "p"), ("mysqldump", "p"), ("redis-cli", "a"),
    ("sshpass", "p"),
)  # fmt: skip
# Words before the secret itself in a header: `Authorization: Bearer ...`.
SCHEMES = ("basic", "bearer", "digest", "token")
BEARER_CHARACTERS = 12

# Prefix, characters that follow, how many at least. "A": letters and digits; "W": also - and _; "X": lower-case
# hexadecimal; "U": upper case and digits; "S": as W, with a digit and a stretch of 16 letters and digits (so that
# sk-learn-models-of-mine is none); "J": as W, and then a dot and more. A prefix of four or more that ends in _ or - is
# found inside words, too; others begin one.
TOKEN_SHAPES = (
    ("AIza", "W", 30),
    ("AKIA", "U", 16),
    ("ASIA", "U", 16),
    ("dapi", "X", 32),
    ("dop_v1_", "X", 60),
    ("eyJ", "J", 10),
    ("gho_", "A", 30),
    ("ghp_", "A", 30),
    ("ghr_", "A", 30),
    ("ghs_", "A", 30),
    ("ghu_", "A", 30),
    ("github_pat_", "W", 30),
    ("glpat-", "W", 18),
    ("gsk_", "A", 30),
    ("hf_", "A", 30),
    ("npm_", "A", 30),
    ("nvapi-", "W", 20),
    ("pypi-", "S", 20),
    ("r8_", "A", 30),
    ("rk_live_", "A", 16),
    ("sk-", "S", 20),
    ("sk_live_", "A", 16),
    ("sk_test_", "A", 16),
    ("wandb_v1_", "W", 20),
    ("xapp-", "W", 10),
    ("xoxa-", "W", 10),
    ("xoxb-", "W", 10),
    ("xoxp-", "W", 10),
    ("xoxr-", "W", 10),
    ("xoxs-", "W", 10),
    ("ya29.", "S", 20),
)
