"""The scenes about a run as a whole: its size, its end, its largest step, its longest request."""

from visualizer.reading.tour.claims import Sentence, capital, sentence, verb
from visualizer.reading.tour.material import WAITS, Material
from visualizer.reading.tour.scene import Scene


def the_run(of: Material) -> Scene | None:
    """Tell how large the run is and what its requests wait for."""
    columns, facts = of.regimes.columns, of.facts
    steps = columns.steps
    if not steps.number:
        return None
    what, claims = "{}", [facts.number("steps", len(steps.number), "step")]
    if not of.lacks("arrivals"):
        what = "{} in {}"
        claims.insert(0, facts.number("requests", of.lives.count, "request"))
    if not of.in_steps and not of.lacks("step_times"):
        what += ", which take {}"
        claims.append(facts.time("busy time", sum(steps.busy)))
    if columns.begins_after:
        what = "The log begins after {}, and from there on has " + what
        claims.insert(0, facts.step("last step before the log", columns.begins_after))
    else:
        what = "The run has " + what
    said = [sentence(f"{what}.", *claims)]
    waited = of.regimes.waited
    whole = sum(waited.values())
    if of.lacks("queue"):
        pass
    elif not whole:
        none = facts.said("waiting time", 0, "No request waits")
        said.append(sentence("{} in any step.", none))
    else:
        said += _waits(of, waited, whole)
    limit = of.regimes.limit
    window = (limit[0].first, limit[-1].last) if limit else None
    return Scene(kind="run", title="the run", sentences=said, panel="run", window=window)


def _waits(of: Material, waited: dict[str, int], whole: int) -> list[Sentence]:
    facts = of.facts
    sums = {words: sum(waited.get(one, 0) for one in causes) for words, causes in WAITS.items()}
    words = max(sums, key=lambda one: sums[one])
    template = f"{of.mark('queue')}Added up, requests wait {{}}"
    claims = [facts.time("waiting time", whole)]
    if sums[words] and not of.lacks("waiting_reasons"):
        template += f", {of.mark('waiting_reasons')}{{}} of it {{}}"
        claims += [facts.share("waiting share", sums[words], whole), facts.said("waits for", words)]
    said = [sentence(f"{template}.", *claims)]
    limit = of.regimes.limit
    inside = sum(sum(one.waited.values()) for one in limit)
    if limit and inside < whole:
        first, last = limit[0].first, limit[-1].last
        within = facts.at(first=first, last=last)
        begin, end = facts.number("first step", first), facts.number("last step", last)
        part = within.share("waiting share of steps", inside, whole)
        said.append(sentence("{} of that wait is in steps {} to {}.", part, begin, end))
    return said


def the_largest_step(of: Material) -> Scene | None:
    """Tell about the step that computes the most tokens."""
    steps = of.regimes.columns.steps
    if of.lacks("scheduled_tokens") or len(steps.number) < 3 or not any(steps.tokens):
        return None
    at = max(range(len(steps.number)), key=lambda index: (steps.tokens[index], -index))
    step = steps.number[at]
    facts = of.facts.at(step=step)
    budget = of.regimes.columns.settings.get("token_budget", 0)
    tokens, rows = (
        facts.number("tokens", steps.tokens[at], "token"),
        facts.number("rows", steps.rows[at], "request"),
    )
    template = "The largest step is {}: it computes {} of {}."
    said = [sentence(template, facts.step("largest step", step), tokens, rows)]
    if steps.prompt[at]:
        share = facts.some("prompt tokens", steps.prompt[at], steps.tokens[at])
        are = "belongs to a prompt" if steps.prompt[at] == 1 else "belong to prompts"
        said.append(sentence(f"{{}} of these tokens {are}.", capital(share)))
    if budget and budget == steps.tokens[at] and not of.lacks("settings"):
        said.append(
            sentence("{} of a step.", facts.said("budget", budget, "That is the whole budget"))
        )
    if not of.in_steps and steps.busy[at] and not of.lacks("step_times"):
        time = facts.time("busy", steps.busy[at])
        said.append(sentence("It takes {}.", time))
    event = of.scheduled(step)
    return Scene(
        kind="largest",
        title="the largest step",
        sentences=said[:3],
        step=step,
        beside=of.known("blocks"),
        requests=tuple(row.request for row in event.rows) if event is not None else (),
    )


