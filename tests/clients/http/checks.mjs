// What the scripts of this folder share: where the door is, and a list of checks that are run one by one.

import assert from "node:assert/strict";

export const URL = process.env.DRUPE_URL.replace(/\/+$/, "");
export const KEY = process.env.DRUPE_KEY;
export const MODEL = process.env.DRUPE_MODEL ?? "drupe";
export const TOOL = { type: "object", properties: { city: { type: "string" } }, required: ["city"] };

const groups = process.argv.length > 2 ? process.argv.slice(2) : ["core"];
const checks = [];

/** Adds a check to a group. */
export function check(group, name, run) {
  checks.push({ group, name, run });
}

/** The error of a class that a call must raise, with these properties. */
export async function refused(kind, call, expected = {}) {
  let error;
  try {
    await call();
  } catch (raised) {
    error = raised;
  }
  assert.ok(error instanceof kind, `it was not refused with ${kind.name}: ${error}`);
  for (const [name, value] of Object.entries(expected)) assert.equal(error[name], value, name);
  return error;
}

/** All that a stream gives. */
export async function all(stream) {
  const items = [];
  for await (const item of await stream) items.push(item);
  return items;
}

/** Runs the checks of the groups that were asked for, and ends with 1 where one failed. */
export async function run() {
  for (const { group, name, run } of checks.filter((each) => groups.includes(each.group))) {
    try {
      await run();
      console.log(`ok    ${group.padEnd(8)} ${name}`);
    } catch (error) {
      process.exitCode = 1;
      console.log(`FAIL  ${group.padEnd(8)} ${name}\n`, error);
    }
  }
}
