"""Score `mine.py`, submit the score, verify a leaderboard and show it: `python -m project --help`."""

import argparse
import os
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path

import msgspec
from tqdm import tqdm

from project.gates import Gate
from project.leaderboard import (
    append,
    as_html,
    as_text,
    check_name,
    difference,
    line_of,
    made_again,
    ranked,
    read,
    rows,
    submit,
)
from project.learner import MineError, Source
from project.scoring import PASSED, PUBLIC_SEED, Result, checks, goodput, passed, score

HERE = Path(__file__).parent
MINE = HERE / "mine.py"


def main() -> None:
    """Run one of the commands."""
    if sys.flags.hash_randomization and os.environ.get("PYTHONHASHSEED") != "0":
        # The order of a set of strings would differ between two runs.
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, "-m", "project", *sys.argv[1:]])
    arguments = _parser().parse_args()
    try:
        sys.exit(arguments.run(arguments))
    except MineError as error:
        sys.exit(f"{error}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m project", description=__doc__)
    commands = parser.add_subparsers(required=True)
    one = commands.add_parser("score", help="test the gates and score a file")
    one.add_argument("--mine", type=Path, default=MINE, help="the file; project/mine.py")
    one.add_argument("--submit", metavar="NAME", help="append the score to the leaderboard")
    one.set_defaults(run=_score)
    two = commands.add_parser("verify", help="run lines of the leaderboard again")
    two.add_argument("names", nargs="*", help="only the lines of these names")
    two.set_defaults(run=_verify)
    three = commands.add_parser("leaderboard", help="print the table, and write it as a page")
    three.set_defaults(run=_leaderboard)
    four = commands.add_parser("rescore", help="score each name's best file again, on your seeds")
    four.set_defaults(run=_rescore)
    for command in (one, two, three, four):
        command.add_argument("--board", type=Path, default=HERE / "leaderboard.jsonl")
    return parser


def _score(arguments: argparse.Namespace) -> int:
    if arguments.submit is not None:
        check_name(arguments.submit)  # first, because a score takes a while
    if arguments.mine == MINE and not MINE.exists():
        MINE.write_bytes((HERE / "template.py").read_bytes())
        print(f"{MINE} is your copy of the template. Write your parts there.\n", file=sys.stderr)
    source = Source.read(arguments.mine)
    # A line on stderr that the next one replaces, or nothing if stderr is not a terminal.
    progress = tqdm(bar_format="{desc} ...", leave=False, disable=None)

    def tell(gate: Gate, failure: str | None, parts: list[str]) -> None:
        progress.clear()
        own = ", ".join(one for one in gate.parts if one in parts) or "none of yours"
        verdict = "failed" if failure else "passed"
        print(f"{gate.name:10} {verdict}  {gate.promise} ({own})", flush=True)

    progress.set_description_str("the gates")
    parts = passed(source, tell)
    results = score(source, progress.set_description_str, explain=True)
    progress.close()
    line = line_of(source, parts, results)
    print(f"\n{as_text(_table(results, checks(parts)))}\n")
    points = line.score["total"]
    verdict = "passed" if points >= PASSED else f"{PASSED} pass"
    print(f"total {points:.1f}: {verdict}. It is the mean of the column.\n")
    print(_explanation(results))
    if line.uses:
        print(f"\nYour file uses what no part needs: {', '.join(line.uses)}.")
    if arguments.submit is not None:
        added = submit(arguments.submit, line, arguments.board)
        print(f"\n{added.name}: attempt {added.attempts} is in {arguments.board}.")
    return 0


def _table(results: Sequence[Result], points: float) -> list[list[str]]:
    table = [["goodput, tokens/s", "yours", "without parts", "ours", "starved", "points"]]
    for one in results:
        means = [f"{goodput(runs):.0f}" for runs in (one.yours, one.bare, one.ours)]
        table.append([one.kind.name, *means, f"{one.starved:.1f}", f"{one.points:.1f}"])
    return [*table, ["checks", "", "", "", "", f"{points:.1f}"]]


def _explanation(results: Sequence[Result]) -> str:
    """Return where the points of each workload went, and what its worst request waited for."""
    lines = [f"Where the points went, on seed {PUBLIC_SEED}. Each number changes one part only."]
    for one in results:
        assert one.served is not None
        lines.append(f"\n{one.kind.name}: {one.points:.1f}")
        for title, gains in (("your parts bring", one.brings), ("ours would add", one.lacks)):
            rows = sorted((gains or {}).items(), key=lambda row: -row[1])
            named = [f"{name} {gain:+.0f}" for name, gain in rows if abs(gain) >= 1]
            lines.append(f"  {title:17} {', '.join(named) or 'nothing'}")
        worst = f"The worst wait: {one.served.worst_request()}"
        lines += textwrap.wrap(worst, 100, initial_indent="  ", subsequent_indent="  ")
    return "\n".join(lines)


def _verify(arguments: argparse.Namespace) -> int:
    lines = read(arguments.board)
    chosen = [one for one in lines if not arguments.names or one.name in arguments.names]
    failed = 0
    for number, line in enumerate(chosen, 1):
        print(
            f"{number} of {len(chosen)}: {line.name}, {line.score['total']}: ",
            end="",
            flush=True,
        )
        found = difference(line)
        same = f"the same{'; uses ' if line.uses else ''}{', '.join(line.uses)}"
        print(same if found is None else f"DIFFERS. {found}"[:400], flush=True)
        failed += found is not None
    if failed:
        print(f"{failed} of {len(chosen)} lines differ.")
    return 1 if failed else 0


def _rescore(arguments: argparse.Namespace) -> int:
    target = arguments.board.with_suffix(".rescored.jsonl")
    target.unlink(missing_ok=True)
    failed = 0
    for line in ranked(read(arguments.board)):
        again = made_again(Source("mine.py", line.code))
        if isinstance(again, str):
            failed += 1
            print(f"{line.name}: {again}", flush=True)
        else:
            append(msgspec.structs.replace(again, name=line.name, attempts=line.attempts), target)
            print(f"{line.name}: {line.score['total']}, now {again.score['total']}", flush=True)
    print(f"The new lines: {target}")
    return 1 if failed else 0


def _leaderboard(arguments: argparse.Namespace) -> int:
    table = rows(read(arguments.board))
    page = arguments.board.with_suffix(".html")
    page.write_text(as_html(table), encoding="utf-8")
    print(f"{as_text(table)}\n\nThe same as a page: {page}")
    return 0


if __name__ == "__main__":
    main()
