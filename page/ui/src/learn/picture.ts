// A page as a picture of 1600 × 900: its text and canvases at the places where the screen has them.
import { paint } from "../timeline/Canvas";

const kWidth = 1600;

export function pictureOf(main: HTMLElement, done: (blob: Blob) => void) {
  const box = main.getBoundingClientRect(), scale = kWidth / box.width;
  const canvas = document.createElement("canvas");
  canvas.width = kWidth;
  canvas.height = Math.round(box.height * scale);
  const g = canvas.getContext("2d")!;
  g.fillStyle = paint().bg;
  g.fillRect(0, 0, canvas.width, canvas.height);
  g.scale(scale, scale);
  const x = (left: number) => left - box.left, y = (top: number) => top - box.top;
  for (const picture of main.querySelectorAll<HTMLElement>("canvas, .leg i")) {
    const at = picture.getBoundingClientRect();
    if (picture instanceof HTMLCanvasElement) g.drawImage(picture, x(at.left), y(at.top), at.width, at.height);
    else {
      const style = getComputedStyle(picture);
      g.globalAlpha = Number(style.opacity);
      g.fillStyle = style.backgroundColor === "rgba(0, 0, 0, 0)" ? paint().line2 : style.backgroundColor;
      g.fillRect(x(at.left), y(at.top), at.width, at.height);
      g.globalAlpha = 1;
    }
  }
  // Each word stands where the browser has put it.
  const walker = document.createTreeWalker(main, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const parent = node.parentElement!;
    if (parent.closest("nav, .cover")) continue;
    const style = getComputedStyle(parent), range = document.createRange();
    g.font = `${style.fontWeight} ${style.fontSize} ${style.fontFamily}`;
    g.letterSpacing = style.letterSpacing === "normal" ? "0px" : style.letterSpacing;
    g.fillStyle = style.color;
    g.textBaseline = "alphabetic";
    for (const match of node.textContent!.matchAll(/\S+/g)) {
      range.setStart(node, match.index);
      range.setEnd(node, match.index + match[0].length);
      const at = range.getBoundingClientRect();
      if (at.width > 0) g.fillText(match[0], x(at.left), y(at.top) + at.height * 0.77);
    }
  }
  canvas.toBlob((blob) => { if (blob) done(blob); }, "image/png");
}
