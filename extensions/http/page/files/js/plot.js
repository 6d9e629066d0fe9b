// Bars as SVG, made here. Each has its number as text beside it, so nothing is told by a picture alone.
import { svg } from "./dom.js";

const HIGH = 150;
const FOOT = 22;
const HEAD = 16;

// A column for each row: `label`, and `parts`, which are lists of a class and a number. It is drawn as wide as its place,
// so that its letters are as large as all others.
export function columns(rows, write, title, place) {
  const wide = Math.max(place.clientWidth, 260);
  const step = wide / Math.max(rows.length, 1);
  const most = Math.max(1e-9, ...rows.map(({ parts }) => parts.reduce((sum, [, number]) => sum + number, 0)));
  const every = Math.ceil(rows.length / Math.floor(wide / 60));
  const drawn = rows.map(({ label, parts }, at) => {
    const sum = parts.reduce((all, [, number]) => all + number, 0);
    let top = HEAD + HIGH;
    const boxes = parts.map(([kind, number]) => {
      const high = (number / most) * HIGH;
      top -= high;
      return high > 0
        ? svg("rect", {
            class: kind,
            x: at * step + step * 0.15,
            y: top,
            width: step * 0.7,
            height: high,
            rx: Math.min(2, high / 2),
          })
        : null;
    });
    return svg(
      "g",
      {},
      svg("title", {}, `${label}: ${write(sum)}`),
      svg("rect", { class: "hit", x: at * step, y: HEAD, width: step, height: HIGH }),
      boxes,
      at % every === 0
        ? svg(
            "text",
            { x: at ? at * step + step / 2 : 0, y: HEAD + HIGH + 15, "text-anchor": at ? "middle" : "start" },
            label.length === 10 ? label.slice(5) : label,
          )
        : null,
    );
  });
  return svg(
    "svg",
    { class: "plot", viewBox: `0 0 ${wide} ${HEAD + HIGH + FOOT}`, role: "img", "aria-label": title },
    svg("line", { x1: 0, x2: wide, y1: HEAD, y2: HEAD, class: "grid" }),
    svg("text", { x: 0, y: HEAD - 4 }, write(most)),
    svg("line", { x1: 0, x2: wide, y1: HEAD + HIGH / 2, y2: HEAD + HIGH / 2, class: "grid" }),
    svg("line", { x1: 0, x2: wide, y1: HEAD + HIGH, y2: HEAD + HIGH, class: "base" }),
    drawn,
  );
}

// The days from the first to the last, so that a day without anything is seen as one.
export function days(since, until) {
  const made = [];
  for (
    let day = new Date(`${since}T00:00:00Z`);
    day.toISOString().slice(0, 10) <= until && made.length < 400;
    day.setUTCDate(day.getUTCDate() + 1)
  )
    made.push(day.toISOString().slice(0, 10));
  return made;
}