def the_life(of: Material) -> Scene | None:
    """Tell one request from its arrival to its end: the one that took the longest."""
    if of.lacks("arrivals", "scheduled_tokens", "finish_reasons"):
        return None
    whole = of.lives.whole
    time = next(iter(of.waterfall.slowest(1, among=whole)), None)
    life = of.known_facts.request(time.request) if time is not None else None
    if time is None or life is None or life.first_token is None or life.finished is None:
        return None
    facts = of.facts.at(request=life.id)
    began = of.regimes.columns.steps.number[life.first_token]
    first, last = facts.step("first token", began), facts.step("finished", life.finished[0])
    name, prompt = (
        facts.name("longest", life.id),
        facts.number("prompt", life.prompt_length, "prompt token"),
    )
    output = facts.number("output", len(life.tokens) - life.prompt_length, "token")
    said = [
        sentence("{} has {} and gets its first token in {}.", name, prompt, first),
        sentence("It ends in {} with {} of output.", last, output),
    ]
    if not of.in_steps:
        total = facts.time("total", time.total)
        most = facts.said("longest of", len(whole), "and no other request takes longer")
        words = "That takes {}, {}." if len(whole) > 1 else "That takes {}."
        said.append(sentence(words, total, *[most][: len(whole) > 1]))
    return Scene(
        kind="life",
        title="one request from its arrival to its end",
        sentences=said,
        step=began,
        panel="time",
        beside=of.known("lanes", "blocks"),
        requests=(life.id,),
        question="why so long for {}?",
        why=str(time),
    )


def the_end(of: Material) -> Scene | None:
    """Tell how the log ends, and which request would be next."""
    facts, numbers, state = of.facts, of.regimes.columns.steps.number, of.happenings.state
    if not numbers or of.lacks("arrivals"):
        return None
    last = facts.step("last step", numbers[-1])
    running, waiting = len(state.running), len(state.waiting)
    if not running and not waiting:
        final = of.lives.last
        if final is None or final.finished is None:
            return None
        name = facts.at(request=final.id).name("last to end", final.id)
        step = facts.at(request=final.id).step("finished", final.finished[0])
        said = [sentence("{} is the last to end, in {}.", name, step)]
        blocks = state.evictable
        if not of.lacks("prefix_tree", "block_tables") and blocks:
            kept = facts.number("cached blocks at the end", blocks, "block")
            said.append(sentence("No request is left, and the cache still has {}.", kept))
        else:
            said.append(sentence("No request is left."))
        return Scene(
            kind="end",
            title="the end",
            sentences=said,
            step=numbers[-1],
            beside=of.known("blocks"),
            requests=(final.id,),
        )
    verbs = verb(running, "runs", "run"), verb(waiting, "waits", "wait")
    claims = [
        last,
        facts.number("running at the end", running, "request"),
        facts.number("waiting at the end", waiting),
    ]
    said = [
        sentence(f"The log ends after {{}}, when {{}} {verbs[0]} and {{}} {verbs[1]}.", *claims)
    ]
    head = next(iter(state.waiting), None)
    if head is not None and not of.lacks("queue"):
        name = facts.name("next", head)
        said.append(sentence(f"{of.mark('queue')}Next in the queue is {{}}.", name))
    lit = [head] if head is not None else state.running[:1]
    return Scene(
        kind="end",
        title="what would be next",
        sentences=said,
        step=numbers[-1],
        beside=of.known("queue", "blocks"),
        requests=tuple(lit),
    )
