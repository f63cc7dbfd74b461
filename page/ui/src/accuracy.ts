// How many published steps of a profile on a GPU predictions are held against (scenarios/accuracy.csv).
import type { Lists } from "./answers";

export const publishedSteps = (lists: Lists | null, profile: string, platform: string): number =>
  (lists?.accuracy ?? []).filter((row) => row.profile === profile && row.platform === platform).reduce((sum, row) => sum + row.steps, 0);
