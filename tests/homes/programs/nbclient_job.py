"""Runs the notebook by nbclient, as papermill and documentation builders do."""

from pathlib import Path

import nbformat
from nbclient import NotebookClient

notebook = nbformat.read(Path(__file__).with_name("notebook_job.ipynb"), as_version=4)
NotebookClient(notebook).execute()
print("executed", flush=True)
