#!/usr/bin/env python3
"""Measures the same training step in PyTorch on the same GPU: GPT-2 124M (or --size 1558m) as PyTorch users write it,
with torch.compile, scaled_dot_product_attention, bf16 autocast over f32 parameters, a residual stream in bf16 (as in
stretto, and faster than autocast's own f32) and fused AdamW, on random tokens. Prints JSON: the median and spread of a
step, after warming up. scripts/gpu-check compares stretto with it.

    scripts/torch_gpt2.py [--size 124m|1558m] [--micro-batch 64] [--steps 8] [--dropout 0] [--eager] [--cudnn-attention]
"""
import argparse
import contextlib
import json
import math
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

SIZES = {"124m": (12, 12, 768), "350m": (24, 16, 1024), "774m": (36, 20, 1280), "1558m": (48, 25, 1600), "tiny": (2, 2, 32)}
SEQUENCE, VOCABULARY, PADDED = 1024, 50257, 50304


class Norm(nn.LayerNorm):
    """A norm that computes in f32, as autocast does on a GPU."""

    def forward(self, x):
        return super().forward(x.float())


class Block(nn.Module):
    def __init__(self, width, heads, layers, dropout):
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.ln_1, self.ln_2 = Norm(width), Norm(width)
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.fc1, self.fc2 = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        for linear in (self.qkv, self.fc1):
            nn.init.normal_(linear.weight, std=0.02)
        for linear in (self.proj, self.fc2):
            nn.init.normal_(linear.weight, std=0.02 / math.sqrt(2 * layers))
        for linear in (self.qkv, self.proj, self.fc1, self.fc2):
            nn.init.zeros_(linear.bias)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = (part.view(batch, length, self.heads, -1).transpose(1, 2) for part in self.qkv(self.ln_1(x)).chunk(3, dim=-1))
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=self.dropout if self.training else 0.0)
        x = x + F.dropout(self.proj(a.transpose(1, 2).reshape(batch, length, width)), self.dropout, self.training)
        return x + F.dropout(self.fc2(F.gelu(self.fc1(self.ln_2(x)), approximate="tanh")), self.dropout, self.training)


class Gpt(nn.Module):
    def __init__(self, layers, heads, width, dropout):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(PADDED, width), nn.Embedding(SEQUENCE, width)
        for table in (self.wte, self.wpe):
            nn.init.normal_(table.weight, std=0.02)
        self.blocks = nn.ModuleList(Block(width, heads, layers, dropout) for _ in range(layers))
        self.ln_f = Norm(width)

    def forward(self, tokens, targets):
        x = (self.wte(tokens) + self.wpe.weight[: tokens.shape[1]]).to(torch.bfloat16)
        for block in self.blocks:
            x = block(x)
        logits = self.ln_f(x) @ self.wte.weight.t()
        return F.cross_entropy(logits.view(-1, PADDED).float(), targets.view(-1))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", choices=SIZES, default="124m")
    parser.add_argument("--micro-batch", type=int, default=64)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--dropout", type=float, default=0.0)
    parser.add_argument("--eager", action="store_true", help="without torch.compile")
    parser.add_argument("--cudnn-attention", action="store_true", help="cuDNN's attention, not the one that PyTorch chooses")
    parser.add_argument("--trace", help="file for the profiler's trace of two further steps; .gz is compressed")
    options = parser.parse_args()
    torch.manual_seed(1)
    torch.set_float32_matmul_precision("high")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = Gpt(*SIZES[options.size], options.dropout).to(device)
    decayed = [p for p in model.parameters() if p.dim() > 1]
    rest = [p for p in model.parameters() if p.dim() <= 1]
    fused = {"fused": True} if device == "cuda" else {}
    optimizer = torch.optim.AdamW([{"params": decayed, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}], lr=6e-4,
                                  betas=(0.9, 0.95), **fused)
    forward = model if options.eager else torch.compile(model)
    tokens = torch.randint(0, VOCABULARY, (options.micro_batch, SEQUENCE + 1), device=device)

    def attention():
        if not options.cudnn_attention:
            return contextlib.nullcontext()
        from torch.nn.attention import SDPBackend, sdpa_kernel
        return sdpa_kernel(SDPBackend.CUDNN_ATTENTION)

    def step():
        with torch.autocast(device, dtype=torch.bfloat16), attention():
            loss = forward(tokens[:, :-1], tokens[:, 1:].contiguous())
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss, norm

    def timed():
        if device == "cuda":
            torch.cuda.synchronize()
        begin = time.perf_counter()
        loss, _ = step()
        if device == "cuda":
            torch.cuda.synchronize()
        return (time.perf_counter() - begin) * 1e3, loss.item()

    for _ in range(3):
        timed()
    times_ms = [timed()[0] for _ in range(options.steps)]
    if options.trace:
        from torch.profiler import ProfilerActivity, profile
        with profile(activities=[ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if device == "cuda" else [])]) as profiler:
            for i in range(2):
                with torch.profiler.record_function(f"ProfilerStep#{i}"):
                    timed()
        profiler.export_chrome_trace(options.trace)
    median = statistics.median(times_ms)
    print(json.dumps({"size": options.size, "micro_batch": options.micro_batch, "compiled": not options.eager, "cudnn_attention": options.cudnn_attention,
                      "step_ms": median,
                      "least_ms": min(times_ms), "most_ms": max(times_ms),
                      "tokens_per_s": options.micro_batch * SEQUENCE / median * 1e3, "torch": torch.__version__,
                      "device": torch.cuda.get_device_name() if device == "cuda" else "cpu",
                      "memory_bytes": torch.cuda.max_memory_allocated() if device == "cuda" else 0}))


if __name__ == "__main__":
    main()
