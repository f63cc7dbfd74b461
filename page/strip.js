// The pipeline strip: the compute lane of every stage, a bar for each pass of a micro-batch.

const kTrack = 22, kGap = 3, kName = 78;  // CSS pixels

const barName = (kinds, [kind, micro, chunk, start, end], step) =>
  `${kinds[kind].name}, micro-batch ${micro}, chunk ${chunk}: ` +
  `${((end - start) / 1e9).toPrecision(4)} ms, from ${((100 * start) / step).toFixed(1)} % of the step on`;

// Draws `strip`, an answer to "strip", into a canvas whose whole width is `longest` picoseconds.
function drawStrip(canvas, strip, kinds, longest) {
  const width = Math.max(canvas.parentElement.clientWidth, 280);
  const height = strip.tracks.length * (kTrack + kGap);
  const scale = window.devicePixelRatio || 1;
  canvas.style.height = `${height}px`;
  canvas.width = width * scale;
  canvas.height = height * scale;
  const style = getComputedStyle(document.documentElement);
  const colours = kinds.map((kind) => style.getPropertyValue(`--${kind.colour}`));
  const draw = canvas.getContext("2d");
  draw.scale(scale, scale);
  draw.font = "12px system-ui, sans-serif";
  draw.textBaseline = "middle";
  const x = (time) => kName + ((width - kName) * time) / longest;
  strip.tracks.forEach((track, row) => {
    const top = row * (kTrack + kGap);
    draw.fillStyle = style.getPropertyValue("--text");
    draw.fillText(track.role, 0, top + kTrack / 2, kName - 6);
    draw.fillStyle = style.getPropertyValue("--soft");
    draw.fillRect(x(0), top, x(strip.step_ps) - x(0), kTrack);
    for (const [kind, micro, chunk, start, end] of track.bars) {
      const left = x(start), wide = Math.max(x(end) - left, 0.5);
      draw.fillStyle = colours[kind];
      draw.globalAlpha = chunk % 2 ? 0.72 : 1;
      draw.fillRect(left, top, wide > 3 ? wide - 0.6 : wide, kTrack);
      draw.globalAlpha = 1;
      if (wide < 16 || kind > 2) continue;
      draw.fillStyle = "#fff";
      draw.fillText(String(micro), left + 3, top + kTrack / 2, wide - 4);
    }
  });
  canvas.onmousemove = (event) => {
    const track = strip.tracks[Math.floor(event.offsetY / (kTrack + kGap))];
    const time = ((event.offsetX - kName) / (width - kName)) * longest;
    const bar = track?.bars.find((one) => one[3] <= time && time < one[4]);
    canvas.title = bar ? `${track.role}: ${barName(kinds, bar, strip.step_ps)}` : track ? `${track.role}: waits` : "";
  };
  const passes = strip.tracks.reduce((sum, track) => sum + track.bars.length, 0);
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", `${strip.tracks.length} stages, ${passes} bars, on one time axis of ` +
    `${(longest / 1e9).toPrecision(5)} ms; this step ends at ${(strip.step_ps / 1e9).toPrecision(5)} ms`);
}
