/**
 * Tells the kernel of moves: a few times a second, and one message at a time.
 *
 * A kernel may set a value while a move is on its way, and the later of the two must win. So nothing is put
 * into the widget's model before it is sent: what waits there would be sent after the kernel's value had come.
 * And nothing is sent before the kernel has taken what was sent last, or the widget's manager would keep it.
 */

const EVERY = 200; // ms
const PATIENCE = 30_000; // ms; a kernel may be busy for long, and one that has died takes nothing

export class KernelSync {
  #timer = null;
  #sent = null; // timer of a message that the kernel has not taken yet

  /** `shared` is the widget's model; `state()` its values as they are now; `told(isDone)` hears of both ends. */
  constructor(shared, state, told) {
    Object.assign(this, { shared, state, told });
  }

  /** Something may have moved. */
  moved() {
    if (!this.#changes().length) return;
    this.told(false);
    if (!this.#sent) this.#timer ??= setTimeout(() => this.#send(), EVERY);
  }

  #changes() {
    const same = ([name, value]) => String(this.shared.get(name)) === String(value);
    return Object.entries(this.state()).filter((entry) => !same(entry));
  }

  #send() {
    this.#timer = null;
    const changes = this.#changes();
    if (!changes.length) {
      this.told(true);
      return;
    }
    for (const [name, value] of changes) this.shared.set(name, value);
    const status = ({ content }) => content.execution_state === "idle" && this.#taken();
    // Jupyter's takes callbacks, and tells when the kernel is done. That of other hosts takes nothing.
    const { length } = this.shared.save_changes;
    this.#sent = setTimeout(() => this.#taken(), length ? PATIENCE : 0);
    this.shared.save_changes({ iopub: { status } });
  }

  #taken() {
    if (!this.#sent) return;
    clearTimeout(this.#sent);
    this.#sent = null;
    if (this.#changes().length) this.#timer ??= setTimeout(() => this.#send(), EVERY);
    else this.told(true);
  }
}
