/**
 * Moves the playground's page (`visualizer/playing/page.py`), in a notebook and on the site: it sends the settings once
 * the controls rest, and replaces the parts of the page that a run changes. The controls stay, with their focus.
 */

const CALM = 200; // ms without a change before a run starts

/** what the reader asks for: a run with these settings, or another question */
export type Wish = { settings: Record<string, unknown> } | { question: number };

/** Attaches the page in `root`, calls `ask` with wishes, and returns what shows a new page. */
export function attach(root: HTMLElement, ask: (wish: Wish) => void, signal: AbortSignal) {
  let timer: ReturnType<typeof setTimeout> | undefined;
  root.addEventListener(
    "input",
    () => {
      for (const output of root.querySelectorAll("output")) {
        const input = output.closest("label")?.querySelector("input") as HTMLInputElement;
        output.value = input.valueAsNumber.toLocaleString("en");
      }
      clearTimeout(timer);
      timer = setTimeout(() => {
        timer = undefined;
        ask({ settings: settingsOf(root) });
      }, CALM);
    },
    { signal },
  );
  root.addEventListener("submit", (event) => event.preventDefault(), { signal });
  root.addEventListener(
    "click",
    ({ target }) => {
      const { question } = (target as HTMLElement).dataset;
      if (question === undefined) return;
      clearTimeout(timer);
      ask({ question: Number(question) });
    },
    { signal },
  );

  return (html: string) => {
    const page = document.createElement("template");
    page.innerHTML = html;
    const title = (at: ParentNode) => at.querySelector("h1")?.textContent;
    if (title(page.content) !== title(root)) {
      const hadFocus = root.contains(document.activeElement);
      root.replaceChildren(page.content);
      if (hadFocus) root.querySelector<HTMLElement>("[data-question]")?.focus();
      return;
    }
    for (const part of page.content.querySelectorAll<HTMLElement>("[data-part]"))
      root.querySelector(`[data-part="${part.dataset.part}"]`)?.replaceChildren(...part.childNodes);
    // Python may have changed the settings; what the reader is moving is sent soon.
    if (timer === undefined && !page.content.querySelector('[data-part="message"]:not(:empty)'))
      takeValues(root, page.content);
  };
}

const FIELDS = "input, select";
type Field = HTMLInputElement | HTMLSelectElement;

function settingsOf(root: HTMLElement) {
  const values: Record<string, unknown> = {};
  for (const field of root.querySelectorAll<Field>(FIELDS)) {
    if (field.type === "checkbox") values[field.name] = (field as HTMLInputElement).checked;
    else if (field.type !== "radio")
      values[field.name] = JSON.parse(field.value || "0"); // a number, or an option's value
    else if ((field as HTMLInputElement).checked) values[field.name] = field.value;
  }
  return values;
}

function takeValues(root: HTMLElement, page: DocumentFragment) {
  const fields = page.querySelectorAll<Field>(FIELDS);
  for (const [i, field] of root.querySelectorAll<Field>(FIELDS).entries()) {
    const given = fields[i];
    if (field instanceof HTMLInputElement) field.checked = (given as HTMLInputElement).checked;
    if (field.type !== "radio") field.value = given.value;
  }
  const outputs = page.querySelectorAll("output");
  for (const [i, output] of root.querySelectorAll("output").entries())
    output.value = outputs[i].value;
}
