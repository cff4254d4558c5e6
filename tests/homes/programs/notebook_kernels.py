"""Runs notebooks one after the other, each a list of cells in the JSON on stdin; prints the outputs as JSON."""

import json
import sys

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import DeadKernelError

outputs = []
for cells in json.load(sys.stdin):
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    for cell in notebook.cells:
        if cell.source.endswith("# raises"):
            cell.metadata["tags"] = ["raises-exception"]
    client = NotebookClient(notebook, timeout=60, kernel_name="python3", resources={"metadata": {"path": "."}})
    died = False
    try:
        client.execute()
    except DeadKernelError:
        died = True
    shown = [
        output.get("text") or output.get("data", {}).get("text/plain") or "".join(output.get("traceback", []))
        for cell in notebook.cells
        for output in cell.outputs
    ]
    outputs.append({"died": died, "shown": shown})
print(json.dumps(outputs))
