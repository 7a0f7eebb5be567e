"""schemathesis: requests made from the OpenAPI document, right and wrong ones, against a real server.

    python -m tests.clients.document_fuzz [CASES]

No answer may have a status of 500 or more, and every answer must be one that the document tells of.
Valid requests may be refused, because a schema cannot say all: that a prompt fits, for one.
`/events` is left out: its answers have no end. The teacher's controls have a server of their own,
which they hold.
"""

import re
import subprocess
import sys

from server.process import serve_in_background
from tests.clients.__main__ import BUILD, set_up
from tests.clients.checks import KEY

CASES = 200
PARTS = {
    "all routes": ["--exclude-path", "/events", "--exclude-path-regex", "^/engine/"],
    "the teacher's controls": ["--include-path-regex", "^/engine/"],
}


def main() -> None:
    """Run both parts and print how many cases there were. Exits with 1 if one fails."""
    cases = int(sys.argv[1]) if len(sys.argv) > 1 else CASES
    set_up("schemathesis")
    failed = False
    for name, paths in PARTS.items():
        with serve_in_background(max_batch_size=16, api_key=KEY, request_log="off") as server:
            done = fuzz(server.url, cases, paths)
        counted = re.search(r"\d+ generated.*", done.stdout)
        print(f"{name}: {counted[0] if counted else 'no cases'}")
        if done.returncode:
            failed = True
            print(done.stdout, done.stderr)
    sys.exit(failed)


def fuzz(url: str, cases: int, paths: list[str]) -> "subprocess.CompletedProcess[str]":
    """One run over these paths, with `cases` for each."""
    return subprocess.run(
        [
            *(str(BUILD / "schemathesis" / "bin" / "schemathesis"), "run", f"{url}/openapi.json"),
            *("--checks", "all", "--exclude-checks", "positive_data_acceptance"),
            *("--phases", "examples,coverage,fuzzing", "--max-examples", str(cases)),
            *("--header", f"Authorization: Bearer {KEY}", "--request-timeout", "60"),
            *("--seed", "1", "--suppress-health-check", "all", *paths),
        ],
        capture_output=True,
        text=True,
        check=False,
    )


if __name__ == "__main__":
    main()
