#!/usr/bin/env python3
"""Measures the upper bounds of a GPU's speed with PyTorch and its libraries: a large bf16 GEMM of random numbers (and
of zeros, which take less power), a copy within its memory, the cost of the next kernel on a stream and in a graph, a
wait for another stream's event, and how long a small kernel of another stream waits for room while a GEMM runs. Prints
a line of JSON with all results so far as soon as a further result is known; times are medians. With --gemms MxNxK,… it
measures only these GEMMs, one by one. With --fp8-seconds it measures only products and casts of e4m3 codes, and a large
product for so long that the GPU is warm.
 With --attention it measures only causal attention,
forward and its gradient, by cuDNN and by FlashAttention 2, whose calls fill the GPU several times.

    scripts/torch_ceilings.py [--tiny] [--gemms 65536x3072x768,...] [--fp8-seconds 30] [--attention]
"""
import argparse
import json
import statistics
import time

import torch

CUDA = torch.cuda.is_available()
DEVICE = "cuda" if CUDA else "cpu"


def median_us(work, times=20, warm_up=5):
    """Returns the median time of single calls, which events time on a GPU."""
    for _ in range(warm_up):
        work()
    if not CUDA:
        found = []
        for _ in range(times):
            begin = time.perf_counter()
            work()
            found.append((time.perf_counter() - begin) * 1e6)
        return statistics.median(found)
    events = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(times)]
    for begin, end in events:
        begin.record()
        work()
        end.record()
    torch.cuda.synchronize()
    return statistics.median(begin.elapsed_time(end) * 1e3 for begin, end in events)


def matrix(rows, cols, make=torch.randn):
    return make(rows, cols, device=DEVICE, dtype=torch.bfloat16)


def gemm_us(m, n, k, make=torch.randn):
    a, b, out = matrix(m, k, make), matrix(n, k, make), torch.empty(m, n, device=DEVICE, dtype=torch.bfloat16)
    return median_us(lambda: torch.matmul(a, b.t(), out=out))


def fp8(size, seconds):
    """Yields the rate of a product of random codes with a scale for each tensor, its rate in the first second and in the
    last third of `seconds`, and the bandwidth of a cast that finds no scale of its own."""
    numbers, one = matrix(size, size), torch.ones((), device=DEVICE)
    a, b = numbers.to(torch.float8_e4m3fn), matrix(size, size).to(torch.float8_e4m3fn)
    codes = torch.empty_like(a)
    yield "cast_to_e4m3_GBps", 3e-3 * size**2 / median_us(lambda: codes.copy_(numbers))  # two bytes read, one written

    def product():
        if CUDA:
            torch._scaled_mm(a, b.t(), scale_a=one, scale_b=one, out_dtype=torch.bfloat16, use_fast_accum=True)
        else:
            torch.matmul(a.float(), b.float().t())

    yield "fp8_gemm_TFLOPs", 2e-6 * size**3 / median_us(product)
    rates, begin = [], time.perf_counter()
    while (now := time.perf_counter()) < begin + seconds:
        for _ in range(50 if CUDA else 1):
            product()
        if CUDA:
            torch.cuda.synchronize()
        rates.append((now - begin, (50 if CUDA else 1) * 2e-12 * size**3 / (time.perf_counter() - now)))
    yield "fp8_first_second_TFLOPs", statistics.median(rate for at, rate in rates if at < 1)
    yield "fp8_sustained_TFLOPs", statistics.median(rate for at, rate in rates if at > seconds * 2 / 3 or at == rates[-1][0])


# Sequence length; heads of queries, of keys and values; width of a head.
ATTENTIONS = [*((seq, 32, 32, width) for width in (128, 64) for seq in (512, 1024, 2048, 4096, 8192, 16384, 32768)),
              *((seq, 32, 4, 128) for seq in (4096, 8192)), (4096, 32, 32, 96)]


def attentions(tokens, shapes):
    """Yields the times of attention of `tokens` tokens, of one sequence at least, by each kernel that takes the shape."""
    from torch.nn.attention import SDPBackend, sdpa_kernel
    backends = {"cudnn": SDPBackend.CUDNN_ATTENTION, "flash2": SDPBackend.FLASH_ATTENTION} if CUDA else {"math": SDPBackend.MATH}
    for seq, heads, kv_heads, width in shapes:
        batch = max(1, tokens // seq)

        def tensor(of_heads):  # rows of a sequence lie as frameworks have them
            return torch.randn(batch, seq, of_heads, width, device=DEVICE, dtype=torch.bfloat16).transpose(1, 2).requires_grad_()

        q, k, v = tensor(heads), tensor(kv_heads), tensor(kv_heads)
        for name, backend in backends.items():
            row = {"kernel": name, "batch": batch, "seq": seq, "heads": heads, "kv_heads": kv_heads, "head_dim": width}
            try:
                with sdpa_kernel(backend):
                    def forward():
                        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=kv_heads < heads)

                    row["forward_us"] = median_us(forward, times=10, warm_up=3)
                    out = forward()
                    gradient = torch.randn_like(out)
                    row["dgrad_us"] = median_us(lambda: torch.autograd.grad(out, (q, k, v), gradient, retain_graph=True), times=10, warm_up=3)
            except RuntimeError as error:
                row["why"] = str(error).splitlines()[0][:100]
            yield row


