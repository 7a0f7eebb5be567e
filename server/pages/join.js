/**
 * The join card: the server's address in large type, with its QR code. On a machine with several networks the
 * teacher chooses the one that the class is in; the browser remembers it.
 */

const NETWORK = "underglass network";

export class JoinCard {
  #addresses = [];
  #chosen = 0;
  #toggled = false; // by the user; until then, the card is open while there is nothing to draw

  constructor(byId) {
    this.byId = byId;
    byId("join-button").addEventListener("click", () => {
      this.#toggled = true;
      this.#show(byId("join").hidden);
    });
    byId("interface").addEventListener("change", ({ target }) => {
      this.#chosen = target.selectedIndex;
      localStorage.setItem(NETWORK, this.#addresses[this.#chosen].interface);
      this.#write();
    });
  }

  /** Fetches the addresses. */
  async load(headers) {
    const answer = await fetch("/join", { headers }).catch(() => null);
    if (!answer?.ok) return;
    this.#addresses = (await answer.json()).addresses;
    const known = localStorage.getItem(NETWORK);
    this.#chosen = Math.max(
      0,
      this.#addresses.findIndex((one) => one.interface === known),
    );
    const { byId } = this;
    byId("interface").replaceChildren(
      ...this.#addresses.map((one, i) => {
        const name = one.interface ? `${one.interface}: ` : "";
        return new Option(`${name}${one.address}`, "", i === this.#chosen, i === this.#chosen);
      }),
    );
    byId("interfaces").hidden = this.#addresses.length < 2;
    byId("join-button").hidden = false;
    this.#write();
  }

  /** Opens the card while the engine has no requests, and closes it when it has, unless the user has chosen. */
  update({ isEmpty, hasKey }) {
    const note = hasKey ? "The page asks for the server's key." : "";
    if (this.byId("join-note").textContent !== note) this.byId("join-note").textContent = note;
    if (!this.#toggled && !this.byId("join-button").hidden) this.#show(isEmpty);
  }

  /** Whether other machines can reach the server; undefined until that is known. */
  get isOpen() {
    return this.byId("join-button").hidden ? undefined : this.#addresses.length > 0;
  }

  #show(on) {
    this.byId("join").hidden = !on;
    this.byId("join-button").setAttribute("aria-expanded", on);
  }

  #write() {
    const { byId } = this;
    const one = this.#addresses[this.#chosen];
    byId("join-button").textContent = one ? `Join: ${one.address}` : "Only this machine";
    byId("qr").hidden = !one;
    if (one) {
      byId("qr").src = `data:image/svg+xml,${encodeURIComponent(one.qr)}`;
      byId("qr").alt = `QR code of ${one.url}`;
      byId("address").textContent = one.address;
      return;
    }
    byId("invitation").textContent = "Only this machine";
    byId("address").textContent = location.host;
    byId("join-note").hidden = true;
    const how =
      "No other machine can reach this server. Start it with --host 0.0.0.0 to let a class join.";
    byId("interfaces").replaceWith(how);
  }
}
