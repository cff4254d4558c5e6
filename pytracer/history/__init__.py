"""What happened to many jobs: deaths as rows of Parquet files, and questions about them.

`add` turns reports into rows (`fingerprint.py`, `rows.py`), `store.py` keeps them on any file system that fsspec knows,
`database.py` opens them with DuckDB, `questions.py` asks. Spark and Ray read the same files without this package.
"""
