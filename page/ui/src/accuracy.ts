// How far predictions were off in published runs of the same software on the same GPU: `stretto validate` of this commit.
import { groups } from "../../../docs/measured/validate.json";
import { softwareOf } from "./names";

export interface Accuracy { group: string; rows: number; offPct: number; biasPct: number }

// Returns null where no published run is known.
export function accuracyOf(profile: string, platform: string): Accuracy | null {
  const software = softwareOf(profile);
  const found = software && groups.find((one) => one.group === `${software}, ${platform}`);
  return found ? { group: found.group, rows: found.rows, offPct: found.shipped.mean_abs_error_pct, biasPct: found.shipped.bias_pct } : null;
}
