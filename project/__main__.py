"""Score `mine.py`, submit the score, verify a leaderboard and show it: `python -m project --help`."""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec
from tqdm import tqdm

from project.gates import GATES
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
from project.runs import serve, worst_request
from project.scoring import PASSED, PUBLIC_SEEDS, Result, goodput, score, total

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
    one.add_argument("--json", action="store_true", help="print the score as JSON only")
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
    if not _passes_gates(source, progress, quiet=arguments.json):
        return 1
    results = score(source, progress.set_description_str)
    progress.close()
    line = line_of(source, results)
    if arguments.json:
        print(msgspec.json.encode(line).decode())
        return 0
    print(f"\n{as_text(_table(results))}\n")
    points = total(results)
    verdict = "passed" if points >= PASSED else f"{PASSED} pass"
    print(f"total {points:.1f}: {verdict}. Half the mean of the points, half their minimum.")
    weakest = min(results, key=lambda one: one.points).kind
    seed = PUBLIC_SEEDS[0]
    print(f"\nThe worst wait in {weakest.name}, seed {seed}:")
    print(worst_request(serve(source, weakest, seed)))
    if arguments.submit is not None:
        added = submit(arguments.submit, line, arguments.board)
        print(f"\n{added.name}: attempt {added.attempts} is in {arguments.board}.")
    return 0


def _passes_gates(source: Source, progress: tqdm, *, quiet: bool) -> bool:
    """Test the gates and print the results. The reasons of a failure go to stderr."""
    passed = True
    for gate in GATES:
        progress.set_description_str(f"gate {gate.name}")
        failure = gate.failure(source)
        own = ", ".join(gate.parts_in(source)) or "the engine's own parts"
        progress.clear()
        if not quiet:
            verdict = "failed" if failure else "passed"
            print(f"{gate.name:10} {verdict}  {gate.promise} ({own})", flush=True)
        if failure:
            print(f"gate {gate.name}: {failure}", file=sys.stderr, flush=True)
            passed = False
    return passed


def _table(results: Sequence[Result]) -> list[list[str]]:
    seeds = [*(f"seed {seed}" for seed in PUBLIC_SEEDS), "hidden", "hidden", "hidden"]
    table = [["goodput, tokens/s", *seeds, "yours", "default", "ours", "starved", "points"]]
    for one in results:
        means = [f"{goodput(runs):.0f}" for runs in (one.yours, one.defaults, one.ours)]
        runs = [f"{run.goodput:.0f}" for run in one.yours]
        table.append([one.kind.name, *runs, *means, f"{one.starved:.1f}", f"{one.points:.1f}"])
    return table


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
        print("the same" if found is None else f"DIFFERS. {found}"[:400], flush=True)
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
