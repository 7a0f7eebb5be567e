"""The parity table: greedy tokens of every family in every situation, against transformers.

Small random models with their family's features switched on, 1,024 tokens a cell. A cell says how many
tokens were compared, how many of them are wrong and how many are ties: other than transformers' best,
but within 1e-4 of its logit (within 5% of the largest logit in half precision). The shared code,
`tests/engine/compute/parity.py`, explains rows, columns and the judge.
"""

import tempfile
from pathlib import Path

import torch

from benchmarks.report import save
from tests.engine.compute.parity import COLUMNS, ROWS, Cell, fill

PROMPTS, OUTPUT = 32, 32


def main() -> None:
    """Print the table, and below it how often each column's situation occurred in one cell."""
    torch.set_num_threads(1)
    cells: dict[tuple[str, str], Cell] = {}
    print(f"{'tokens / wrong / ties':21}" + "".join(f"{name:>15}" for name in COLUMNS))
    for row, make in ROWS.items():
        with tempfile.TemporaryDirectory() as directory:
            subject = make(Path(directory))
            for name, column in COLUMNS.items():
                cells[row, name] = fill(subject, column, PROMPTS, OUTPUT)
        counts = (cells[row, name] for name in COLUMNS)
        shown = (f"{cell.tokens} / {cell.wrong} / {cell.ties}" for cell in counts)
        print(f"{row:21}" + "".join(f"{text:>15}" for text in shown), flush=True)
    for name, column in COLUMNS.items():
        least = min(cells[row, name].happened for row in ROWS)
        print(f"{name}: at least {least} {column.says} in each cell")
    wrong, ties = (sum(getattr(c, what) for c in cells.values()) for what in ("wrong", "ties"))
    tokens = sum(cell.tokens for cell in cells.values())
    print(f"{tokens} tokens compared, {wrong} wrong, {ties} ties")
    save(
        "parity",
        {
            row: {
                name: {
                    what: getattr(cells[row, name], what) for what in ("tokens", "wrong", "ties")
                }
                for name in COLUMNS
            }
            for row in ROWS
        },
    )
