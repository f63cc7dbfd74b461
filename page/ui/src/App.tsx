import { Header } from "./Header";
import { useStudioModel } from "./model";
import { StudioContext } from "./studio";
import { Learn } from "./learn/Learn";
import { StepView } from "./StepView";

export function App() {
  const studio = useStudioModel();
  const { view } = studio.address;
  return <StudioContext value={studio}>
    <Header />
    {view === "learn" ? <Learn /> : <StepView />}
  </StudioContext>;
}
