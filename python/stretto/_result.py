"""Results: the JSON of docs/json.md as dicts, whose keys are attributes too, with their tables and plots."""


def _flat(row, begin=""):
    """Returns a row of a table as name and value; what is inside another dict has a name with a dot."""
    for key, value in row.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{begin}{key}.")
        else:
            yield begin + key, value


class Result(dict):
    """A dict whose keys are attributes: step.step_ms is step["step_ms"]. A name that dict has itself, such as `keys`, is
    read by its key."""

    def __getattr__(self, name):
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"expected one of {', '.join(self)}, got {name}") from None

    def table(self, name):
        """Returns a list of rows as columns, {"mode": ["plain", ...], "exposed_ms": [...]}, which pandas.DataFrame() and
        csv take. `name` is the list's key; a value inside a row has a name with a dot, and one that a row lacks is None."""
        rows = self.get(name)
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            tables = [key for key, value in self.items() if isinstance(value, list) and value and isinstance(value[0], dict)]
            raise KeyError(f"table: expected one of {', '.join(tables) or 'no table'}, got {name}")
        flat = [dict(_flat(row)) for row in rows]
        return {column: [row.get(column) for row in flat] for column in dict.fromkeys(key for row in flat for key in row)}

    def _drawn(self):
        """Returns what plot() draws: its kind, names or places, values, and the title of their axis."""
        if "groups" in self and "rows" in self:
            rows = self["rows"]
            return "points", [row["measured_s"] for row in rows], [row["predicted_shipped_s"] for row in rows], ("measured s", "predicted s")
        if "causes" in self and "gap_ms" in self:
            return "bars", [one["cause"] for one in self["causes"]], [one["gap_ms"] for one in self["causes"]], "ms of the gap"
        if "points" in self:
            best = sorted((one for one in self["points"] if one["tokens_per_s_per_gpu"]), key=lambda one: -one["tokens_per_s_per_gpu"])[:10]
            names = [", ".join(text.split(".")[-1] for text in one["set"] if not text.endswith("=1")) for one in best]
            return "bars", names, [one["tokens_per_s_per_gpu"] for one in best], "tokens/s of a GPU"
        if "steps" in self and self["steps"] and "loss" in self["steps"][0]:
            return "line", [one["step"] for one in self["steps"]], [one["loss"] for one in self["steps"]], ("step", "loss")
        if self.get("modes"):
            return "bars", [one["mode"] for one in self["modes"]], [one["step_ms"] for one in self["modes"]], "ms of a step"
        if self.get("rows") and "measured_ms" in self["rows"][0]:
            return "bars", [f"{one['mode']} at {one['ranks']}" for one in self["rows"]], [one["measured_ms"] for one in self["rows"]], "measured ms of a step"
        if "exposed_ms" in self:
            parts = {"computing": self["compute_ms"], "bubble": self["bubble_ms"]}
            parts |= {f"exposed {axis}": ms for axis, ms in self["exposed_ms"].items() if axis != "total"}
            parts = {name: ms for name, ms in parts.items() if ms}
            return "bars", list(parts), list(parts.values()), "ms of a step"
        raise ValueError("plot: expected a step, modes, points, losses, causes or published rows")

    def plot(self, ax=None):
        """Draws the result with matplotlib and returns the axes: of a step where its time goes, or its modes; of `plan` the
        best layouts; of `train` the loss; of `diagnose` the causes; of `validate` measured and predicted steps."""
        kind, names, values, title = self._drawn()
        if ax is None:
            from matplotlib import pyplot
            _, ax = pyplot.subplots()
        if kind == "bars":
            ax.barh(range(len(names)), values)
            ax.set_yticks(range(len(names)), names)
            ax.invert_yaxis()
            ax.set_xlabel(title)
        elif kind == "points":
            ax.loglog(names, values, "o")
            most = [min(names + values), max(names + values)]
            ax.loglog(most, most)
            ax.set_xlabel(title[0])
            ax.set_ylabel(title[1])
        else:
            ax.plot(names, values)
            ax.set_xlabel(title[0])
            ax.set_ylabel(title[1])
        return ax
