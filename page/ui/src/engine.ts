// Predictors in workers (page/worker.js): each starts with its first question, is watched, and is replaced when it fails.
import { bytesOfText } from "./base85";

// A worker that owes an answer and is silent for this long is stopped. One that computes many steps gives a sign before each.
const kSilentMs = 20000;

const bytesOf = (id: string) => bytesOfText(document.getElementById(id)!.textContent!.trim());

let script: Promise<string> | null = null;  // the worker's address, unpacked once
const scriptUrl = () => (script ??= new Response(new Blob([bytesOf("worker")]).stream().pipeThrough(new DecompressionStream("gzip")))
  .blob().then((blob) => URL.createObjectURL(blob)));

// The module as the first worker has compiled it: workers that start later share it.
let compiled: WebAssembly.Module | null = null;

export interface File { name: string; text?: string; bytes?: Uint8Array }
export type Request = { what: string } & Record<string, unknown>;

export class Engine {
  #waiting = new Map<number, (text: string) => void>();  // id -> resolves its reply; id 0: the start of the worker
  #next = 1;
  #worker: Worker | null = null;
  #started: Promise<string> | null = null;  // resolves to "" when the worker can be asked, or to an error as text
  #watch = 0;
  #isReady = false;  // the worker has started and is not stopped

  silentMs = kSilentMs;  // tests wait for less
  onPart: ((text: string) => void) | null = null;  // gets the parts of a long answer

  // Ends the worker; all that waits for it gets the reason as `{ error }`. The next question starts another.
  stop(reason: string) {
    this.#worker?.terminate();
    this.#worker = this.#started = null;
    this.#isReady = false;
    const text = JSON.stringify({ error: `the predictor in this page was stopped: ${reason}. The next change of a setting starts it anew.` });
    const resolves = [...this.#waiting.values()];
    this.#waiting.clear();
    for (const resolve of resolves) resolve(text);
    this.#listen();
  }

  get isBusy() { return this.#waiting.size > 0; }

  #listen() {
    clearTimeout(this.#watch);
    if (!this.#waiting.size) return;
    this.#watch = window.setTimeout(() => this.stop(`it was silent for ${this.silentMs / 1000} s, as if it waited for something that ` +
      "never comes; the command `stretto simulate` may answer the same question"), this.silentMs);
  }

  #replyTo(id: number) {
    const reply = new Promise<string>((resolve) => this.#waiting.set(id, resolve));
    if (this.#waiting.size === 1) this.#listen();  // a further question is no sign of the worker
    return reply;
  }

  async #start() {
    const reply = this.#replyTo(0);
    const isWanted = () => this.#waiting.has(0);  // it may have been stopped meanwhile
    try {
      const url = await scriptUrl();
      if (!isWanted()) return reply;
      const worker = (this.#worker = new Worker(url));
      worker.onmessage = ({ data: { id, text, part, compiled: module } }) => {
        if (module !== undefined) compiled = module;
        if (part !== undefined) this.onPart?.(part);
        if (id === undefined) return this.#listen();  // a sign that it computes
        if (id === 0 && text) return this.stop(JSON.parse(text).error);
        const resolve = this.#waiting.get(id);
        this.#waiting.delete(id);
        this.#listen();
        resolve?.(text);
      };
      worker.onerror = (event) => this.stop(event.message || "the browser does not let this page start a worker");
      worker.onmessageerror = () => { if (!isWanted()) this.stop("its answer could not be read"); };  // a module may be unreadable
      const unpack = bytesOf("unpack"), data = bytesOf("data");
      if (compiled) worker.postMessage({ unpack, compiled, data }, [data.buffer]);
      else {
        const wasm = bytesOf("wasm");
        worker.postMessage({ unpack, wasm, data }, [wasm.buffer, data.buffer]);
      }
    } catch (problem) {
      if (isWanted()) this.stop(`this browser cannot run it (${problem})`);
    }
    return reply;
  }

  // Returns the answer to a request (page/answer.hpp) as text. A worker that has started gets it at once, before this returns: what
  // the caller then draws takes no time from the answer.
  askText(request: Request, files: File[] = []): Promise<string> {
    return this.#isReady ? this.#post(request, files) : this.#askFirst(request, files);
  }

  async #askFirst(request: Request, files: File[]): Promise<string> {
    const problem = await (this.#started ??= this.#start());
    if (problem) return problem;
    if (!this.#worker) return this.askText(request, files);  // it was stopped while this question waited for its start
    this.#isReady = true;
    return this.#post(request, files);
  }

  #post(request: Request, files: File[]): Promise<string> {
    const id = this.#next++;
    const reply = this.#replyTo(id);
    this.#worker!.postMessage({ id, request: JSON.stringify(request), files });
    return reply;
  }
}

export const quick = new Engine();  // what a change waits for
export const slow = new Engine();   // texts, ratios, a profile
// What other settings would give: one of them starts with the page, the others after it has shown the largest effects.
const kMostTrying = 3;
export const trying = Array.from({ length: Math.max(1, Math.min(kMostTrying, (globalThis.navigator?.hardwareConcurrency || 2) - 1)) }, () => new Engine());
