"""Samples the GPU's clocks and power several times a second, concurrently with all measurements."""
import datetime
import pathlib
import shutil
import statistics
import subprocess
import sys
import threading

FIELDS = ("timestamp", "clocks.sm", "clocks.mem", "power.draw", "temperature.gpu", "utilization.gpu", "clocks_event_reasons.active")


class Clocks:
    """Samples of one run. `steps` maps a step to its beginning and end, in seconds since 1970; of_steps() reads it."""

    def __init__(self, path, start, every_ms=200):
        self.steps, self.samples = {}, []
        self.file = open(path, "a")
        smi = ["nvidia-smi", f"--query-gpu={','.join(FIELDS)}", "--format=csv,noheader,nounits", f"--loop-ms={every_ms}"]
        nvml = [sys.executable, "-B", pathlib.Path(__file__).with_name("nvml.py"), every_ms]
        self.process = start(smi if shutil.which("nvidia-smi") else nvml, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.file.write(",".join(FIELDS) + "\n")
        self.thread = threading.Thread(target=self._read, daemon=True)
        self.thread.start()

    def _read(self):
        for line in self.process.stdout:
            try:
                self.file.write(line.replace(", ", ","))
                self.file.flush()
            except OSError:  # a full disk: the digests are kept
                pass
            cells = [cell.strip() for cell in line.split(",")]
            try:
                at = datetime.datetime.strptime(cells[0], "%Y/%m/%d %H:%M:%S.%f").timestamp()
                self.samples.append((at, float(cells[1]), float(cells[3]), int(cells[6], 16)))
            except (ValueError, IndexError):  # "[N/A]", or an error message, which is in the file
                pass

    def of_steps(self):
        """Returns the clocks and power of the GPU in each step. `reasons` has the bits that were set in at least half
        of the samples (NVML's nvmlClocksEventReasons: 4 power cap, 0x20 software thermal, 0x40 hardware thermal)."""
        digests = {}
        for name, (begin, end) in self.steps.items():
            inside = [s for s in self.samples if begin <= s[0] <= end]
            if not inside:
                continue
            bits = [bit for bit in range(16) if 2 * sum(s[3] >> bit & 1 for s in inside) >= len(inside)]
            digests[name] = {"samples": len(inside), "sm_MHz": statistics.median(s[1] for s in inside), "most_MHz": max(s[1] for s in inside),
                             "mean_W": round(statistics.fmean(s[2] for s in inside), 1), "most_W": max(s[2] for s in inside),
                             "reasons": hex(sum(1 << bit for bit in bits))}
        return digests

    def stop(self):
        self.process.kill()
        self.thread.join(2)
        try:
            self.file.close()
        except OSError:
            pass
