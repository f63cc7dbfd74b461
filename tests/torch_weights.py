"""The loss of exported weights in PyTorch float64, by Hugging Face's conventions. Usage: torch_weights.py DUMP.json ...

Exits with 1 when one differs. torch_reference_test.cpp writes the dump and says what is in it; scripts/gpu-check adds the
norm of the gradient, and how far both may be off in another precision.
"""
import json
import struct
import sys

import numpy
import torch
import torch.nn.functional as F


def read(path):
    """Returns the tensors of a safetensors file of f32."""
    with open(path, "rb") as file:
        content = file.read()
    data = 8 + struct.unpack("<Q", content[:8])[0]
    result = {}
    for name, entry in json.loads(content[8:data]).items():
        if name != "__metadata__":
            begin, end = (data + offset for offset in entry["data_offsets"])
            values = numpy.frombuffer(content[begin:end], "<f4").astype("f8")
            result[name] = torch.from_numpy(values.reshape(entry["shape"])).requires_grad_()
    return result


def split_heads(q, k, v, heads, groups):
    """Returns q, k and v as [batch, head, position, element]; k and v are repeated for the heads of a group."""
    batch, seq, _ = q.shape
    q, k, v = (x.view(batch, seq, n, -1).transpose(1, 2) for x, n in ((q, heads), (k, groups), (v, groups)))
    return q, k.repeat_interleave(heads // groups, 1), v.repeat_interleave(heads // groups, 1)


def causal(q, k, v):
    seq, dim = q.shape[-2:]
    scores = q @ k.transpose(-1, -2) / dim**0.5 + torch.full((seq, seq), float("-inf")).triu(1)
    return (scores.softmax(-1) @ v).transpose(1, 2).flatten(2)


def gpt2(w, model, tokens):
    """Returns the logits of GPT2LMHeadModel: Conv1D is x @ weight + bias, c_attn holds q, k and v next to each other,
    and the head is the embedding."""
    heads = model["num_attention_heads"]

    def conv(x, name):
        return x @ w[name + ".weight"] + w[name + ".bias"]

    def norm(x, name):
        return F.layer_norm(x, x.shape[-1:], w[name + ".weight"], w[name + ".bias"], 1e-5)

    x = w["transformer.wte.weight"][tokens] + w["transformer.wpe.weight"][: tokens.shape[1]]
    for layer in range(model["num_layers"]):
        h = f"transformer.h.{layer}."
        qkv = conv(norm(x, h + "ln_1"), h + "attn.c_attn").chunk(3, -1)
        x = x + conv(causal(*split_heads(*qkv, heads, heads)), h + "attn.c_proj")
        x = x + conv(F.gelu(conv(norm(x, h + "ln_2"), h + "mlp.c_fc"), approximate="tanh"), h + "mlp.c_proj")
    return norm(x, "transformer.ln_f") @ w["transformer.wte.weight"].T


def llama(w, model, tokens):
    """Returns the logits of LlamaForCausalLM or, with norms of q and k, of Qwen3ForCausalLM: Linear is x @ weight.T,
    and rotate_half pairs element i with i + dim / 2."""
    heads, groups = model["num_attention_heads"], model["num_query_groups"]

    def linear(x, name):
        return F.linear(x, w[name + ".weight"])

    def norm(x, name):
        return w[name + ".weight"] * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5)

    def rotated(x):
        seq, dim = x.shape[-2:]
        frequencies = 1.0 / model["rotary_base"] ** (torch.arange(0, dim, 2) / dim)
        # LlamaRotaryEmbedding with rope_type "llama3" (modeling_rope_utils.py)
        factor, low, high, context = model["rope_scaling"]
        wavelengths = 2 * torch.pi / frequencies
        smooth = ((context / wavelengths - low) / (high - low)).clamp(0, 1)
        frequencies = (1 - smooth) * frequencies / factor + smooth * frequencies
        angles = torch.outer(torch.arange(seq) * 1.0, frequencies).repeat(1, 2)
        half = torch.cat((-x[..., dim // 2 :], x[..., : dim // 2]), -1)
        return x * angles.cos() + half * angles.sin()

    x = w["model.embed_tokens.weight"][tokens]
    for layer in range(model["num_layers"]):
        h = f"model.layers.{layer}."
        n = norm(x, h + "input_layernorm")
        q, k, v = split_heads(*(linear(n, f"{h}self_attn.{part}_proj") for part in "qkv"), heads, groups)
        if h + "self_attn.q_norm.weight" in w:  # Qwen3ForCausalLM's
            q, k = norm(q, h + "self_attn.q_norm"), norm(k, h + "self_attn.k_norm")
        x = x + linear(causal(rotated(q), rotated(k), v), h + "self_attn.o_proj")
        n = norm(x, h + "post_attention_layernorm")
        x = x + linear(F.silu(linear(n, h + "mlp.gate_proj")) * linear(n, h + "mlp.up_proj"), h + "mlp.down_proj")
    return linear(norm(x, "model.norm"), "lm_head")


def main():
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)  # of plain numbers too
    failed = False
    for path in sys.argv[1:]:
        with open(path) as file:
            dump = json.load(file)
        style = {"gpt2": gpt2, "llama": llama}[dump["style"]]
        weights = read(dump["file"])
        logits = style(weights, dump["model"], torch.tensor(dump["tokens"]))
        loss = F.cross_entropy(logits.flatten(0, 1), torch.tensor(dump["targets"]).flatten())
        loss.backward()
        norm = sum(weight.grad.square().sum() for weight in weights.values() if weight.grad is not None).sqrt()
        for what, value in (("loss", loss.item()), ("gradient_norm", norm.item())):
            if what not in dump:
                continue
            difference = abs(dump[what] - value) / value
            failed |= not difference <= dump.get("tolerance", 1e-12)
            print(f"{dump['style']}: {what} {dump[what]!r}, PyTorch {value!r}, differs by {difference:.1e}")
    return 1 if failed else 0


sys.exit(main())
