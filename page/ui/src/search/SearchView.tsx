export function SearchView() { return <main className="page" />; }
