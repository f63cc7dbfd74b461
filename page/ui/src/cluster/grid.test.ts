import { expect, it } from "vitest";
import { cellAt, cellPlace, gridOf } from "./grid";

it("finds each cell where it is drawn", () => {
  for (const [cells, aNode, width] of [[8, 8, 236], [64, 8, 236], [512, 8, 236], [1024, 8, 236], [4096, 8, 236], [144, 72, 236], [12, 8, 350], [2048, 1, 236]]) {
    const grid = gridOf(cells, aNode, width);
    expect(grid.height).toBeLessThan(400);
    for (let cell = 0; cell < cells; cell += 1 + Math.floor(cells / 50)) {
      const [x, y] = cellPlace(cell, aNode, grid);
      expect(x + grid.cellWidth).toBeLessThanOrEqual(width + 0.01);
      expect(cellAt(x + grid.cellWidth / 2, y + grid.cellHeight / 2, cells, aNode, grid)).toBe(cell);
    }
  }
});
