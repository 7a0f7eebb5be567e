"""Simon Willison's `llm`: the command as a person types it, and its Python module."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.clients.checks import KEY, PROMPT, QUESTION, Servers, Session, same

session = Session("llm")
HOME = tempfile.TemporaryDirectory()
GREEDY = ("-o", "temperature", "0", "-o", "max_tokens", "24")


def llm(servers: Servers, *arguments: str, fails: bool = False) -> str:
    """What the command prints, with the models that its documentation has one add in a file."""
    local = {"model_id": "local", "model_name": "bundled", "api_base": f"{servers.url}/v1"}
    missing = {"model_name": "gpt-4", "api_base": f"{servers.auto}/v1"}
    missing |= {"model_id": "missing", "api_key_name": "underglass"}
    models = [local, local | {"model_id": "text", "completion": True}, missing]
    # YAML takes JSON.
    Path(HOME.name, "extra-openai-models.yaml").write_text(json.dumps(models))
    Path(HOME.name, "keys.json").write_text(json.dumps({"underglass": KEY}))
    done = subprocess.run(
        [Path(sys.executable).parent / "llm", *arguments],
        env=os.environ | {"LLM_USER_PATH": HOME.name},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode != 0) == fails, done
    return done.stderr if fails else done.stdout


@session.check("models")
def models(servers: Servers) -> None:
    assert "local" in llm(servers, "models")


def said(servers: Servers, model: str, *arguments: str) -> str:
    return llm(servers, "-m", model, *GREEDY, *arguments).rstrip("\n")


session.texts(
    completion=lambda servers: said(servers, "text", "--no-stream", PROMPT),
    completion_streamed=lambda servers: said(servers, "text", PROMPT),
    chat=lambda servers: said(servers, "local", "--no-stream", QUESTION),
    chat_streamed=lambda servers: said(servers, "local", QUESTION),
)


@session.check("usage")
def usage(servers: Servers) -> None:
    said(servers, "local", QUESTION)
    (logged,) = json.loads(llm(servers, "logs", "-n", "1", "--json"))
    assert logged["input_tokens"] > 0, logged
    assert logged["output_tokens"] > 0, logged


@session.check("seed")
def seed(servers: Servers) -> None:
    def text(number: int) -> str:
        asked = ("-o", "temperature", "1", "-o", "max_tokens", "24", "-o", "seed", str(number))
        return llm(servers, "-m", "local", *asked, "Tell me a story")

    same(text(1), text(1))
    assert len({text(number) for number in range(1, 4)}) > 1


@session.check("a wrong field")
def wrong_field(servers: Servers) -> None:
    told = llm(servers, "-m", "local", "-o", "top_p", "0", QUESTION, fails=True)
    assert "top_p" in told, told


@session.check("404")
def not_found(servers: Servers) -> None:
    told = llm(servers, "-m", "missing", QUESTION, fails=True)
    assert "there is no model 'gpt-4'" in told, told
