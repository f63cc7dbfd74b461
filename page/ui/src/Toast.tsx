import { Dialog, Modal, ModalOverlay } from "react-aria-components";
import { useStudio } from "./studio";
import { kKeys } from "./useKeys";

export function ToastLine() {
  const { toast } = useStudio();
  return <div className="toast-place" role="status" aria-live="polite">{toast && <div className="toast" id="toast">{toast.text}
    {toast.undo && <button className="link" onClick={toast.undo}>Undo</button>}</div>}</div>;
}

export function Keys() {
  const { overlay, open } = useStudio();
  return <ModalOverlay className="shade top-shade" isOpen={overlay === "keys"} onOpenChange={(isOpen) => open(isOpen ? "keys" : null)} isDismissable>
    <Modal className="palette"><Dialog aria-label="Keyboard" className="about"><h2>Keyboard</h2>
      <dl>{kKeys.map(([key, what]) => <div key={key}><dt><kbd>{key}</kbd></dt><dd>{what}</dd></div>)}</dl></Dialog></Modal></ModalOverlay>;
}
