import { expect, test } from "vitest";
import { bytesOfText } from "./base85";

test("bytes come back as Python has written them", () => {
  const all = Uint8Array.from({ length: 256 }, (_, i) => i);
  expect(bytesOfText('009C61O)~M2nh-c3=Iws5D^j+6crX17#SKH9337XAR!_nBqb&%C@Cr{EG;fCFflSSG&MFiI5|2yJUu=?KtV!7L`6nNNJ&adOifNtP*GA-R8>}2SXo+ITwPvYU}0ioWMyV&XlZI|Y;A6DaB*^Tbai%jczJqze0_d@fPsR8goTEOh>41ejE#,ukdcy;l$Dm3n3,ZJoSmMZprN9pq@|{(sHv)}tgWuEu(7hUw6(UkxVgH!yuH4^z`?@9#Kp$P$jQpf%+1cv(9zP,)YaD4*xB0K+}+;a;Njxq,mKk)=;`X~?CtLF@bU8V^!4`l`1$(#{Qds_')).toEqual(all);
  expect(bytesOfText('{{')).toEqual(new Uint8Array(1).fill(255));
  expect(bytesOfText('|Nj')).toEqual(new Uint8Array(2).fill(255));
  expect(bytesOfText('|Ns9')).toEqual(new Uint8Array(3).fill(255));
  expect(bytesOfText('|NsC0')).toEqual(new Uint8Array(4).fill(255));
  expect(bytesOfText('|NsC0{{')).toEqual(new Uint8Array(5).fill(255));
  expect(bytesOfText("").length).toBe(0);
});
