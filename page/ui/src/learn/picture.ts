// A page as a picture: its text, canvases and swatches at the places where the screen has them.
import { paint } from "../timeline/Canvas";

const kWidth = 1600;

interface Box { x: number; y: number; width: number; height: number }
type Item = Box & ({ kind: "canvas"; canvas: HTMLCanvasElement } | { kind: "swatch"; colour: string; opacity: number } |
  { kind: "text"; text: string; colour: string; size: string; weight: string; family: string; spacing: string });

function itemsOf(main: HTMLElement): { width: number; height: number; items: Item[] } {
  const outer = main.getBoundingClientRect(), items: Item[] = [];
  const boxOf = (at: DOMRect): Box => ({ x: at.left - outer.left, y: at.top - outer.top, width: at.width, height: at.height });
  for (const element of main.querySelectorAll<HTMLElement>("canvas, .leg i")) {
    const box = boxOf(element.getBoundingClientRect()), style = getComputedStyle(element);
    if (element instanceof HTMLCanvasElement) items.push({ kind: "canvas", canvas: element, ...box });
    else items.push({ kind: "swatch", colour: style.backgroundColor === "rgba(0, 0, 0, 0)" ? paint().line2 : style.backgroundColor, opacity: Number(style.opacity), ...box });
  }
  // Each word stands where the browser has put it.
  const walker = document.createTreeWalker(main, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const parent = node.parentElement!;
    if (parent.closest("nav, .cover")) continue;
    const style = getComputedStyle(parent), range = document.createRange();
    for (const match of node.textContent!.matchAll(/\S+/g)) {
      range.setStart(node, match.index);
      range.setEnd(node, match.index + match[0].length);
      const box = boxOf(range.getBoundingClientRect());
      if (box.width > 0) items.push({ kind: "text", text: match[0], colour: style.color, size: style.fontSize, weight: style.fontWeight, family: style.fontFamily,
                                      spacing: style.letterSpacing === "normal" ? "0px" : style.letterSpacing, ...box });
    }
  }
  return { width: outer.width, height: outer.height, items };
}

const kBaseline = 0.77;  // of the height of a line of text

export function pngOf(main: HTMLElement): Promise<Blob | null> {
  const { width, height, items } = itemsOf(main), scale = kWidth / width;
  const canvas = document.createElement("canvas"), g = canvas.getContext("2d")!;
  canvas.width = kWidth;
  canvas.height = Math.round(height * scale);
  g.fillStyle = paint().bg;
  g.fillRect(0, 0, canvas.width, canvas.height);
  g.scale(scale, scale);
  for (const item of items) {
    if (item.kind === "canvas") g.drawImage(item.canvas, item.x, item.y, item.width, item.height);
    else if (item.kind === "swatch") {
      g.globalAlpha = item.opacity;
      g.fillStyle = item.colour;
      g.fillRect(item.x, item.y, item.width, item.height);
      g.globalAlpha = 1;
    } else {
      g.font = `${item.weight} ${item.size} ${item.family}`;
      g.letterSpacing = item.spacing;
      g.fillStyle = item.colour;
      g.textBaseline = "alphabetic";
      g.fillText(item.text, item.x, item.y + item.height * kBaseline);
    }
  }
  return new Promise((done) => canvas.toBlob(done, "image/png"));
}

const escaped = (text: string): string => text.replace(/[&<>"]/g, (c) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[c]!);

// As SVG: text stays text; a canvas is an image in it.
export function svgOf(main: HTMLElement): string {
  const { width, height, items } = itemsOf(main);
  const parts = items.map((item) => {
    const at = `x="${item.x.toFixed(1)}" y="${item.y.toFixed(1)}" width="${item.width.toFixed(1)}" height="${item.height.toFixed(1)}"`;
    if (item.kind === "canvas") return `<image ${at} href="${item.canvas.toDataURL()}"/>`;
    if (item.kind === "swatch") return `<rect ${at} fill="${item.colour}" opacity="${item.opacity}"/>`;
    return `<text x="${item.x.toFixed(1)}" y="${(item.y + item.height * kBaseline).toFixed(1)}" textLength="${item.width.toFixed(1)}" fill="${item.colour}" ` +
      `font-size="${item.size}" font-weight="${item.weight}" font-family="${escaped(item.family)}">${escaped(item.text)}</text>`;
  });
  return `<svg xmlns="http://www.w3.org/2000/svg" width="${kWidth}" viewBox="0 0 ${width} ${height}"><rect width="100%" height="100%" fill="${paint().bg}"/>${parts.join("")}</svg>\n`;
}