def launches(count):
    """Returns the microseconds of one of many small kernels on a stream and in a graph, and the additional
    microseconds of one that waits for the other stream's event."""
    x = torch.zeros(16, device=DEVICE)

    def chain():
        for _ in range(count):
            x.add_(1)

    on_stream_us = median_us(chain, times=10) / count
    if not CUDA:
        return {"launch_us": on_stream_us, "graph_launch_us": on_stream_us, "event_us": 0.0}
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        chain()
    in_graph_us = median_us(graph.replay, times=10) / count
    streams = torch.cuda.Stream(), torch.cuda.Stream()
    y = torch.zeros(16, device=DEVICE)

    def in_turns():
        current = torch.cuda.current_stream()
        streams[0].wait_stream(current)
        for i in range(count):
            with torch.cuda.stream(streams[i % 2]):
                (x if i % 2 == 0 else y).add_(1)
                event = torch.cuda.Event()
                event.record()
            streams[(i + 1) % 2].wait_event(event)
        current.wait_stream(streams[0])
        current.wait_stream(streams[1])

    waiting = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(waiting):
        in_turns()
    waiting_us = median_us(waiting.replay, times=10) / count
    return {"launch_us": on_stream_us, "graph_launch_us": in_graph_us, "event_us": waiting_us - in_graph_us}


def room_beside_gemm(size):
    """Measures when a small kernel begins that is issued on another stream immediately after or before a GEMM that
    fills the GPU, as a share of the GEMM's time. A share near 0 means that the kernel found room at once; a share near
    1 means that it waited until all blocks of the GEMM had begun or ended. The measurement varies the other stream's
    priority, and uses streams and a graph. It shows whether the order of calls suffices for a kernel that
    communicates, or whether such a kernel needs launch-completion events."""
    if not CUDA:
        return {}
    a, b, out = matrix(size, size), matrix(size, size), torch.empty(size, size, device=DEVICE, dtype=torch.bfloat16)
    x = torch.zeros(1 << 16, device=DEVICE)
    gemm_us = median_us(lambda: torch.matmul(a, b, out=out))
    found = {}
    for priority, called in ((0, "normal"), (-1, "high")):
        first, second = torch.cuda.Stream(), torch.cuda.Stream(priority=priority)
        for before in (False, True):
            def both(begin, end):
                current = torch.cuda.current_stream()
                first.wait_stream(current)
                second.wait_stream(current)
                begin.record(first)

                def small():
                    with torch.cuda.stream(second):
                        x.add_(1)
                        end.record(second)

                if before:
                    small()
                with torch.cuda.stream(first):
                    torch.matmul(a, b, out=out)
                if not before:
                    small()
                current.wait_stream(first)
                current.wait_stream(second)

            def share(times_us):
                return round(statistics.median(times_us) / gemm_us, 3)

            def timed(once, begin, end):
                once()
                torch.cuda.synchronize()
                return begin.elapsed_time(end) * 1e3

            name = f"{'before' if before else 'after'} GEMM, {called} priority"
            events = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
            found[name] = share([timed(lambda: both(*events), *events) for _ in range(12)][2:])
            # Events of a graph have times when they are recorded as external ones.
            try:
                inside = [torch.cuda.Event(enable_timing=True, external=True) for _ in range(2)]
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph):
                    both(*inside)
                found[name + ", graph"] = share([timed(graph.replay, *inside) for _ in range(12)][2:])
            except (TypeError, RuntimeError) as error:  # PyTorch before 2.8
                found[name + ", graph"] = str(error).splitlines()[0][:100]
    return found


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tiny", action="store_true", help="sizes for a processor")
    parser.add_argument("--gemms", default="", help="MxNxK,…")
    parser.add_argument("--fp8-seconds", type=float, default=0)
    parser.add_argument("--attention", action="store_true")
    options = parser.parse_args()
    torch.manual_seed(1)

    def say():
        print(json.dumps({key: round(value, 3) if isinstance(value, float) else value for key, value in result.items()}), flush=True)

    result = {"torch": torch.__version__, "device": torch.cuda.get_device_name() if CUDA else "cpu"}
    if options.gemms:
        result["gemms"] = {}
        for shape in options.gemms.split(","):
            result["gemms"][shape] = gemm_us(*map(int, shape.split("x")))
            say()
        return
    size, elements = (128, 1 << 16) if options.tiny else (8192, 1 << 30)
    if options.attention:
        result["attention"] = []
        for row in attentions(*((64, [(32, 2, 2, 16)]) if options.tiny else (32768, ATTENTIONS))):
            result["attention"].append({key: round(value, 2) if isinstance(value, float) else value for key, value in row.items()})
        say()
        return
    if options.fp8_seconds:
        for name, value in fp8(size, options.fp8_seconds):
            result[name] = value
            say()
        return
    for name, make in (("gemm_TFLOPs", torch.randn), ("gemm_of_zeros_TFLOPs", torch.zeros)):
        result[name] = 2e-6 * size**3 / gemm_us(size, size, size, make)
        say()
    source = torch.randint(0, 256, (elements,), device=DEVICE, dtype=torch.uint8)
    target = torch.empty_like(source)
    result["copy_GBps"] = 2e-3 * elements / median_us(lambda: target.copy_(source))  # read and written
    say()
    result.update(launches(20 if options.tiny else 400))
    say()
    result["room_beside_gemm"] = room_beside_gemm(size)
    say()


if __name__ == "__main__":
    main()
