// A profile that is dropped: unpacked in the browser, because gzip is not in the predictor.

export interface TraceFile { name: string; bytes: Uint8Array }

const kMostBytes = 300e6;    // unpacked: a tab has no memory for the kernels of much more
const kLooked = 1 << 20;     // as trace/read_trace.cpp looks for its first key
const kOtherTraces = /\.(json\.gz|pt\.trace\.json|pftrace|nsys-rep|sqlite)$/;

// Returns whether a file is a profile: by its name, or by its first key.
export const isTrace = async (file: File): Promise<boolean> =>
  kOtherTraces.test(file.name) || (file.name.endsWith(".json") && (await file.slice(0, kLooked).text()).includes('"traceEvents"'));

// Returns a name that a shell and the predictor's folder take as it is.
const plainName = (name: string) => name.replace(/\.gz$/, "").replace(/[^\w.-]/g, "_");

// Reads a profile, unpacked. Throws Error with the reason.
export async function readTrace(file: File): Promise<TraceFile> {
  const tooLarge = `${file.name}: more than ${kMostBytes / 1e6} MB, which a page has no memory for; record fewer steps, or use the command \`stretto diagnose\``;
  const isGzip = file.name.endsWith(".gz");
  if (!isGzip && file.size > kMostBytes) throw new Error(tooLarge);
  const reader = (isGzip ? file.stream().pipeThrough(new DecompressionStream("gzip")) : file.stream()).getReader();
  const parts: Uint8Array[] = [];
  let size = 0;
  for (;;) {
    const { done, value } = await reader.read().catch(() => { throw new Error(`${file.name}: its gzip is damaged or ends early`); });
    if (done) break;
    size += value.length;
    if (size > kMostBytes) {
      void reader.cancel();
      throw new Error(tooLarge);
    }
    parts.push(value);
  }
  const bytes = new Uint8Array(size);
  let at = 0;
  for (const part of parts) { bytes.set(part, at); at += part.length; }
  return { name: plainName(file.name), bytes };
}
