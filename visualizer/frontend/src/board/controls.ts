/** The buttons for playback: play, step and speed. */

import { h } from "../drawing/html.ts";
import type { Actions } from "./actions.ts";

type Place = { step: number; first: number; last: number };

const ICONS = {
  back: "M11 2v10L4 7zM2 2h2v10H2z",
  play: "M3 1.5v11l9-5.5z",
  pause: "M3 2h3v10H3zM8 2h3v10H8z",
  forward: "M3 2v10l7-5zM10 2h2v10h-2z",
};

/** Builds the controls. */
export function buildControls(act: Actions) {
  const back = button("back", "Step back ( , )", icon("back"), () => act.step(-1));
  const play = button("play", "Play (space)", icon("play"), act.toggle);
  const forward = button("forward", "Step forward ( . )", icon("forward"), () => act.step(1));
  const speed = button("speed", "Speed, in steps per second", "", () => act.faster());
  const help = button("help", "Keys and mouse ( ? )", "?", act.help);
  const left = h(
    "div.controls",
    { role: "toolbar", "aria-label": "Playback" },
    back,
    play,
    forward,
    speed,
  );
  const right = h("div.controls.right", help);
  return {
    elements: [left, right],
    show({
      step,
      first,
      last,
      playing,
      speed: perSecond,
    }: Place & { playing: boolean; speed: number }) {
      if (back.disabled !== step <= first) back.disabled = step <= first;
      if (forward.disabled !== step >= last) forward.disabled = step >= last;
      if (play.dataset.playing !== String(playing)) {
        play.replaceChildren(icon(playing ? "pause" : "play"));
        play.title = playing ? "Pause (space)" : "Play (space)";
        play.setAttribute("aria-label", play.title);
        play.dataset.playing = String(playing);
      }
      if (speed.dataset.perSecond === `${perSecond}`) return;
      speed.textContent = `${perSecond}/s`;
      speed.dataset.perSecond = `${perSecond}`;
      const label = `${perSecond}/s: speed in steps per second, click to change`;
      speed.setAttribute("aria-label", label);
    },
  };
}

/** The line of buttons below a board, for actions that otherwise have only a key. */
export const buildFoot = (entries: [act: string, name: string, key: string, does: () => void][]) =>
  h(
    "div.foot.flow.small.muted",
    { role: "toolbar", "aria-label": "Tools" },
    ...entries.map(([act, name, key, click]) =>
      h("button", { "data-act": act, click }, name, " ", h("kbd", key)),
    ),
  );

/** The buttons below the board of one engine. */
export const boardFoot = (act: Actions) =>
  buildFoot([
    ["tell", "Tell me", "G", act.tell],
    ["search", "Search", "/", act.search],
    ["waterfall", "Where did the time go?", "Y", act.waterfall],
    ["seat", "You decide", "U", act.seat],
    ["axis", "Steps or time", "X", act.axis],
    ["range-from", "Range from here", "[", act.rangeFrom],
    ["range-to", "to here", "]", act.rangeTo],
    ["tables", "Tables", "T", act.tables],
    ["link", "Link to this view", "L", act.link],
    ["postcard", "Postcard", "C", act.postcard],
    ["perfetto", "Open in Perfetto", "E", act.perfetto],
    ["help", "Keys and mouse", "?", act.help],
  ]);

/** The step slider of a panel that is shown without the timeline. */
export class StepSlider {
  input: HTMLInputElement;
  words = h("span.muted");
  element: HTMLElement;

  constructor(goTo: (step: number) => void) {
    const input = () => goTo(Number(this.input.value));
    this.input = h("input", { type: "range", step: 1, "aria-label": "Step", input });
    this.element = h("label.small", this.input, this.words);
  }

  show({ step, first, last }: Place) {
    Object.assign(this.input, { min: first, max: last, value: step });
    this.words.textContent = `step ${step} of ${last}`;
  }
}

/** `act` identifies the button in `data-act`, for tests and embedding pages. */
const button = (act: string, title: string, content: Node | string, click: () => void) =>
  h("button", { "data-act": act, title, "aria-label": title, click }, content);

function icon(name: keyof typeof ICONS) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("viewBox", "0 0 14 14");
  svg.setAttribute("aria-hidden", "true");
  const path = document.createElementNS(svg.namespaceURI, "path");
  path.setAttribute("d", ICONS[name]);
  svg.append(path);
  return svg;
}
