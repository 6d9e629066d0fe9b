// Makes elements. Texts become text nodes: nothing that is given here is read as markup. What shows HTML is `markdown.js`.

// An element with properties and children. `on` has listeners, `data` and `aria` have attributes by their short names, and
// `style` has custom properties and styles, which are set by script because the policy forbids them in the markup.
export function h(name, properties = {}, ...children) {
  const element = document.createElement(name);
  set(element, properties);
  element.append(...flat(children));
  return element;
}

const SVG = "http://www.w3.org/2000/svg";

export function svg(name, attributes = {}, ...children) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value !== undefined) element.setAttribute(key, String(value));
  }
  element.append(...flat(children));
  return element;
}

function set(element, properties) {
  for (const [key, value] of Object.entries(properties)) {
    if (value === undefined || value === null) continue;
    if (key === "on") {
      for (const [event, listener] of Object.entries(value)) element.addEventListener(event, listener);
    } else if (key === "data") {
      Object.assign(element.dataset, value);
    } else if (key === "aria") {
      for (const [name, text] of Object.entries(value))
        if (text !== undefined) element.setAttribute(`aria-${name}`, String(text));
    } else if (key === "style") {
      for (const [name, text] of Object.entries(value)) element.style.setProperty(name, text);
    } else if (key === "class") {
      element.className = value;
    } else if (key in element && key !== "list" && key !== "role") {
      element[key] = value;
    } else {
      element.setAttribute(key, String(value));
    }
  }
}

function flat(children) {
  return children.flat(Infinity).filter((child) => child !== undefined && child !== null && child !== false);
}

// Replaces what an element holds, but only where something changed by `key`, so that focus and selection stay.
export function fill(element, ...children) {
  element.replaceChildren(...flat(children));
  return element;
}

const live = () => document.getElementById("live");

// Tells a screen reader something that others see.
export function say(text) {
  const place = live();
  if (place) place.textContent = text;
}

export function alarm(text) {
  const place = document.getElementById("alerts");
  if (place) place.textContent = text;
}

// Has the browser keep a text as a file.
export function save(name, text, type = "text/plain") {
  const address = URL.createObjectURL(new Blob([text], { type }));
  h("a", { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 1000);
}

export async function copy(text, button) {
  const before = button.textContent;
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
    say("Copied");
  } catch {
    button.textContent = "The browser refused";
  }
  setTimeout(() => {
    button.textContent = before;
  }, 1500);
}
