/**
 * The entry points of a board: anywidget's `render` for notebooks, and `mount` for pages.
 *
 * In a notebook the panels of one log share a widget model, see `notebook.ts`; on a page they share the `view` that
 * they are given.
 */

import { Board, type BoardOptions } from "../board/board.ts";
import { takeKeysOfPage } from "../board/keys.ts";
import { seatBehind } from "../board/seat.ts";
import type { Shell } from "../board/shell.ts";
import { firstShown, type Opening } from "../board/view.ts";
import { h } from "../drawing/html.ts";
import { openingRequest, openingStep, SEARCHED } from "../model/index.ts";
import type { RunInWords } from "../panels/run_panel.ts";
import { tellFrom } from "../tour/open_tour.ts";
import { forgetAddress, keepInAddress, readAddress, writeAddress } from "./address.ts";
import { ChunkStream, isIndex, rangesAt } from "./index_reader.ts";
import { LogReader, type LogSource } from "./log_reader.ts";
import { inNotebook } from "./notebook.ts";
import { acceptLogs } from "./open_log.ts";

/** the others are those of a board and of what it shows first */
interface MountOptions {
  log?: ArrayBufferView; // the bytes
  from?: string; // where a server answers for ranges of an indexed log, in place of its bytes
  stream?: string; // where it sends the index that it is writing
  address?: boolean; // whether the page's address follows this board; by default, the first board's does
  signal?: AbortSignal;
  translate?: string; // where to send a log that the reader opens; the server returns it in our form
  refusal?: string; // why there is no log
  decide?: string; // the server runs the log again at this route
  telling?: boolean; // whether the page opens with the tour
  tour?: string; // where the page asks for the tour, and what ideas saved
}

let ownsAddress = false;

