// Predictors in workers, and the order of their work.

const bytesOf = (id) => {
  const text = atob(document.getElementById(id).textContent);
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; ++i) bytes[i] = text.charCodeAt(i);
  return bytes;
};

// A worker that owes an answer and is silent for this long is stopped: nobody knows whether it would ever answer. One that
// computes many steps gives a sign before each, so that a long answer is no silence.
const kSilentMs = 20000;

// A worker that has the predictor. The first question starts it. A worker that fails, or is silent for too long, is stopped: all
// that waits for it gets the reason as `{ error }`, and the next question starts another worker.
class Engine {
  #waiting = new Map();  // id -> what its reply resolves; id 0: the start of the worker
  #next = 1;
  #worker = null;
  #started = null;       // resolves to "" when the worker can be asked, or to an error as text
  #watch = 0;

  silentMs = kSilentMs;  // tests wait for less

  #stop(reason) {
    this.#worker?.terminate();
    this.#worker = this.#started = null;
    const text = JSON.stringify({ error: `the predictor in this page was stopped: ${reason}. The next change of a setting starts it anew.` });
    const resolves = [...this.#waiting.values()];
    this.#waiting.clear();
    for (const resolve of resolves) resolve(text);
    this.#listen();
  }

  #listen() {
    clearTimeout(this.#watch);
    const s = this.silentMs / 1000;
    if (this.#waiting.size) this.#watch = setTimeout(() => this.#stop(`it was silent for ${s} s, as if it waited for something that never comes; ` +
      "the command `stretto simulate` may answer the same question"), this.silentMs);
  }

  // Returns a promise of the reply to message `id`, which is sent afterwards.
  #replyTo(id) {
    const reply = new Promise((resolve) => this.#waiting.set(id, resolve));
    if (this.#waiting.size === 1) this.#listen();  // a further question is no sign of the worker
    return reply;
  }

  async #start() {
    const reply = this.#replyTo(0);
    const isWanted = () => this.#waiting.has(0);  // it may have been stopped meanwhile
    try {
      const script = await new Response(
        new Blob([bytesOf("worker")]).stream().pipeThrough(new DecompressionStream("gzip"))).blob();
      if (!isWanted()) return reply;
      const worker = this.#worker = new Worker(URL.createObjectURL(script));
      worker.onmessage = ({ data: { id, text } }) => {
        if (id === undefined) return this.#listen();  // a sign that it computes
        if (id === 0 && text) return this.#stop(JSON.parse(text).error);
        const resolve = this.#waiting.get(id);
        this.#waiting.delete(id);
        this.#listen();
        resolve?.(text);
      };
      worker.onerror = (event) => this.#stop(event.message || "the browser does not let this page start a worker");
      worker.onmessageerror = () => this.#stop("its answer could not be read");
      const wasm = bytesOf("wasm"), data = bytesOf("data");
      worker.postMessage({ wasm, data }, [wasm.buffer, data.buffer]);
    } catch (problem) {
      if (isWanted()) this.#stop(`this browser cannot run it (${problem})`);
    }
    return reply;
  }

  // Returns the answer to a request (page/answer.hpp) as text.
  async ask(request, files = []) {
    const problem = await (this.#started ??= this.#start());
    if (problem) return problem;
    if (!this.#worker) return this.ask(request, files);  // it was stopped while this question waited for its start
    const id = this.#next++;
    const reply = this.#replyTo(id);
    this.#worker.postMessage({ id, request: JSON.stringify(request), files });
    return reply;
  }
}

// Calls `act` for the newest of all values that it is given while it is busy with an older one.
const newestOnly = (act) => {
  let busy = false, next = null;
  return async (value) => {
    next = { value };
    if (busy) return;
    busy = true;
    try {
      while (next !== null) {
        const now = next;
        next = null;
        await act(now.value, () => next === null);
      }
    } finally {
      busy = false;
    }
  };
};
