/**
 * The join card: the server's address in large type, with its QR code. On a machine with several networks the
 * teacher chooses the one that the class is in; the browser remembers it.
 */

import { setText } from "../../visualizer/frontend/src/live/live.ts";
import { byId } from "./page.ts";

/** An address of this machine in a network. */
interface Address {
  address: string;
  url: string;
  interface: string;
  qr: string; // SVG
}

const NETWORK = "underglass network";

export class JoinCard {
  #addresses: Address[] = [];
  #chosen = 0;
  #toggled = false; // by the user; until then, the card is open while there is nothing to draw

  constructor() {
    byId("join-button").addEventListener("click", () => {
      this.#toggled = true;
      this.#show(!!byId("join").hidden);
    });
    const choice = byId<HTMLSelectElement>("interface");
    choice.addEventListener("change", () => {
      this.#chosen = choice.selectedIndex;
      localStorage.setItem(NETWORK, this.#addresses[this.#chosen].interface);
      this.#write();
    });
  }

  /** Fetches the addresses. */
  async load(headers: Record<string, string>) {
    const answer = await fetch("/join", { headers }).catch(() => null);
    if (!answer?.ok) return;
    this.#addresses = (await answer.json()).addresses;
    const known = localStorage.getItem(NETWORK);
    this.#chosen = Math.max(
      0,
      this.#addresses.findIndex((one) => one.interface === known),
    );
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
  update({ isEmpty, hasKey }: { isEmpty: boolean; hasKey: boolean }) {
    const note = hasKey ? "The page asks for the server's key." : "";
    setText(byId("join-note"), note);
    if (!this.#toggled && !byId("join-button").hidden) this.#show(isEmpty);
  }

  /** Whether other machines can reach the server; undefined until that is known. */
  get isOpen() {
    return byId("join-button").hidden ? undefined : this.#addresses.length > 0;
  }

  #show(on: boolean) {
    byId("join").hidden = !on;
    byId("join-button").setAttribute("aria-expanded", String(on));
  }

  #write() {
    const one: Address | undefined = this.#addresses[this.#chosen];
    byId("join-button").textContent = one ? `Join: ${one.address}` : "Only this machine";
    const qr = byId<HTMLImageElement>("qr");
    qr.hidden = !one;
    if (one) {
      qr.src = `data:image/svg+xml,${encodeURIComponent(one.qr)}`;
      qr.alt = `QR code of ${one.url}`;
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
