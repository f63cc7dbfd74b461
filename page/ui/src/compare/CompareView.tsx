export function CompareView() { return <main className="page" />; }
