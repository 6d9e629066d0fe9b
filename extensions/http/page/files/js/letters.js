// Messages of topics that were given up: what they say, why nobody took them, and what is to become of them.
import { ask } from "./control.js";
import { alarm, fill, h, say } from "./dom.js";
import { counted, moment } from "./format.js";
import { to } from "./router.js";
import { may } from "./who.js";

export async function letters(place) {
  const read = async () => {
    const list = await ask("bus.dead");
    fill(
      place,
      list.length
        ? h(
            "section",
            { class: "block" },
            h("h2", {}, "Messages that were given up"),
            h(
              "ul",
              { class: "lines" },
              list.map((letter) => row(letter, read)),
            ),
          )
        : null,
    );
  };
  await read();
}

function row(letter, read) {
  const status = h("p", { class: "small", role: "status" });
  const act = (label, method, done) =>
    h(
      "button",
      {
        type: "button",
        class: "quiet",
        on: {
          click: async () => {
            try {
              await ask(method, { id: letter.id });
              say(done);
              await read();
            } catch (fault) {
              status.textContent = fault.help ? `${fault.message} – ${fault.help}` : fault.message;
              alarm(status.textContent);
            }
          },
        },
      },
      label,
    );
  return h(
    "li",
    {},
    h("code", {}, letter.topic),
    h(
      "span",
      {},
      `for ${letter.subscriber}: ${letter.reason}`,
      letter.cut > 1 ? ` (${counted(letter.cut, "message")}, this is the latest)` : "",
      h(
        "details",
        {},
        h("summary", { class: "small muted" }, "What it says"),
        h("pre", { class: "io-text", tabIndex: 0 }, JSON.stringify(letter.payload, null, 2)),
      ),
      h(
        "span",
        { class: "row" },
        h("a", { class: "button quiet", href: to.why(String(letter.id)) }, "Why"),
        may("operate")
          ? [
              act("Deliver again", "bus.retry", "It is delivered again"),
              act("Forget", "bus.drop", "It is forgotten"),
            ]
          : null,
      ),
      status,
    ),
    h("span", { class: "small muted" }, `${counted(letter.attempts, "attempt")}, ${moment(letter.published)}`),
  );
}
