// Limits and what is used of them.
import { h } from "./dom.js";
import { to } from "./router.js";

// Rows of a name, what is used, what is allowed, how both are written, and the key of the limit, which leads to why.
export function meters(rows) {
  return h(
    "ul",
    { class: "meters" },
    rows.map(([name, used, allowed, write, key]) => {
      const share = allowed > 0 ? used / allowed : 0;
      const level = share >= 1 ? "full" : share >= 0.8 ? "near" : "";
      return h(
        "li",
        { class: level },
        h("span", { class: "name" }, key ? h("a", { href: to.why(key) }, name) : name),
        h(
          "span",
          {
            class: "meter",
            role: "meter",
            aria: {
              label: name,
              valuemin: 0,
              valuemax: allowed,
              valuenow: Math.min(used, allowed),
              valuetext: `${write(used)} of ${write(allowed)}`,
            },
          },
          h("span", { style: { width: `${Math.min(1, share) * 100}%` } }),
        ),
        h(
          "span",
          { class: "num" },
          `${write(used)} of ${write(allowed)}`,
          level ? h("b", {}, level === "full" ? " – used up" : " – nearly used up") : null,
        ),
      );
    }),
  );
}
