import { useSyncExternalStore } from "react";

const query = matchMedia("(max-width: 760px)");
const subscribe = (act: () => void) => {
  query.addEventListener("change", act);
  return () => query.removeEventListener("change", act);
};
// Returns whether the screen is a phone's.
export const useIsSmall = () => useSyncExternalStore(subscribe, () => query.matches);
