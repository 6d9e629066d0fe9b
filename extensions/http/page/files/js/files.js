// Files that a person adds to a message. They are read here and become part of its text, each as a block of code under its
// name: every agent and every model reads that, and the message stays all that there is.
import { alarm, fill, h } from "./dom.js";
import { bytes, visible } from "./format.js";

// Bytes of all files of a message. A model reads some ten thousand words at once; what is longer belongs into the workspace.
const MOST = 256 * 1024;

const HEAD = "File `";

export class Files {
  // `tell` shows why a file was not taken.
  constructor(tell) {
    this.tell = tell;
    this.added = [];
    this.input = h("input", {
      type: "file",
      multiple: true,
      hidden: true,
      aria: { label: "Files" },
      on: { change: () => this.add(this.input.files).then(() => (this.input.value = "")) },
    });
    this.button = h(
      "button",
      {
        type: "button",
        class: "quiet icon",
        title: "Add text files, or drop them here",
        aria: { label: "Add files" },
        on: { click: () => this.input.click() },
      },
      "+",
    );
    this.element = h("ul", { class: "added", hidden: true, aria: { label: "Files of this message" } });
    // A file that is dropped beside the place to write would otherwise be opened in place of the page.
    this.over = (event) => event.dataTransfer?.types.includes("Files") && event.preventDefault();
    this.drop = (event) => {
      if (!event.dataTransfer?.files.length) return;
      event.preventDefault();
      this.add(event.dataTransfer.files);
    };
    document.addEventListener("dragover", this.over);
    document.addEventListener("drop", this.drop);
  }

  // From the clipboard, where it holds files and no text.
  pasted(event) {
    const { files, types } = event.clipboardData ?? {};
    if (!files?.length || types.includes("text/plain")) return;
    event.preventDefault();
    this.add(files);
  }

  async add(files) {
    for (const file of [...files]) {
      const name = visible(file.name).replace(/[`\s]+/g, " ").trim().slice(0, 120) || "file";
      const used = this.added.reduce((sum, { size }) => sum + size, 0);
      if (used + file.size > MOST) this.refuse(`${name} was not added: the files of a message have ${bytes(MOST)} at most`);
      else {
        const content = await text(file);
        if (content === null) this.refuse(`${name} was not added: it is no text`);
        else this.added.push({ name, size: file.size, content });
      }
    }
    this.draw();
  }

  refuse(why) {
    this.tell(why);
    alarm(why);
  }

  draw() {
    this.element.hidden = this.added.length === 0;
    fill(
      this.element,
      this.added.map((file) =>
        h(
          "li",
          {},
          h("span", { class: "name" }, file.name),
          h("span", { class: "muted num" }, bytes(file.size)),
          h(
            "button",
            {
              type: "button",
              class: "quiet",
              aria: { label: `Remove ${file.name}` },
              on: {
                click: () => {
                  this.added = this.added.filter((other) => other !== file);
                  this.draw();
                  this.button.focus();
                },
              },
            },
            "✕",
          ),
        ),
      ),
    );
  }

  // The message with its files.
  joined(said) {
    return [said, ...this.added.map(block)].filter(Boolean).join("\n\n");
  }

  clear() {
    this.added = [];
    this.draw();
  }

  close() {
    document.removeEventListener("dragover", this.over);
    document.removeEventListener("drop", this.drop);
  }
}

// The content, or null where it is no text.
async function text(file) {
  try {
    const read = new TextDecoder("utf-8", { fatal: true }).decode(await file.arrayBuffer());
    return read.includes("\0") ? null : read;
  } catch {
    return null;
  }
}

// A fence that is longer than any in the content, so that nothing in it ends the block.
function block({ name, content }) {
  const longest = Math.max(2, ...(content.match(/`+/g) ?? []).map((run) => run.length));
  const fence = "`".repeat(longest + 1);
  return `${HEAD}${name}\`:\n${fence}\n${content}\n${fence}`;
}

// What was said and the files, of a message as it was sent. One pass: a block without an end ends the search.
export function apart(message) {
  const files = [];
  let rest = message;
  let said = "";
  while (rest) {
    const at = rest.startsWith(HEAD) ? 0 : rest.indexOf(`\n\n${HEAD}`);
    const found = at < 0 ? null : opened(rest, at ? at + 2 : rest.startsWith(HEAD) ? 0 : 2);
    if (!found) return { said: said + rest, files };
    said += rest.slice(0, at);
    files.push(found.file);
    rest = rest.slice(found.end);
  }
  return { said, files };
}

function opened(text, at) {
  const head = /^File `([^`\n]+)`:\n(`{3,})\n/.exec(text.slice(at, at + 400));
  if (!head) return null;
  const [all, name, fence] = head;
  const begin = at + all.length;
  const last = `\n${fence}`;
  let end = text.indexOf(`${last}\n\n`, begin);
  if (end < 0 && text.endsWith(last) && text.length - last.length >= begin) end = text.length - last.length;
  if (end < 0) return null;
  return { file: { name, content: text.slice(begin, end) }, end: end + last.length };
}

// What was asked, with its files folded.
export function asked(message) {
  const { said, files } = apart(message);
  return [
    said,
    files.map(({ name, content }) =>
      h(
        "details",
        { class: "file" },
        h(
          "summary",
          {},
          h("span", { class: "name" }, visible(name)),
          " ",
          h("span", { class: "muted num" }, bytes(new Blob([content]).size)),
        ),
        h("pre", { tabIndex: 0, class: "io-text" }, content),
      ),
    ),
  ];
}
