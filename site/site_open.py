"""The page that opens a reader's own trace, and the samples that it offers."""

from site_pages import REPOSITORY, Site
from visualizer.sources import READERS
from visualizer.sources.limits import MAX_DROPPED

_FIXTURES = REPOSITORY / "tests" / "fixtures"
SAMPLES = {
    "vLLM, preempting": "vllm/vllm_tight.jsonl.gz",
    "vLLM, a shared prefix": "vllm/vllm_shared_prefix.jsonl.gz",
    "KV events of vLLM": "vllm/vllm_tight.kv_events.jsonl.gz",
    "SGLang's forward passes": "sglang_forward_pass.jsonl.gz",
}


def build(site: Site) -> None:
    """Write open/index.html and the samples."""
    samples = []
    for title, file in SAMPLES.items():
        path = f"logs/samples/{file.rpartition('/')[2]}"
        site.copy(_FIXTURES / file, path)
        samples.append({"title": title, "path": path})
    site.write(
        "open/index.html",
        "open.html",
        page="open",
        kinds=[reader.title for reader in READERS],
        samples=samples,
        most=MAX_DROPPED >> 20,
        last=16,
    )
