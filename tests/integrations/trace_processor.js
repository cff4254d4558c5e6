// Perfetto's trace_processor (WebAssembly, from the folder in argv) as a filter: requests of its RPC on stdin, replies on stdout.
"use strict";
const fs = require("fs"), path = require("path"), vm = require("vm");

const folder = process.argv[2];
const worker = {
  TextDecoder, TextEncoder, URL, performance, crypto, setTimeout, clearTimeout,
  console: {log: console.error, warn: console.error, error: console.error},
  location: {href: "file:///engine_bundle.js"},
  importScripts: () => { throw new Error("nothing is loaded"); },
  WorkerGlobalScope: function () {},
  XMLHttpRequest: class {
    open(_, url) { this.response = bytes(fs.readFileSync(path.join(folder, path.basename(url)))); }
    send() {}
  },
};
worker.self = worker;
vm.createContext(worker);
// The worker has a Uint8Array of its own.
const bytes = vm.runInContext("(from) => Uint8Array.from(from)", worker);
vm.runInContext(fs.readFileSync(path.join(folder, "engine_bundle.js"), "utf8"), worker);

const port = {postMessage: (reply) => fs.writeSync(1, Buffer.from(reply))};
worker.onmessage({data: port});
const ready = setInterval(() => {
  try { port.onmessage({data: bytes([])}); } catch (error) { return; }
  clearInterval(ready);
  process.stdin.on("data", (chunk) => port.onmessage({data: bytes(chunk)}));
}, 50);
