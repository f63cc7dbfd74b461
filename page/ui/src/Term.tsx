// A word of the field with its meaning in two sentences, and its number here.
import type { ReactNode } from "react";
import { Button, Dialog, DialogTrigger, Popover } from "react-aria-components";
import { terms } from "../../../scenarios/words.json";

const meaningOf = (id: string) => (terms.find((one) => one.id === id) ?? terms.find((one) => one.id === "exposed")!).meaning;

export function Term({ id, name, here, children }: { id: string; name: string; here?: string; children: ReactNode }) {
  return <DialogTrigger><Button className="term" aria-label={`${name}: what it means`}>{children}</Button>
    <Popover className="pop" placement="bottom start"><Dialog className="about" aria-label={name}><h2>{name}</h2><p>{meaningOf(id)}</p>
      {here && <dl><div><dt>here</dt><dd className="num">{here}</dd></div></dl>}</Dialog></Popover></DialogTrigger>;
}
