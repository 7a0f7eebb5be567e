/**
 * Reads a log into a model a few milliseconds at a time, so that the page stays responsive: the first
 * picture is drawn as soon as the log is read that far, and the rest is read afterwards.
 */

import type { Opening } from "../board/view.ts";
import { LogError, Model, SEARCHED } from "../model/index.ts";
import { ChunkStream, IndexReader, isIndex, type Ranges, rangesOf } from "./index_reader.ts";
import { piecesOf } from "./log_bytes.ts";

const SLICE = 8; // ms of work before the page gets its turn
export const SHORT = 20_000; // events to read before drawing; most logs are shorter

const OTHER_KIND = "a cluster has other pages than an engine: open it with `underglass open FILE`";

/** a log's bytes, or where to ask for those of its index */
export type LogSource = ArrayBufferView | Ranges | ChunkStream;

/** what reads lines of a log */
interface Reads {
  read: (bytes: Uint8Array) => void;
  end: () => void;
}

export class LogReader<Read extends Reads = Model> {
  model: Read;
  share = 0;
  done = false;
  /** The last step of the log, if that is known before it is read, else 0. */
  lastStep = 0;
  /** The error in the log; the events before it are in the model. */
  error: (Error & Partial<LogError>) | null = null;
  #listeners: Set<() => void> = new Set();

  #isLazy: boolean;

  /**
   * Starts to read; stops when `isWanted()` returns false.
   *
   * @param isLazy whether the events of an index are read when they are needed, by `Model.fetch`
   */
  constructor(
    log: LogSource,
    isWanted: () => boolean = () => true,
    model: Reads = new Model(),
    isLazy: boolean = false,
  ) {
    this.model = model as Read;
    this.#isLazy = isLazy;
    this.#run(log, isWanted);
  }

  /**
   * Resolves when enough is read to open a board at `opening`, or the whole log; until then calls `onProgress()`
   * whenever more has been read.
   */
  async until(opening: Opening, onProgress: () => void) {
    for (; !this.done && !isEnough(this.model as unknown as Model, opening); onProgress())
      await this.#nextProgress();
  }

  /** Calls `onProgress()` whenever more has been read; resolves after the last call. */
  async follow(onProgress: () => void) {
    while (!this.done) {
      await this.#nextProgress();
      onProgress();
    }
  }

  #nextProgress(): Promise<void> {
    return new Promise((resolve) => this.#listeners.add(resolve));
  }

  async #run(log: LogSource, isWanted: () => boolean) {
    let until = performance.now() + SLICE;
    try {
      for await (const share of this.#read(log)) {
        this.share = Math.min(share, 0.99); // consumed bytes are not parsed yet
        if (performance.now() < until) continue;
        this.#notify();
        await turn();
        if (!isWanted()) break;
        until = performance.now() + SLICE;
      }
    } catch (error) {
      this.error = error instanceof LogError ? error : new Error(`it cannot be unpacked: ${error}`);
    }
    this.share = 1;
    this.done = true;
    this.#notify();
  }

  #read(log: LogSource) {
    if (log instanceof ChunkStream) return this.#stream(log);
    if (!ArrayBuffer.isView(log)) return this.#chunks(log);
    return isIndex(log) ? this.#chunks(rangesOf(log)) : this.#lines(log);
  }

  /** Reads an index that is being written. */
  async *#stream(stream: ChunkStream) {
    for await (const { bytes, share } of stream.chunks()) {
      (this.model as unknown as Model).readChunk(bytes);
      yield share;
    }
  }

  /** Reads JSON Lines. Yields which part of them has been read. */
  async *#lines(log: ArrayBufferView) {
    for await (const { bytes, share } of piecesOf(log)) {
      this.model.read(bytes);
      yield share;
    }
    this.model.end();
  }

  /** Reads an indexed log: what the index knows of it or, if a part is damaged, the events before the damage. */
  async *#chunks(ranges: Ranges) {
    const index = await IndexReader.open(ranges);
    if (index.isCluster === this.model instanceof Model) throw new LogError(OTHER_KIND);
    this.lastStep = index.lastStep;
    try {
      if (!index.isCluster) {
        const model = yield* index.model();
        if (!this.#isLazy) await model.fetchAll();
        this.model = model as unknown as Read;
        return;
      }
    } catch (error) {
      if (!(error instanceof LogError)) throw error;
    }
    let read = 0;
    for await (const bytes of index.chunks()) {
      (this.model as unknown as Model).readChunk(bytes);
      yield ++read / index.count;
    }
  }

  #notify() {
    const listeners = this.#listeners;
    this.#listeners = new Set();
    for (const listener of listeners) listener();
  }
}

/** Whether a board can open at the given step, or at the opening step. */
function isEnough(model: Model, { step, selected, range, window }: Opening) {
  if (model.events.length < SHORT) return false;
  if (step == null) return model.events.length > SEARCHED;
  const last = Math.max(step, ...(range ?? []), ...(window ?? []));
  return model.lastStep > last && (selected == null || !!model.request(selected));
}

/** Yields to other tasks of the page; a timer would take 4 ms or, in a hidden tab, 1 s. */
function turn(): Promise<void> {
  return new Promise((resolve) => {
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = () => {
      port1.close();
      resolve();
    };
    port2.postMessage(null);
  });
}
