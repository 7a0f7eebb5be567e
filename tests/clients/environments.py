"""The environments that the clients run in: one folder below `build/clients` for each.

`python -m tests.clients.environments node` installs one of them, unless it is there already.
"""

import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
BUILD = HERE.parents[1] / "build" / "clients"
BIN = Path(sys.executable).parent


def set_up(environment: str) -> None:
    requirements = HERE / f"requirements-{environment}.txt"
    folder = BUILD / environment
    installed = folder / requirements.name
    if installed.exists() and installed.read_text() == requirements.read_text():
        return
    print(f"setting up {environment} ...", flush=True)
    folder.mkdir(parents=True, exist_ok=True)
    if environment == "node":
        (folder / "package.json").write_text("{}")
        packages = requirements.read_text().split()
        install = ["npm", "install", "--no-audit", "--no-fund", "--silent", *packages]
    else:
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        python = str(folder / "bin" / "python")
        # The files list everything, and SGLang's server, which is not needed, would bring much more.
        install = [python, "-m", "pip", "install", "-q", "--no-deps", "-r", str(requirements)]
    subprocess.run(install, cwd=folder, env=with_path(), check=True)
    installed.write_text(requirements.read_text())


def with_path() -> dict[str, str]:
    """The environment variables, with the project's `npm` and `node` first on the path."""
    return os.environ | {"PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}


if __name__ == "__main__":
    for name in sys.argv[1:]:
        set_up(name)
