// A predictor of its own for pictures: one step with its timeline stays in it, and no long question stands before a zoom.
import { Engine } from "../engine";

export const pictures = new Engine();
