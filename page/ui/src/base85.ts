// Bytes as text, as Python's base64.b85encode() writes them but with "," in place of "<", which HTML reads: four bytes in five signs,
// where base64 has three in four.
const kSigns = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;,=>?@^_`{|}~";

export function bytesOfText(text: string): Uint8Array<ArrayBuffer> {
  const values = new Uint8Array(128);
  for (let i = 0; i < kSigns.length; ++i) values[kSigns.charCodeAt(i)] = i;
  const groups = Math.ceil(text.length / 5), missing = 5 * groups - text.length;
  const padded = text + kSigns.at(-1)!.repeat(missing), bytes = new Uint8Array(4 * groups), view = new DataView(bytes.buffer);
  for (let group = 0; group < groups; ++group) {
    let word = 0;
    for (let i = 5 * group; i < 5 * group + 5; ++i) word = word * 85 + values[padded.charCodeAt(i)]!;
    view.setUint32(4 * group, word);
  }
  return bytes.slice(0, bytes.length - missing);
}
