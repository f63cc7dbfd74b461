// Predictors in workers, and the order of their work.

const bytesOf = (id) => {
  const text = atob(document.getElementById(id).textContent);
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; ++i) bytes[i] = text.charCodeAt(i);
  return bytes;
};

class Engine {
  #waiting = new Map();  // id -> what its reply resolves
  #next = 1;
  #worker = null;

  async #begin() {
    const script = await new Response(
      new Blob([bytesOf("worker")]).stream().pipeThrough(new DecompressionStream("gzip"))).blob();
    this.#worker = new Worker(URL.createObjectURL(script));
    this.#worker.onmessage = ({ data: { id, text, ms } }) => {
      this.lastMs = ms;
      this.#waiting.get(id)?.(text);
      this.#waiting.delete(id);
    };
    const wasm = bytesOf("wasm"), data = bytesOf("data");
    const begun = new Promise((resolve) => this.#waiting.set(0, resolve));
    this.#worker.postMessage({ wasm, data }, [wasm.buffer, data.buffer]);
    return begun;
  }

  // Returns the answer to a request (page/answer.hpp) as text.
  async ask(request, files = []) {
    this.begun ??= this.#begin();
    const problem = await this.begun;
    if (problem) return problem;
    const id = this.#next++;
    return new Promise((resolve) => {
      this.#waiting.set(id, resolve);
      this.#worker.postMessage({ id, request: JSON.stringify(request), files });
    });
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
