// Runs in a worker after the compiler's script, so that the page stays responsive.
//   first message  { unpack, wasm, data, compiled }: the module of page/unpack.cpp; the packed module and the files of
//                  scenarios/; and where another worker has it already the module as this browser has compiled it, which
//                  spares seconds on few cores
//   then           { id, request, files }: request as text for page/answer.hpp; files: [{ name, text or bytes }] that it names
//   replies        { compiled } of the worker that compiles; { id, text }, and { id: 0, text: "" } when the first message is done; {} while it computes, with { part },
//                  a part of a long answer as text

const kPageBytes = 65536;  // of WebAssembly's memory
const kLengthAt = 5;       // in the header of a packed stream

// Returns what is packed, as page/unpack.cpp unpacks it.
async function unpacked(unpacker, bytes) {
  const { exports } = await WebAssembly.instantiate(unpacker);
  const length = new DataView(bytes.buffer).getUint32(kLengthAt, true), begin = exports.__heap_base.value, out = begin + bytes.length;
  exports.memory.grow(Math.ceil((out + length) / kPageBytes));
  const memory = new Uint8Array(exports.memory.buffer);
  memory.set(bytes, begin);
  if (exports.unpack(begin, bytes.length, out) !== length) throw new Error("what is packed in it is not whole");
  return memory.slice(out, out + length);
}

const kSignMs = 500;
let lastSign = 0;
const goesOn = () => {
  const now = performance.now();
  if (now - lastSign < kSignMs) return;
  lastSign = now;
  postMessage({});
};

let module = null;
const folder = "/dropped";

async function begin({ unpack, wasm, data, compiled }) {
  const unpacker = await WebAssembly.compile(unpack);
  const [code, text] = await Promise.all([compiled ?? unpacked(unpacker, wasm).then((binary) => WebAssembly.compile(binary)), unpacked(unpacker, data)]);
  module = await new Promise((done, fail) => {
    const instantiateWasm = (imports, use) => {
      WebAssembly.instantiate(code, imports).then((instance) => use(instance, code), fail);
      return {};
    };
    makeStretto({ instantiateWasm, goesOn, says: (part) => postMessage({ part }) }).then(done, fail);
  });
  if (!compiled) try { postMessage({ compiled: code }); } catch { /* others compile it again */ }
  const files = JSON.parse(new TextDecoder().decode(text));
  module.FS.mkdirTree(folder);
  for (const [path, content] of Object.entries(files)) {
    module.FS.mkdirTree("/data/" + path.slice(0, path.lastIndexOf("/")));
    module.FS.writeFile("/data/" + path, content);
  }
  module.FS.chdir(folder);
}

let ready = null;
onmessage = async ({ data: message }) => {
  try {
    if (ready === null) {
      ready = begin(message);
      const problem = await ready.then(() => "", (one) => `it cannot be unpacked or compiled (${one}): this copy of the page is ` +
        "damaged, or the browser is too old or has no memory left for it. A new copy or another browser may help");
      postMessage({ id: 0, text: problem && JSON.stringify({ error: problem }) });
      return;
    }
    await ready;
    for (const { name, text, bytes } of message.files) module.FS.writeFile(name, bytes ?? text);
    const text = module.ccall("stretto_answer", "string", ["string"], [message.request]);
    postMessage({ id: message.id, text });
  } catch (problem) {
    postMessage({ id: message.id || 0, text: JSON.stringify({ error: `the page failed: ${problem}` }) });
  }
};
