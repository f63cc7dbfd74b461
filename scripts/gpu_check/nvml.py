"""Prints the FIELDS of clocks.py as nvidia-smi does, for machines without nvidia-smi. It uses NVML, which comes with
every driver."""
import ctypes
import datetime
import sys
import time

SM, MEMORY, GPU_CORE = 1, 2, 0  # nvmlClockType_t, nvmlTemperatureSensors_t


class Utilization(ctypes.Structure):
    _fields_ = [("gpu", ctypes.c_uint), ("memory", ctypes.c_uint)]


def main():
    nvml = ctypes.CDLL("libnvidia-ml.so.1")
    device = ctypes.c_void_p()
    for code in (nvml.nvmlInit_v2(), nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device))):
        if code:
            sys.exit(f"NVML: error {code}")
    # The function's name before drivers of 535.
    reasons_of = getattr(nvml, "nvmlDeviceGetCurrentClocksEventReasons", None) or nvml.nvmlDeviceGetCurrentClocksThrottleReasons

    def ask(call, *what, kind=ctypes.c_uint):
        value = kind()
        return None if call(device, *what, ctypes.byref(value)) else value

    def number(value):
        return "[N/A]" if value is None else value.value

    while True:
        power_mW, use = ask(nvml.nvmlDeviceGetPowerUsage), ask(nvml.nvmlDeviceGetUtilizationRates, kind=Utilization)
        reasons = ask(reasons_of, kind=ctypes.c_ulonglong)
        cells = [datetime.datetime.now().strftime("%Y/%m/%d %H:%M:%S.%f")[:-3], number(ask(nvml.nvmlDeviceGetClockInfo, SM)),
                 number(ask(nvml.nvmlDeviceGetClockInfo, MEMORY)), power_mW.value / 1e3 if power_mW else "[N/A]",
                 number(ask(nvml.nvmlDeviceGetTemperature, GPU_CORE)), use.gpu if use else "[N/A]",
                 f"0x{reasons.value:016x}" if reasons else "0x0"]
        print(*cells, sep=", ", flush=True)
        time.sleep(float(sys.argv[1]) * 1e-3)


main()
