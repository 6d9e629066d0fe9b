// Light, dark, or what the system says; the choice is kept.
import { h, say } from "./dom.js";

const NEXT = { system: "light", light: "dark", dark: "system" };
const SIGNS = { system: "◐", light: "○", dark: "●" };

export function themeSwitch() {
  const root = document.documentElement;
  const now = () => root.dataset.theme ?? "system";
  const button = h("button", { class: "quiet icon", type: "button" });
  const draw = () => {
    button.textContent = SIGNS[now()];
    button.title = `Theme: ${now()}`;
    button.setAttribute("aria-label", `Theme: ${now()}. Change it`);
  };
  button.addEventListener("click", () => {
    const next = NEXT[now()];
    if (next === "system") delete root.dataset.theme;
    else root.dataset.theme = next;
    try {
      localStorage.setItem("theme", next);
    } catch {
      // It holds until the page is closed.
    }
    draw();
    say(`Theme: ${next}`);
  });
  draw();
  return button;
}