/** Draws a log in `host` and returns the board. */
export async function mount(
  host: HTMLElement,
  {
    log = new Uint8Array(),
    from,
    stream,
    address = !ownsAddress,
    onChange,
    signal = new AbortController().signal,
    translate,
    refusal,
    decide,
    telling,
    tour,
    ...options
  }: MountOptions & Opening & Omit<BoardOptions, "signal">,
): Promise<Board> {
  const ends = new AbortController();
  signal.addEventListener("abort", () => ends.abort());
  // A page of one log shows any other that the reader opens.
  let latest = 0; // the last of several that are dropped while one is translated
  const replace = async (bytes: Uint8Array, name: string): Promise<Board | undefined> => {
    latest += 1;
    const own = latest;
    const sent = translate && !isIndex(bytes) ? await send(translate, bytes) : { log: bytes };
    if (own !== latest) return undefined;
    ends.abort();
    document.title = name;
    forgetAddress();
    const about = { title: name };
    return mount(host, {
      ...sent,
      translate,
      about,
      address: true,
      theme: options.theme,
      signal,
      onChange,
    });
  };
  const here = location.href.replace(/#.*/, "");
  const board = new Board(host, {
    linkOf: address ? (state) => here + writeAddress(state) : undefined,
    ...(decide && { seat: seatBehind(decide) }),
    tell: tour ? tellFrom(tour) : undefined,
    ...options,
    signal: ends.signal,
    onChange(state) {
      onChange?.(state);
      follow?.();
    },
  });
  ownsAddress ||= address;
  if (address) {
    acceptLogs(host, replace, ends.signal);
    takeKeysOfPage(board.root, ends.signal);
  }
  const follow = address ? keepInAddress(board, ends.signal) : null;
  if (refusal) showError(board, new Error(refusal));
  else {
    const source = stream ? new ChunkStream(stream) : from ? await rangesAt(from) : log;
    await load(board, source, { ...options, ...(address && readAddress(location.hash)) });
    if (source instanceof ChunkStream) showKnown(board, source.options);
    showMore(board);
  }
  if (telling && board.model) await board.tellMe();
  return board;
}

/** Asks Python for the rest of what it tells of a short run, which takes longer than showing it. */
async function showMore(board: Board) {
  const { run } = board.run;
  const told = run?.more && (await board.tell?.().catch(() => null));
  if (!told || board.signal.aborted) return;
  board.showRun({ ...run, tour: told.scenes, saved: told.saved, more: false });
}

/** Shows what the server knows of a log once it has read it, and the step at which the board opens next time. */
function showKnown(board: Board, { run, step, selected }: Opening & { run?: RunInWords }) {
  if (!run || board.signal.aborted) return;
  board.showRun(run);
  if (step !== undefined && !board.store.touched) board.view.show({ step, selected });
}

/** Sends a file to be translated. */
async function send(url: string, body: Uint8Array) {
  try {
    const answer = await fetch(url, { method: "POST", body: body as BodyInit });
    const log = new Uint8Array(await answer.arrayBuffer());
    return answer.ok ? { log } : { log, refusal: new TextDecoder().decode(log) };
  } catch {
    return { log: body, refusal: "underglass open has ended. Start it again to open this file." };
  }
}

/**
 * Reads the log, once for all boards of a view, and opens it, or shows an error. Resolves when the whole log is
 * read; a long log is shown before that.
 */
export async function load(
  board: Board,
  log: LogSource,
  opening: Opening,
  isLazy = true,
): Promise<void> {
  const { view, root } = board;
  const isWanted = () => view.reading === reader;
  const reader: LogReader = (view.reading ??= new LogReader(log, isWanted, undefined, isLazy));
  const isCurrent = () => view.reading === reader && !board.signal.aborted;
  const bar = h("progress", { max: 1, value: 0, "aria-label": "Loading" });
  board.showMessage("loading", h("p.muted", "Reading the log"), bar);
  const count = () => {
    const share = Math.floor(reader.share * 100) / 100;
    root.dataset.loaded = `${share}`;
    return share;
  };
  await reader.until(opening, () => (bar.value = count()));
  if (!isCurrent()) return;
  if (reader.lastStep) view.lastOfLog = reader.lastStep;
  const { model } = reader; // of an indexed log perhaps that of some steps
  if (model.stepCount === 0 || model.settings.num_blocks === undefined) {
    if (reader.error) showError(board, reader.error);
    else showEmpty(board);
    return;
  }
  // Of a damaged log, a page shows what comes before the damage.
  const reopen = (one: Board, state: Opening) => {
    if (view.reading === reader) view.reading = null;
    return load(one, log, state, false);
  };
  try {
    await model.fetch(firstShown(model, opening.step));
  } catch {
    return reopen(board, opening);
  }
  if (!isCurrent()) return;
  board.open(model, opening);
  model.onDamage(() => {
    for (const one of view.boards) reopen(one, one.state());
  });
  await showRest(board, reader, isCurrent, count);
  if (isCurrent() && opening.step == null && opening.selected === undefined) openAtBest(board);
}

/** Goes to the most telling step of a long log, of which only the beginning was searched, unless the reader has moved. */
function openAtBest({ model, view }: Board) {
  if (model.knowsAll || model.events.length <= SEARCHED || view.store.touched) return;
  const step = openingStep(model, Infinity);
  view.show({ step, selected: openingRequest(model, step) });
}

/** Shows the rest of the log as it is read, or the error in it. */
async function showRest(
  board: Board,
  reading: LogReader,
  isCurrent: () => boolean,
  count: () => void,
) {
  const { model } = reading;
  const note = h("p.note.reading");
  if (!reading.done) board.grid.before(note);
  let drawn = model.events.length;
  let told = -1;
  await reading.follow(() => {
    if (!isCurrent()) return;
    const percent = Math.round(reading.share * 100);
    // Only when it changes, because the page is then laid out.
    if (percent !== told)
      note.textContent = `${percent} % of the log is read, up to step ${model.lastStep}`;
    told = percent;
    // Each time four times as much, because a layout of a longer log costs more.
    if (reading.done || model.events.length >= 4 * drawn) {
      drawn = model.events.length;
      board.grow();
    }
    count();
  });
  count();
  note.remove();
  if (!isCurrent() || !reading.error) return;
  board.grid.before(endOfLog(board, reading.error));
}

/** A note that the board shows what came before an error in the log. */
export function endOfLog({ root }: Shell, error: NonNullable<LogReader["error"]>) {
  const { where, why } = locate(error);
  root.dataset.error = `${error.line ?? ""}`;
  const words = `${where} cannot be used: ${why}. The board shows what came before it.`;
  return h("p.note.reading", { role: "alert" }, words);
}

function showEmpty(board: Board) {
  board.showMessage(
    "empty",
    h("h2", "There is nothing to show yet."),
    h("p", "This log has no steps. Submit a request, run the engine, then show the log again:"),
    h(
      "pre",
      'engine.submit("Once upon a time")\nwhile engine.has_work():\n    engine.step()\nshow(engine.log)',
    ),
  );
}

export function showError(board: Shell, error: NonNullable<LogReader["error"]>) {
  const { where, why } = locate(error);
  board.showMessage("error", h("h2", `${where} cannot be used.`), h("p", why));
}

/** The place and the reason of an error. */
function locate({ line, reason, message }: NonNullable<LogReader["error"]>) {
  if (line === 1) reason += ". To open the log of another engine, run: underglass open FILE";
  return { where: line ? `Line ${line} of the log` : "The log", why: reason ?? message };
}

export default { render: inNotebook(load) };
