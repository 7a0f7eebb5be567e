"""What a teacher does with an engine: pause, step, run until, hold requests back, show an earlier step.

A request's path does not lead through here. Only while the teacher holds requests back does the bridge
send its commands to this class instead of the engine (`Bridge.commands`).
"""

from typing import TYPE_CHECKING

import msgspec

from server.core.commands import Answer, AnyCommand, Pause, Resume, RunUntil, Submit
from server.core.run_until import Stopped, Until

if TYPE_CHECKING:
    from server.core.bridge import Bridge


class Classroom:
    """The teacher's controls of a bridge's engine. Lives on the event loop.

    last_stop  why the last `run_until` stopped; None after another command
    screen     the earlier step that the projector's screen looks back at, or None
    """

    def __init__(self, bridge: "Bridge") -> None:
        self._bridge = bridge
        self.last_stop: Stopped | None = None
        self.screen: int | None = None
        self._held: dict[int, Submit] = {}  # submissions that are held back, by reply

    async def pause(self) -> int:
        """Pause the engine after its step; return the number of that step."""
        self._forget_stop()
        return int(await self._bridge.ask(Pause(0)))

    async def resume(self) -> int:
        """Resume the engine; return the number of the last step."""
        self._forget_stop()
        return int(await self._bridge.ask(Resume(0)))

    async def step(self, steps: int) -> int:
        """Run up to `steps` steps of a paused engine; return the number of the last one."""
        self._forget_stop()
        stopped: Stopped = await self._bridge.ask(RunUntil(0, "steps", None, steps, paused=True))
        return stopped.step

    async def run_until(self, until: Until, request: int | None, steps: int) -> Stopped:
        """Pause the engine and run it until something happens, for at most `steps` steps."""
        self._forget_stop()
        stopped: Stopped = await self._bridge.ask(RunUntil(0, until, request, steps))
        self.last_stop = stopped
        self._bridge.window.wake()
        return stopped

    def _forget_stop(self) -> None:
        self.last_stop = None
        self._bridge.window.wake()

    def show_on_screen(self, step: int | None) -> None:
        """Tell all viewers which earlier step the projector's screen looks back at; None: none."""
        self.screen = step
        self._bridge.window.wake()

    # Holding requests back

    @property
    def holding(self) -> bool:
        """Whether new requests are held back."""
        return self._bridge.commands is self

    @property
    def held(self) -> list[str]:
        """The labels of the requests that are held back, in order of submission.

        They are empty if the event log has no names.
        """
        has_names = self._bridge.settings.trace_text == "on"
        return [submit.label if has_names else "" for submit in self._held.values()]

    def hold(self) -> None:
        """Hold new requests back until `release`."""
        self._bridge.commands = self
        self._bridge.window.wake()

    async def release(self) -> int:
        """Queue all held requests before the next step; return their number."""
        self._bridge.check_commandable()
        held = self.take()
        await self._bridge.ask(Answer(0), *held)
        return len(held)

    def take(self) -> list[AnyCommand]:
        """Stop holding requests back; return the commands that queue the held ones."""
        bridge, held = self._bridge, self._held
        self._held = {}
        bridge.commands = bridge.client
        bridge.window.wake()
        now = bridge.client.now()
        for submit in held.values():
            bridge.live[submit.stream].submitted_at = now  # before, it waited for the teacher
        return [msgspec.structs.replace(submit, submitted_at=now) for submit in held.values()]

    def post(self, *commands: AnyCommand) -> None:
        """Hold submissions back, and pass other commands on."""
        for command in commands:
            if isinstance(command, Submit):
                self._held[command.reply] = command
                self._bridge.window.wake()
            else:
                self._bridge.client.post(command)

    def cancel(self, reply: int) -> None:
        """Drop a command that has not run yet, or a submission whose client has left."""
        if self._held.pop(reply, None) is not None:
            self._bridge.window.wake()
        else:
            self._bridge.client.cancel(reply)
