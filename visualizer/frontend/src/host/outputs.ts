/** Sends the kernel pictures of a widget in both themes, which it stores beside the widget (`visualizer/widgets/picture.py`). */

import type { Shell } from "../board/shell.ts";
import type { ThemeName } from "../board/theme.ts";
import type { WidgetModel } from "./kernel_sync.ts";
import { pictureOf, type Themed } from "./picture.ts";
import { saveWith } from "./saved_state.ts";

const CALM = 400; // ms after the first drawing
const REST = 2000; // ms after the last step of a live board
const NEW = ["data-ready", "data-step", "data-requests"]; // attributes of a board that shows something else

/**
 * Sends a picture of `root` once it is drawn, if an output has none yet; of a board that `follows` a feed, each time
 * it has come to rest. `draw` returns the bytes of a PNG; by default, a picture of the page.
 */
export function keepPicture(
  traits: WidgetModel,
  { root, signal }: Pick<Shell, "root" | "signal">,
  parts: () => Themed[],
  draw = (theme: ThemeName): Promise<Uint8Array | null> => pictureOf(root, parts(), theme),
  follows = false,
) {
  const isDrawn = () => root.dataset.ready === "true";
  const isWanted = () => !signal.aborted && isDrawn() && (follows || traits.get("wants_picture"));
  const send = async () => {
    if (!isWanted()) return;
    // Other hosts do not know which of two pictures suits the page.
    const themes: ThemeName[] = root.closest(".jp-OutputArea-child")
      ? ["light", "dark"]
      : ["light"];
    const pictures = [];
    for (const theme of themes) pictures.push(await draw(theme));
    const buffers = pictures.flatMap((one) => one?.buffer ?? []);
    if (buffers.length === themes.length && isWanted())
      traits.send({ picture: true }, undefined, buffers);
  };
  let timer: ReturnType<typeof setTimeout> | undefined;
  const observer = new MutationObserver(() => {
    clearTimeout(timer);
    if (!isDrawn()) return;
    timer = setTimeout(send, follows ? REST : CALM);
    if (!follows) observer.disconnect();
  });
  observer.observe(root, { attributes: true, attributeFilter: NEW });
  signal.addEventListener("abort", () => observer.disconnect());
}

/** Keeps a drawn widget with the notebook: its state and its picture. */
export function keep(
  traits: WidgetModel,
  shell: Pick<Shell, "root" | "signal">,
  parts: () => Themed[],
  draw?: (theme: ThemeName) => Promise<Uint8Array | null>,
) {
  keepPicture(traits, shell, parts, draw);
  saveWith(traits.widget_manager);
}
