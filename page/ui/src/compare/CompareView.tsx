// View Compare: up to five variants on one time axis, where the difference comes from, and which settings differ.
import { useStudio } from "../studio";
import { change, digits, gib, kGiB, scaled, time } from "../format";
import { precisionOf } from "../precision";
import { layoutLine } from "./layoutLine";
import { Causes } from "./Causes";
import { RiverRow, TimeAxis } from "./RiverRow";
import { differencesOf, useSavings, useVariants, type Variant } from "./variants";

export function CompareView() {
  const { address, answer, answered } = useStudio();
  const variants = useVariants(address.state, answer, answered, address.pins);
  const base = variants[0]!;
  const longest = Math.max(1, ...variants.map((one) => one.strip?.step_ps ?? 0)) * 1.02;
  if (address.pins.length === 0) return <main className="page"><div className="prose"><h1>Nothing is pinned yet</h1>
    <p>Pin a variant with <kbd>P</kbd> or with Shift-click on a lever, change something, and both stand here on one time axis: which is faster, by how much, and why.</p></div></main>;
  return <main className="page cmp">
    <div className="vrow head"><span>variant</span><span className="tl">one step, all on one time axis
      <span className="leg"><span><i style={{ background: "var(--fwd)" }} />forward</span><span><i style={{ background: "var(--bwd)" }} />backward</span>
        <span><i style={{ background: "var(--tp)" }} />waiting for TP</span><span><i className="hatch" />waiting, other</span></span></span>
      <span className="r">step</span><span className="r">exposed</span><span className="r">memory</span><span className="r">{address.tokens / 1e12} T tokens</span></div>
    {variants.map((one, i) => <Row key={i} one={one} base={base} index={i} longest={longest} />)}
    <div className="vrow axis"><span /><TimeAxis longest={longest} /></div>
    <div className="two">
      <Causes variants={variants} />
      <Differences variants={variants} />
    </div>
  </main>;
}

function Row({ one, base, index, longest }: { one: Variant; base: Variant; index: number; longest: number }) {
  const { address, change: put, go } = useStudio();
  const s = one.answer?.simulate, b = base.answer?.simulate;
  const pct = s && b ? 100 * (s.step_ms / b.step_ms - 1) : 0;
  const days = s ? address.tokens / s.tokens_per_s / 86400 : 0, cost = s ? days * 24 * s.ranks * address.price : 0;
  const { pins } = address;
  const at = index - 1;
  const rename = (label: string) => put({ pins: pins.map((pin, i) => (i === at ? { ...pin, label } : pin)) });
  return <div className="vrow" data-variant={one.letter}>
    <div className="nm"><span className={index ? "letter" : "letter on"}>{one.letter}</span>
      {index === 0 ? <b>{one.name}</b> : <input aria-label={`name of variant ${one.letter}`} defaultValue={one.name} key={one.name} onBlur={(event) => event.target.value && event.target.value !== one.name && rename(event.target.value)} />}
      <p className="q">{one.problem ?? (one.answer ? `${layoutLine(one.answer)}, ${precisionOf(one.answer).name}` : "computing …")}</p>
      {index > 0 && <p className="acts"><button className="link" onClick={() => go(one.state)}>go to it</button>
        <button className="link" onClick={() => put({ state: one.state, pins: [address.state, ...pins.filter((_, i) => i !== at)] })}>make it the base</button>
        <button className="link" aria-label={`unpin variant ${one.letter}`} onClick={() => put({ pins: pins.filter((_, i) => i !== at) })}>unpin</button></p>}</div>
    <div className="tl">{one.strip ? <RiverRow strip={one.strip} longest={longest} mark={index ? base.strip?.step_ps ?? 0 : 0} name={`${one.letter}, ${one.name}`} /> : <div className="bone" />}</div>
    <div className="r"><span className="big num">{s ? time(s.step_ms) : "…"}</span><p className={pct < -0.05 ? "num good" : pct > 0.05 ? "num bad" : "num q"}>{index && s ? change(pct) : "\u00a0"}</p></div>
    <div className="r"><span className="num mid">{s ? time(s.exposed_ms.total) : ""}</span><p className="num q">{s ? `${(100 * s.exposed_ms.total / s.step_ms).toFixed(1)} %` : ""}</p></div>
    <div className="r"><span className={s && s.memory_verdict !== "fits" ? "num mid bad" : "num mid"}>{s ? gib(s.predicted_peak_bytes) : ""}</span><p className="q">{s ? `of ${(s.device_bytes / kGiB).toFixed(1)} GiB` : ""}</p></div>
    <div className="r"><span className="num mid">{s ? `${digits(days)} days` : ""}</span><p className="num q">{s ? `$${scaled(cost).join(" ")}` : ""}</p></div>
  </div>;
}

function Differences({ variants }: { variants: Variant[] }) {
  const { lists } = useStudio();
  const savings = useSavings(variants.map((one) => one.state), variants.every((one) => one.strip !== null || one.problem !== null));
  const rows = differencesOf(variants.map((one) => one.answer));
  const name = (key: string) => (key.includes(".") ? key.slice(key.indexOf(".") + 1) : key);
  return <section className="blk" aria-label="what is different"><h2>What is different <span className="q">{rows.length} of {lists?.keys.length ?? ""} settings</span></h2>
    <div className="scroll"><table className="diff num"><thead><tr><th scope="col">setting</th>{variants.map((one) => <th key={one.letter} scope="col">{one.letter}</th>)}</tr></thead><tbody>
      {rows.slice(0, 14).map(([key, texts]) => <tr key={key}><th scope="row" className="mono">{name(key)}</th>{texts.map((text, i) => <td key={i} className={text !== texts[0] ? "x" : ""}>{text}</td>)}</tr>)}
      <tr className="sep"><th scope="row">MFU</th>{variants.map(({ answer, letter }) => <td key={letter}>{answer?.simulate.mfu ? `${(100 * answer.simulate.mfu).toFixed(1)} %` : "–"}</td>)}</tr>
      <tr><th scope="row">of peak, TFLOP/s</th>{variants.map(({ answer, letter }) => <td key={letter}>{answer ? Math.round(answer.simulate.peak_tflops_per_gpu).toLocaleString("en-US") : "–"}</td>)}</tr>
      <tr><th scope="row">time a token against A, 80 %</th>{savings.map((one, i) => <td key={i}>{one === null ? "–" : `${change(-one.saved_high_pct)} to ${change(-one.saved_low_pct)}`}</td>)}</tr>
    </tbody></table></div>
    {rows.length > 14 && <p className="q">and {rows.length - 14} more</p>}
    <p className="say">A shared link opens all of them.</p></section>;
}
