import { useStudio } from "../studio";

export function Learn() {
  const { address } = useStudio();
  return <main className="learn"><h1>Learn {address.page}</h1></main>;
}
