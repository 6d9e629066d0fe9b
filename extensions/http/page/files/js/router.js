// Addresses. What is shown has an address behind the `#`, so that it can be linked to, kept and gone back to.

const part = encodeURIComponent;

// Names and values behind each other; what has no value is left out.
const pairs = (values) =>
  Object.entries(values)
    .filter(([, value]) => value)
    .map(([name, value]) => `/${name}/${part(value)}`)
    .join("");

export const to = {
  session: (id) => `#/s/${part(id)}`,
  turn: (session, turn) => `#/s/${part(session)}/t/${part(turn)}`,
  node: (session, turn, node) => `#/s/${part(session)}/t/${part(turn)}/n/${part(node)}`,
  message: (session, turn) => `#/s/${part(session)}/m/${part(turn)}`,
  agent: (id) => `#/agents/${part(id)}`,
  extension: (id) => `#/extensions/${part(id)}`,
  approval: (id) => `#/approvals/${part(id)}`,
  schedule: (id) => `#/schedules/${part(id)}`,
  memory: (shown) => `#/memory${pairs(shown)}`,
  timeline: (turn) => `#/t/${part(turn)}`,
  why: (id) => `#/why/${part(id)}`,
};

// The parts of the address, decoded. One that cannot be decoded is no address.
export function parts(hash = location.hash) {
  try {
    return hash.replace(/^#\/?/, "").split("/").filter(Boolean).map(decodeURIComponent);
  } catch {
    return ["unknown"];
  }
}

export function go(hash) {
  location.hash = hash;
}

// Gives what is shown another address; it stays as it is.
export function rename(hash) {
  history.replaceState(null, "", hash);
  window.dispatchEvent(new Event("renamed"));
}
