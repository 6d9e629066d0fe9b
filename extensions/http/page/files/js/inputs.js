// What a question asks a person to fill in: a field for each property of a flat JSON Schema. What is asked may have been
// written by strangers, so all of it is shown as text. A secret is a password field, which no browser keeps.
import { h } from "./dom.js";
import { visible } from "./format.js";

let forms = 0;

// The fields, and `values()`, which reads them: what is empty and need not be filled in is left out.
export function inputs(schema) {
  forms += 1;
  const required = new Set(schema.required ?? []);
  const fields = Object.entries(schema.properties ?? {}).map(([name, property], nth) =>
    field(name, property, required.has(name), `input-${forms}-${nth}`),
  );
  return {
    element: h(
      "div",
      { class: "inputs" },
      fields.map(({ element }) => element),
    ),
    values() {
      const filled = fields.map(({ name, read }) => [name, read()]).filter(([, value]) => value !== undefined);
      return Object.fromEntries(filled);
    },
    clear() {
      for (const { secret } of fields) if (secret) secret.value = "";
    },
  };
}

function field(name, property, required, id) {
  const { control, read, secret } = made(property, required, id);
  const title = visible(property.title ?? name);
  return {
    name,
    read,
    secret,
    element: h(
      "p",
      {},
      h("label", { htmlFor: id }, title, required ? "" : " (may be left empty)"),
      control,
      property.description ? h("span", { class: "small muted" }, visible(property.description)) : null,
      secret ? h("span", { class: "small muted" }, `Kept as ${visible(name)}. No model sees it.`) : null,
    ),
  };
}

function made(property, required, id) {
  const { type } = property;
  const choices = choicesOf(type === "array" ? property.items : property);
  if (type === "array") {
    const chosen = new Set(property.default ?? []);
    const control = h("select", { id, multiple: true }, options(choices, (value) => chosen.has(value)));
    return { control, read: () => [...control.selectedOptions].map((one) => one.value) };
  }
  if (choices.length) {
    const control = h(
      "select",
      { id },
      required ? null : h("option", { value: "" }, ""),
      options(choices, (value) => value === property.default),
    );
    return { control, read: () => control.value || undefined };
  }
  if (type === "boolean") {
    const control = h("input", { id, type: "checkbox", checked: property.default === true });
    return { control, read: () => control.checked };
  }
  if (property.writeOnly === true) {
    const control = h("input", { id, type: "password", autocomplete: "off", spellcheck: false });
    return { control, secret: control, read: () => control.value };
  }
  const isNumber = type === "number" || type === "integer";
  const control = h("input", {
    id,
    type: isNumber ? "number" : "text",
    step: type === "integer" ? "1" : isNumber ? "any" : undefined,
    value: property.default === undefined ? "" : String(property.default),
  });
  const read = () => {
    if (control.value === "") return required && !isNumber ? "" : undefined;
    return isNumber ? Number(control.value) : control.value;
  };
  return { control, read };
}

function choicesOf(property) {
  const plain = (property?.enum ?? []).map((value, nth) => [value, property.enumNames?.[nth] ?? value]);
  const titled = [...(property?.oneOf ?? []), ...(property?.anyOf ?? [])].map((one) => [one.const, one.title ?? one.const]);
  return [...plain, ...titled].map(([value, title]) => [String(value), String(title)]);
}

function options(choices, isChosen) {
  return choices.map(([value, title]) => h("option", { value, selected: isChosen(value) }, visible(title)));
}
