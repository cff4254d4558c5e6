"""The same SQL about a million deaths, answered by DuckDB in this process and by Spark: equal rows, and how long.

    python benchmarks/history_spark.py                  needs pyspark, java, and pytracer[history]; 4 GB, minutes
    python benchmarks/history_spark.py --deaths 20000

Both read the store's Parquet files; Spark without any of pytracer's code, by two views. Spark is `local[2]` with a heap
of 2 GB; its start is not counted. Cold: the store's pages are dropped from the page cache first.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from history import drop_pages
from support.measuring import machine, progress

from pytracer.history.database import Database
from pytracer.history.store import Store
from tests.support.fleet import Fleet

QUESTIONS = {
    "what kills most": "SELECT fingerprint, count(*) AS n, min(started) AS since, max(started) AS latest FROM deaths "
    "GROUP BY fingerprint ORDER BY n DESC, fingerprint LIMIT 20",
    "seen before?": "SELECT count(*) AS n, min(started) AS since FROM deaths WHERE fingerprint = 'f1-0000000000000000'",
    "hosts": "SELECT host, count(*) AS n FROM nodes WHERE culprit GROUP BY host ORDER BY n DESC, host LIMIT 20",
    "torch by cause": "SELECT fingerprint, torch, count(*) AS n FROM deaths GROUP BY fingerprint, torch "
    "ORDER BY n DESC, fingerprint, torch LIMIT 20",
    "classes by week": "SELECT CAST(date_trunc('week', started) AS date) AS week, class, count(*) AS n FROM deaths "
    "GROUP BY 1, 2 ORDER BY 1, 3 DESC, 2",
}
Ask = Callable[[str], list[Any]]


def spark_session(store: Path) -> Ask:
    """Spark's answer to a query."""
    from pyspark.sql import SparkSession

    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "2g",
    }
    settings |= {"spark.driver.host": "127.0.0.1", "spark.sql.session.timeZone": "UTC"}
    spark = SparkSession.builder.master("local[2]").config(map=settings).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    spark.read.parquet(str(store / "runs")).createOrReplaceTempView("runs")
    spark.sql("CREATE TEMP VIEW deaths AS SELECT * FROM runs WHERE died")
    spark.sql("CREATE TEMP VIEW nodes AS SELECT run_key, day, n.* FROM runs LATERAL VIEW inline(nodes) n")
    return lambda query: [tuple(row) for row in spark.sql(query).collect()]


def main() -> int:
    """One line for each question; 1 if the answers differ."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--deaths", type=int, default=1_000_000, help="how many (default 1,000,000)")
    given = parser.parse_args()
    equal = True
    with tempfile.TemporaryDirectory(prefix="pytracer-bench-") as name:
        progress(f"writing {given.deaths:,} deaths")
        Fleet(given.deaths, given.deaths // 5).write(Store(name))
        progress("")
        store = Path(name)
        print(" ".join(f"{key} {value}," for key, value in machine().items()), f"load {os.getloadavg()[0]:.1f}")
        with Database(Store(name)) as database:
            duck: Ask = lambda query: database.connection.sql(query).fetchall()  # noqa: E731
            spark = spark_session(store)
            for question, query in QUESTIONS.items():
                times, answers = [], []
                for ask in (duck, spark):
                    for cold in (True, False):
                        if cold:
                            drop_pages(store)
                        since = time.monotonic()
                        answers.append([tuple(map(str, row)) for row in ask(query)])
                        times.append(f"{time.monotonic() - since:.2f} s")
                equal &= all(answer == answers[0] for answer in answers)
                print(f"| {question} | {' | '.join(times)} | {'equal' if answers[0] == answers[-1] else 'DIFFER'} |")
    return 0 if equal else 1


if __name__ == "__main__":
    sys.exit(main())
