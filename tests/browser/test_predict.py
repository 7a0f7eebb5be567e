"""predict in a real JupyterLab: before the reveal no part of the answer is anywhere in the page."""

import json
import re

import pytest
from playwright.sync_api import Locator, expect

from engine.core.log import EventLog
from engine.core.log import vocabulary as v
from tests.browser.exported import the_log
from tests.browser.notebooks import expect_said, run_cell
from tests.facts import assert_names
from visualizer.predicting.questions import questions

pytestmark = pytest.mark.usefixtures("patience")

CELLS = [
    'from visualizer import predict\ngame = predict("run.jsonl", questions=3, seed=2)\ngame',
    "print('kernel:', [one['right'] for one in game.answers])",
    # A slow kernel sends the state of its widgets late, so it is set a second time; this does the same.
    "game.game.send_state()\nprint('sent')",
    'predict("run.jsonl", questions=3, seed=2)',
]

# The unpacked state of every widget on the page, and the whole text of the page and the notebook.
EVERYTHING = """async () => {
  const unpack = async (bytes) => {
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return await new Response(stream).text();
  };
  const found = [];
  const look = async (value) => {
    if (typeof value === "string" && value.startsWith("H4sI")) {
      const letters = atob(value); // gzip in base64
      found.push(await unpack(Uint8Array.from(letters, (letter) => letter.charCodeAt(0))));
    } else if (typeof value === "string" || typeof value === "number") found.push(String(value));
    else if (ArrayBuffer.isView(value)) {
      const bytes = new Uint8Array(value.buffer, value.byteOffset, value.byteLength);
      found.push(bytes[0] === 0x1f ? await unpack(bytes) : new TextDecoder().decode(bytes));
    } else if (Array.isArray(value) || Object.getPrototypeOf(value ?? 0) === Object.prototype)
      for (const inner of Object.values(value)) await look(inner);
  };
  const panel = window.jupyterapp.shell.currentWidget;
  const managers = new Set();
  for (const cell of panel.content.widgets)
    for (const output of cell.outputArea?.widgets ?? [])
      for (const child of [...(output.widgets ?? []), output])
        if (child._manager) managers.add((await child._manager.promise) ?? child._manager);
  let models = 0;
  for (const manager of managers) {
    const { state } = await manager.get_state({ drop_defaults: false });
    for (const id of Object.keys(state)) {
      models += 1;
      await look({ ...(await manager.get_model(id)).attributes });
    }
  }
  found.push(document.documentElement.outerHTML, document.body.innerText);
  found.push(JSON.stringify({ ...localStorage }), JSON.stringify({ ...sessionStorage }));
  await look(panel.context.model.toJSON());
  return { models, text: found.join("\\n") };
}"""


def lines_after(log: EventLog, index: int) -> list[str]:
    """The log from a step on, each event without its measured part, as it would be sent."""
    lines = log.to_bytes().decode().splitlines()[index:]
    told = [json.loads(line) for line in lines]
    return [
        line
        for line, event in zip(lines, told, strict=True)
        if event["type"] in ("admitted", "preempted", "step_scheduled", "step_finished")
    ]


def choose(root: Locator, answer: tuple[int, ...], form: str) -> None:
    """Answers by keyboard, from whatever has the focus."""
    if form == "number":
        root.locator(".ask input").focus()
        root.page.keyboard.type(str(answer[0]))
    else:
        for one in answer:
            root.locator(f'.ask input[value="{one}"]').focus()
            root.page.keyboard.press("Space")
    root.locator(".go").focus()
    root.page.keyboard.press("Enter")


def test_answers_come_from_the_kernel_and_only_after_the_question(open_cells, jupyter):
    log = the_log()
    log.save(jupyter[1] / "run.jsonl")
    page = open_cells("predict.ipynb", CELLS, width=1280)
    root = page.locator(".underglass.predict").first
    for number, question in enumerate(questions(log, most=3, seed=2)):
        expect(root).to_have_attribute("data-number", str(number), timeout=30_000)
        expect(root).to_have_attribute("data-state", "asking")
        expect(root.locator("legend")).to_have_text(re.compile(rf"\b{question.step}\b"))
        board = root.locator(".underglass").last
        expect(board).to_have_attribute("data-ready", "true")
        assert int(board.get_attribute("data-steps") or 0) <= question.step
        # The proof: nothing that page, widgets and notebook hold is of this step or later.
        held = page.evaluate(EVERYTHING)
        assert held["models"] >= 1
        assert '"type":"step_started"' in held["text"] or question.step == 1
        later = lines_after(log, question.index)
        assert later
        assert not [line for line in later if line in held["text"]]
        assert f'{{"type":"step_started","step":{question.step}}}' not in held["text"]
        if question.kind == "hit":
            # A board says what a selected request would find: this one cannot be selected now.
            root.locator(f'.ask [data-request="{question.about}"]').click()
            board.locator(f'.decisions [data-request="{question.about}"]').first.click()
            expect(board).to_have_attribute("data-selected", "")
            expect(root.locator("[data-found]")).to_have_count(0)
        if number == 0:
            # A board that looks back stays there, also when Jupyter sets the same state a second time.
            board.press(",")
            expect(board).to_have_attribute("data-step", str(question.step - 1))
            run_cell(page, 2)
            expect_said(page, "sent")
            expect(board).to_have_attribute("data-step", str(question.step - 1))
        # The second is answered wrongly.
        wrong = number == 1
        answer = question.answer
        if wrong:
            answer = {"yes": (1 - answer[0],), "number": (answer[0] + 1,)}.get(
                question.form, tuple(id_ for id_ in question.choices if id_ not in answer)
            )
        choose(root, answer, question.form)
        expect(root).to_have_attribute("data-state", "revealed")
        expect(root).to_have_attribute("data-right", str(not wrong).lower())
        expect(root.locator(".underglass").last).to_have_attribute("data-step", str(question.step))
        expect(root.locator(".said strong").first).not_to_be_empty()
        assert page.evaluate(EVERYTHING)["text"].count(f'"step_started","step":{question.step}}}')
        # The focus is on the way on.
        expect(root.locator(".said .go")).to_be_focused()
        page.keyboard.press("Enter")
    expect(root).to_have_attribute("data-state", "done")
    expect(root).to_have_attribute("data-score", "2")
    assert_names(root.locator(".said strong").inner_text(), 2, 3)
    last = [event.step for event in log.of(v.StepStarted)][-1]
    expect(root.locator(".underglass").last).to_have_attribute("data-steps", str(last))
    run_cell(page, 1)
    expect_said(page, "kernel: [True, False, True]")
    # Text typed into the form was not a command of the notebook.
    expect(page.locator(".jp-Cell")).to_have_count(4)

    # Without a kernel the page shows a message.
    run_cell(page, 3)
    root = page.locator(".underglass.predict").last
    expect(root).to_have_attribute("data-state", "asking")
    page.evaluate("() => window.jupyterapp.shell.currentWidget.sessionContext.shutdown()")
    first = questions(log, most=3, seed=2)[0]
    choose(root, first.answer, first.form)
    expect(root.locator(".said [data-message=no-kernel]")).to_be_visible()
    expect(root).to_have_attribute("data-state", "asking")
