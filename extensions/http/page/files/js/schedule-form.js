// The form that adds a schedule. Whether what it says is right the daemon alone decides, and its words stand next to the button.
import { ask } from "./control.js";
import { alarm, h, say } from "./dom.js";
import { moment } from "./format.js";

function field(label, hint, input) {
  const id = `schedule-${input.name}`;
  input.id = id;
  input.setAttribute("aria-describedby", `${id}-hint`);
  return h(
    "div",
    { class: "field" },
    h("label", { htmlFor: id }, label),
    input,
    h("span", { class: "small muted", id: `${id}-hint` }, hint),
  );
}

export function scheduleForm(onAdded) {
  const text = (name, more = {}) =>
    h("input", { type: "text", name, autocomplete: "off", spellcheck: false, required: true, ...more });
  const name = text("name");
  const when = text("when");
  const timezone = text("timezone", { required: false });
  const task = h("textarea", { name: "task", rows: 3, required: true });
  const told = h("p", { class: "notice bad", id: "schedule-fault", hidden: true });
  const button = h("button", { class: "primary", aria: { describedby: "schedule-fault" } }, "Add");
  const form = h(
    "form",
    { class: "fields", aria: { label: "A new schedule" }, on: { submit: (event) => add(event) } },
    field("Name", "Of a-z, 0-9, _ and -.", name),
    field("When", "0 8 * * 1-5, @every 90m, or 2026-12-24 18:00.", when),
    field("Time zone", "Such as Europe/Berlin. Without one, the daemon’s.", timezone),
    field("Task", "What the orchestrator does then. Nobody is there to be asked.", task),
    h("div", { class: "row" }, button, told),
  );
  const tell = (words) => {
    told.textContent = words;
    told.hidden = !words;
    if (words) alarm(words);
  };
  const add = async (event) => {
    event.preventDefault();
    tell("");
    button.disabled = true;
    try {
      const zone = timezone.value.trim();
      const added = await ask("schedules.add", {
        name: name.value.trim(),
        when: when.value.trim(),
        task: task.value,
        ...(zone ? { timezone: zone } : {}),
      });
      form.reset();
      say(`${added.id} is added${added.next ? `, and due ${moment(added.next)}` : ""}`);
      await onAdded(added);
    } catch (fault) {
      tell(fault.help ? `${fault.message} – ${fault.help}` : fault.message);
    } finally {
      button.disabled = false;
    }
  };
  return form;
}
