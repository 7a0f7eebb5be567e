"""lm-eval: the same tasks over the server and, by its own `hf` model, over the same weights.

Nothing is fetched: tasks and texts are in `lm_eval_tasks/`, model and tokenizer in `engine/bundled`.
"""

import functools
import os
from pathlib import Path
from typing import Any

os.environ |= {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
os.environ["OPENAI_API_KEY"] = "unused"

import lm_eval  # type: ignore[import-not-found]
import torch
from lm_eval.tasks import TaskManager  # type: ignore[import-not-found]

from tests.clients.checks import MODEL, Servers, Session, same

torch.set_num_threads(1)
session = Session("lm-eval")
TASKS = Path(__file__).parent / "lm_eval_tasks"
NAMES = ["what_comes_next", "next_word"]
CLOSE = 1e-4


@functools.cache
def results(server: str) -> dict[str, Any]:
    """lm-eval's results over a server; over transformers for an empty address."""
    over_server = {"model": "bundled", "base_url": f"{server}/v1/completions", "batch_size": 4}
    over_server |= {"tokenizer": str(MODEL), "tokenizer_backend": "huggingface"}
    over_server |= {"num_concurrent": 8}
    over_transformers = {"pretrained": str(MODEL), "dtype": "float32", "device": "cpu"}
    evaluated: dict[str, Any] = lm_eval.simple_evaluate(
        model="local-completions" if server else "hf",
        model_args=(over_server if server else over_transformers) | {"add_bos_token": True},
        tasks=NAMES,
        task_manager=TaskManager(include_path=str(TASKS), include_defaults=False),
        bootstrap_iters=0,
    )
    return evaluated


@session.check("accuracy")
def accuracy(servers: Servers) -> None:
    """Every metric that counts is exactly transformers'."""
    ours, theirs = results(servers.url)["results"], results("")["results"]
    for task, metric in (
        ("what_comes_next", "acc,none"),
        ("what_comes_next", "acc_norm,none"),
        ("next_word", "acc,none"),
    ):
        same(ours[task][metric], theirs[task][metric])
        assert 0.1 < ours[task][metric] < 1, "too easy or too hard to tell anything"
        print(f"# {task} {metric}: {ours[task][metric]} both")


@session.check("logprobs")
def scores(servers: Servers) -> None:
    """Every score is transformers' within 1e-4, and so is what would have been said."""
    worst = count = 0
    for task in NAMES:
        ours, theirs = (results(url)["samples"][task] for url in (servers.url, ""))
        for one, other in zip(ours, theirs, strict=True):
            same(one["doc"], other["doc"])
            for (score, greedy), (their_score, their_greedy) in zip(
                (answer[0] for answer in one["resps"]),
                (answer[0] for answer in other["resps"]),
                strict=True,
            ):
                same(greedy, their_greedy)
                worst, count = max(worst, abs(score - their_score)), count + 1
    print(f"# {count} scores, at most {worst:.1e} apart")
    assert worst <= CLOSE
