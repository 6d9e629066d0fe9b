// Asks before something is gone for good. Escape, and the answer that the focus is on at first, change nothing.
import { fill, h } from "./dom.js";

let dialog = null;

// Whether the person says yes to `word`. `what` is shown as the text that it is.
export function confirm(question, what, word) {
  if (!dialog) {
    dialog = h("dialog", { class: "confirm", aria: { labelledby: "confirm-question" } });
    document.body.append(dialog);
  }
  const no = h("button", { value: "" }, "Cancel");
  fill(
    dialog,
    h("h2", { id: "confirm-question" }, question),
    h("p", { class: "text", tabIndex: 0 }, what),
    h("form", { method: "dialog", class: "row" }, no, h("button", { class: "danger", value: "yes" }, word)),
  );
  dialog.returnValue = "";
  dialog.showModal();
  no.focus();
  return new Promise((answered) => {
    dialog.addEventListener("close", () => answered(dialog.returnValue === "yes"), { once: true });
  });
}
