// A search in workers of its own: each takes a share of the layouts; Stop keeps what is there.
import { useEffect, useRef, useState } from "react";
import { ask } from "../ask";
import { Engine } from "../engine";
import type { State } from "../state";
import { type Axis, type Found, kNothing, type Part, type Point, together } from "./points";

const kMostWorkers = 4, kEveryMs = 200;

export function useSearch() {
  const [found, setFound] = useState<Found>(kNothing);
  const [isRunning, setRunning] = useState(false);
  const [problem, setProblem] = useState<string | null>(null);
  const [seconds, setSeconds] = useState(0);
  const engines = useRef<Engine[]>([]);
  const run = useRef(0);

  const end = () => {
    ++run.current;
    for (const engine of engines.current) engine.stop("the search was stopped");
    engines.current = [];
    setRunning(false);
  };

  const start = async (state: State, over: string[] | null) => {
    end();
    const mine = run.current, begin = performance.now();
    const count = Math.max(1, Math.min(kMostWorkers, (navigator.hardwareConcurrency || 2) - 1));
    const parts: Part[] = [], points: Point[] = [];
    let axes: Axis[] = [], shownAt = 0;
    setFound(kNothing);
    setProblem(null);
    setRunning(true);
    const show = (isLast = false) => {
      if (run.current !== mine || (!isLast && performance.now() - shownAt < kEveryMs)) return;
      shownAt = performance.now();
      setFound(together(parts.filter(Boolean), [...points], axes));
      setSeconds((performance.now() - begin) / 1000);
    };
    const take = (shard: number, part: Part) => {
      points.push(...part.points);
      if (part.axes) axes = part.axes;
      parts[shard] = { ...part, points: [] };
    };
    engines.current = Array.from({ length: count }, () => new Engine());
    await Promise.all(engines.current.map(async (engine, shard) => {
      engine.onPart = (text) => { take(shard, JSON.parse(text)); show(); };
      const answer = await ask<Part>(engine, "search", state, { gpus: state.gpus, ...(over ? { over } : {}), shard, shards: count });
      if (run.current !== mine) return;
      if ("error" in answer) setProblem((answer as { error: string }).error);
      else take(shard, answer as Part);
      show(true);
      engine.stop("it has ended");
    }));
    if (run.current === mine) setRunning(false);
  };

  useEffect(() => end, []);
  return { found, isRunning, problem, seconds, start, stop: end };
}
