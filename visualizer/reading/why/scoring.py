"""Requests that cannot use the prefix cache yet, because their prompts still have to be scored."""

from engine.core.log import vocabulary as v
from engine.core.log.fold import State


class Unscored(set[int]):
    """The requests with `prompt_logprobs` whose prompts are not scored yet; see `note`."""

    def note(self, event: v.Event, state: State) -> None:
        """Note an event that is about to be applied to `state`.

        A request with prompt_logprobs reads no cache until every token of its prompt is scored. A
        prompt of one token has no score.
        """
        match event:
            case v.RequestArrived() if len(event.prompt) > 1:
                if event.sampling.get("prompt_logprobs") is not None:
                    self.add(event.request)
            case v.Keyframe():
                for one in event.state.requests:
                    scored = one.num_computed_tokens >= one.prompt_length - 1
                    if one.sampling.get("prompt_logprobs") is not None and not scored:
                        self.add(one.id)
            case v.StepFinished():
                for row in state.plans.get(event.step, []):
                    request = state.requests.get(row.request)
                    if request and row.start + row.count >= request.prompt_length - 1:
                        self.discard(row.request)
