// A WebAssembly module whose only function loads from the address that it is given: outside of its memory that is a SIGSEGV, and a RuntimeError.
const { Worker, isMainThread } = require("worker_threads");
const bytes = new Uint8Array([
  0, 97, 115, 109, 1, 0, 0, 0, 1, 6, 1, 96, 1, 127, 1, 127, 3, 2, 1, 0, 5, 3, 1, 0, 1, 7, 8, 1, 4, 108, 111, 97, 100, 0, 0, 10, 9, 1, 7, 0, 32, 0,
  40, 2, 0, 11,
]);
const { load } = new WebAssembly.Instance(new WebAssembly.Module(bytes)).exports;
let caught = 0;
for (let i = 0; i < 2000; i++) {
  try {
    load(i % 2 ? 0x7ffffff0 : 16);
  } catch (error) {
    if (error instanceof WebAssembly.RuntimeError) caught++;
  }
}
function deep(n) { return deep(n + 1) + 1; }
let overflows = 0;
for (let i = 0; i < 10; i++) try { deep(0); } catch (error) { overflows++; }
if (isMainThread) {
  console.log("main", caught, overflows);
  const workers = [1, 2, 3].map(() => new Worker(__filename));
  let left = workers.length;
  workers.forEach((worker) => worker.on("exit", (code) => { console.log("worker", code); if (--left === 0) process.exitCode = 4; }));
} else if (caught !== 1000) {
  process.exit(3);
}
