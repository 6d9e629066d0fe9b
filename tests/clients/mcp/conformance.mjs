// The official conformance suite against a door of drupe. See README.md.
//
// The suite sends no token: a proxy on this machine adds it.

import { spawn } from "node:child_process";
import { createServer, request } from "node:http";

const { DRUPE_URL, DRUPE_KEY, CONFORMANCE } = process.env;
const door = new URL(DRUPE_URL);

const proxy = createServer((from, to) => {
  const host = door.host;
  const headers = { ...from.headers, host, authorization: `Bearer ${DRUPE_KEY}` };
  // A page of the proxy's own address is one of the door's.
  if (headers.origin === `http://${from.headers.host}`) headers.origin = `http://${host}`;
  // What is refused for the name that it came under is to be refused by the door, not hidden by the proxy.
  if (from.headers.host !== `localhost:${proxy.address().port}`) headers.host = from.headers.host;
  const options = { host: door.hostname, port: door.port, path: from.url, method: from.method, headers };
  const ask = request(options, (answer) => {
    to.writeHead(answer.statusCode, answer.headers);
    answer.pipe(to);
  });
  ask.on("error", () => to.destroy());
  to.on("close", () => ask.destroy());
  from.pipe(ask);
});

proxy.listen(0, "127.0.0.1", () => {
  const url = `http://localhost:${proxy.address().port}/mcp`;
  const args = [CONFORMANCE, "server", "--url", url, ...process.argv.slice(2)];
  const suite = spawn(process.execPath, args, { stdio: "inherit" });
  suite.on("exit", (status) => process.exit(status ?? 1));
});
