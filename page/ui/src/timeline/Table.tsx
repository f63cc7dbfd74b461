import { useMemo } from "react";
import { tableOf } from "./finding";
import type { Row } from "./strip";
import type { Span } from "./view";
import type { Window } from "./window";

// The lower half as a table, for those who do not see the canvas.
export function Table({ rows, window, span }: { rows: Row[]; window: Window | null; span: Span }) {
  const { headers, cells, more } = useMemo(() => tableOf(rows, window, span), [rows, window, span]);
  return <div className="tl-table" tabIndex={0} role="region" aria-label="Table of the timeline">
    <table className="num"><thead><tr>{headers.map((one) => <th key={one} scope="col">{one}</th>)}</tr></thead>
      <tbody>{cells.map((row, i) => <tr key={i}>{row.map((cell, j) => <td key={j}>{cell}</td>)}</tr>)}</tbody></table>
    {more > 0 && <p className="q">{more} more; zoom in to see them.</p>}
  </div>;
}
