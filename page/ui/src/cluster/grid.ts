// Places of cells: nodes in rows, the GPUs of a node close together. Sizes are CSS pixels.
export interface Grid { columns: number; perRow: number; rowsOfNode: number; nodeWidth: number; nodeHeight: number; cellWidth: number; cellHeight: number; gap: number; nodeGap: number; height: number }
const kNodeGap = 3, kTallest = 150, kTallestOfMany = 280, kMany = 1024, kRack = 16;

// `cells` cells, `aNode` of them for each node; 1: a cell is a node.
export function gridOf(cells: number, aNode: number, width: number): Grid {
  const nodes = Math.max(1, Math.ceil(cells / aNode));
  const tallest = cells > kMany ? kTallestOfMany : kTallest;
  const nodeGap = aNode > 1 ? kNodeGap : 1;
  let best: Grid | null = null, bestOff = Infinity;
  for (let columns = 1; columns <= Math.min(nodes, 128); ++columns)
    for (let perRow = 1; perRow <= aNode; ++perRow) {
      if (aNode % perRow !== 0) continue;
      if (aNode > kRack && (columns > 1 || perRow < aNode / 2)) continue;  // a large node is a row, as its rack is
      const rowsOfNode = aNode / perRow, rows = Math.ceil(nodes / columns), gap = aNode > 1 ? 1 : 0;
      const nodeWidth = (width - (columns - 1) * nodeGap) / columns, cellWidth = (nodeWidth - (perRow - 1) * gap) / perRow;
      if (cellWidth < 1.6) continue;
      const room = (tallest - (rows - 1) * (nodeGap + 1)) / rows, cellHeight = Math.min(14, (room - (rowsOfNode - 1) * gap) / rowsOfNode, cellWidth * 1.15);
      if (cellHeight < 1.4) continue;
      const uneven = nodes % columns === 0 ? 0 : 0.4;  // full rows are read more easily
      // A power of two of nodes in a row keeps groups in columns.
      const off = 0.6 * Math.abs(Math.log(cellWidth / cellHeight)) + uneven + (Number.isInteger(Math.log2(columns)) ? 0 : 0.5) + (perRow >= rowsOfNode ? 0 : 0.1) - 0.7 * Math.log(cellHeight * cellWidth);
      if (off >= bestOff) continue;
      bestOff = off;
      const nodeHeight = rowsOfNode * (cellHeight + gap) - gap;
      best = { columns, perRow, rowsOfNode, nodeWidth, nodeHeight, cellWidth, cellHeight, gap, nodeGap, height: rows * (nodeHeight + nodeGap + 1) - nodeGap - 1 };
    }
  if (best) return best;
  const columns = Math.max(1, Math.floor(width / 3)), rows = Math.ceil(cells / columns);
  return { columns, perRow: 1, rowsOfNode: 1, nodeWidth: width / columns, nodeHeight: 2, cellWidth: width / columns - 0.5, cellHeight: 2, gap: 0, nodeGap: 0, height: rows * 3 };
}

// Distances from one node to the next.
const pitch = (grid: Grid): [number, number] => [grid.nodeWidth + grid.nodeGap, grid.nodeHeight + grid.nodeGap + 1];

export function cellPlace(cell: number, aNode: number, grid: Grid): [number, number] {
  const node = Math.floor(cell / aNode), inside = cell % aNode, [across, down] = pitch(grid);
  return [(node % grid.columns) * across + (inside % grid.perRow) * (grid.cellWidth + grid.gap),
          Math.floor(node / grid.columns) * down + Math.floor(inside / grid.perRow) * (grid.cellHeight + grid.gap)];
}

export function cellAt(x: number, y: number, cells: number, aNode: number, grid: Grid): number | null {
  const [across, down] = pitch(grid), column = Math.floor(x / across), row = Math.floor(y / down);
  const inX = Math.min(grid.perRow - 1, Math.floor((x - column * across) / (grid.cellWidth + grid.gap)));
  const inY = Math.min(grid.rowsOfNode - 1, Math.floor((y - row * down) / (grid.cellHeight + grid.gap)));
  if (column < 0 || column >= grid.columns || row < 0 || inX < 0 || inY < 0) return null;
  const cell = (row * grid.columns + column) * aNode + inY * grid.perRow + inX;
  return cell < cells ? cell : null;
}
