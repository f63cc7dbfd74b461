// All settings in a drawer, found by name, by other names and by the words of their meaning.
import Fuse from "fuse.js";
import { useMemo, useState } from "react";
import { Dialog, Input, Modal, ModalOverlay, SearchField } from "react-aria-components";
import type { Key, Lists, StepAnswer } from "./answers";
import { closedBy } from "./trials";
import { SettingControl } from "./SettingControl";
import { switchName } from "./names";
import { useStudio } from "./studio";
import { plain } from "./Switches";

// Returns a key with all words by which people find it.
export const foundBy = (key: Key) => ({ key, name: key.name.replace(/_/g, " "), id: key.name, title: key.section === "overlap" ? switchName(key.key) : "",
  flag: `--${key.name.replace(/_/g, "-")}`, meaning: plain(key.meaning) });
export const fuseOfKeys = (lists: Lists) => new Fuse(lists.keys.map(foundBy), { keys: [{ name: "id", weight: 3 }, { name: "name", weight: 3 }, { name: "title", weight: 3 },
  { name: "flag", weight: 2 }, { name: "meaning", weight: 1 }], threshold: 0.34, ignoreLocation: true, ignoreDiacritics: true });

export function Settings() {
  const { overlay, open, lists, answer, find } = useStudio();
  return <ModalOverlay className="shade" isOpen={overlay === "settings"} onOpenChange={(isOpen) => open(isOpen ? "settings" : null)} isDismissable>
    <Modal className="drawer"><Dialog aria-label="All settings" className="settings">
      {lists && answer ? <Found key={find} lists={lists} answer={answer} first={find} /> : <p className="q">The predictor starts …</p>}
    </Dialog></Modal>
  </ModalOverlay>;
}

function Found({ lists, answer, first }: { lists: Lists; answer: StepAnswer; first: string }) {
  const [text, setText] = useState(first);
  const [isChanged, setChanged] = useState(false);
  const { address, setting, go, open } = useStudio();
  const fuse = useMemo(() => fuseOfKeys(lists), [lists]);
  const set = address.state.set;
  const found = (text.trim() ? fuse.search(text.trim()).map(({ item }) => item.key) : lists.keys).filter((key) => !isChanged || key.key in set);
  return <>
    <div className="settings-top"><h2>All settings <span className="q num">{found.length} of {lists.keys.length}</span></h2>
      <button className="link" onClick={() => open(null)}>close</button></div>
    <SearchField aria-label="Find a setting" value={text} onChange={setText} autoFocus className="find"><Input placeholder="Name, flag or meaning" /></SearchField>
    <p className="acts"><label><input type="checkbox" checked={isChanged} onChange={(event) => setChanged(event.target.checked)} /> changed alone ({Object.keys(set).length})</label>
      <button className="link" id="reset" disabled={Object.keys(set).length === 0} onClick={() => go({ ...address.state, set: {}, profile: "", gpus: 0 })}>undo all changes</button></p>
    <div className="rows">{found.map((key) => {
      const closed = key.section === "overlap" ? closedBy(answer, key.key) : null;
      return <div className={key.key in set ? "setting set" : "setting"} key={key.key} data-key={key.key}>
        <div><b className="mono">{key.name}</b><span className="q"> {key.section}{key.unit ? `, ${key.unit}` : ""}</span>
          <p className="q meaning" id={`key-${key.key}-meaning`}>{plain(key.meaning)}{key.range && key.range.length < 120 ? `; ${plain(key.range)}` : ""}</p>
          {closed && <p className="why">needs {plain(closed.needs)}{closed.why && `: ${plain(closed.why)}`}</p>}</div>
        <div className="ctl"><SettingControl of={key} value={answer.values[key.key]} />
          {key.key in set && <button className="link" aria-label={`undo the change of ${key.name}`} onClick={() => setting(key.key, null)}>undo</button>}</div>
      </div>;
    })}</div>
  </>;
}
