"""curl, as a class uses it."""

import subprocess


def curl(url: str, body: str) -> "subprocess.Popen[bytes]":
    command = ["curl", "-sN", f"{url}/v1/completions", "-d", body]
    command += ["-H", "Content-Type: application/json"]
    return subprocess.Popen(command, stdout=subprocess.PIPE)
