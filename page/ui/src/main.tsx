import { createRoot } from "react-dom/client";
import { App } from "./App";
import "./tokens.css";
import "./studio.css";
import "./controls.css";
import "./views.css";
import "./search/search.css";
import "./trace/trace.css";
import "./small.css";

createRoot(document.getElementById("root")!).render(<App />);
