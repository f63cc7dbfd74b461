"""Trains what dumps of Stretto trained, in PyTorch float64, and compares. Usage: torch_reference.py DUMP.json ...

Exits with 1 and a line for every number that differs. torch_reference_test.cpp writes the dump and says what is in it.
"""
import json
import sys

import numpy
import torch
import torch.nn.functional as F


def philox(counter, key):
    """Philox4x32-10 (Salmon et al., SC'11): four arrays of counter words and two key words to four arrays of bits."""
    low = numpy.uint64(0xFFFFFFFF)
    c, k = [numpy.asarray(word, numpy.uint64) for word in counter], [numpy.uint64(word) for word in key]
    for _ in range(10):
        first, second = c[0] * numpy.uint64(0xD2511F53), c[2] * numpy.uint64(0xCD9E8D57)
        shift = numpy.uint64(32)
        c = [(second >> shift) ^ c[1] ^ k[0], second & low, (first >> shift) ^ c[3] ^ k[1], first & low]
        k = [(k[0] + numpy.uint64(0x9E3779B9)) & low, (k[1] + numpy.uint64(0xBB67AE85)) & low]
    return c


def dropout(x, probability, key, site):
    """x is [samples, rows, columns], all samples of a global batch; see Dropout in model/ops/dropout.hpp."""
    if probability == 0:
        return x
    samples, rows, columns = x.shape
    groups = (columns + 3) // 4
    sample, row, group = numpy.meshgrid(
        numpy.arange(samples), numpy.arange(rows), numpy.arange(groups), indexing="ij"
    )
    bits = numpy.stack(philox((group, row, sample, numpy.full_like(group, site)), key), -1)
    kept = bits.reshape(samples, rows, 4 * groups)[..., :columns] >= probability * 2**32
    return x * torch.from_numpy(kept) / (1 - probability)


def rms_norm(x, weight):
    return x / (x.pow(2).mean(-1, keepdim=True) + 1e-5).sqrt() * weight


def frequencies_of(model, half):
    """Returns the frequencies of rotary positions, scaled as in Hugging Face's _compute_llama3_parameters."""
    frequencies = model["rotary_base"] ** (-torch.arange(half) / half)
    factor, low, high, context = model["rope_scaling"]
    wavelengths = 2 * torch.pi / frequencies
    smooth = ((context / wavelengths - low) / (high - low)).clamp(0, 1)
    return (1 - smooth) * frequencies / factor + smooth * frequencies


def rotate(x, model):
    """Applies rotary positions as Llama in Hugging Face does: x is [batch, heads, seq, dim], and halves are
    rotated."""
    seq, half = x.shape[-2], x.shape[-1] // 2
    angles = torch.outer(torch.arange(seq) * 1.0, frequencies_of(model, half))
    cos, sin = angles.cos().repeat(1, 2), angles.sin().repeat(1, 2)
    return x * cos + torch.cat((-x[..., half:], x[..., :half]), -1) * sin


def route(logits, model):
    """Probabilities of all experts, 0 where a token does not go: softmax or sigmoid, of groups, as `model` says."""
    count, topk, groups = model["num_moe_experts"], model["moe_router_topk"], model["moe_router_num_groups"]
    is_sigmoid = model["moe_router_score_function"] == "sigmoid"
    scores = logits.sigmoid() if is_sigmoid else logits.softmax(-1) if model["moe_router_pre_softmax"] else logits
    allowed = scores
    if groups > 0:
        each = topk // model["moe_router_group_topk"]
        of_group = scores.view(*scores.shape[:-1], groups, -1).topk(each, -1).values.sum(-1)
        best = of_group.topk(model["moe_router_group_topk"], -1).indices
        is_best = torch.zeros_like(of_group, dtype=torch.bool).scatter(-1, best, True)
        allowed = scores.masked_fill(~is_best.repeat_interleave(count // groups, -1), float("-inf"))
    chosen = allowed.topk(topk, -1).indices
    weights = scores.gather(-1, chosen)
    if is_sigmoid:
        weights = weights / (weights.sum(-1, keepdim=True) + 1e-20) if topk > 1 else weights
    elif not model["moe_router_pre_softmax"]:
        weights = weights.softmax(-1)
    return torch.zeros_like(scores).scatter(-1, chosen, weights * model["moe_router_topk_scaling_factor"])


def router_losses(logits, model):
    """seq_aux_loss and z-loss of Megatron-LM: means over sequences and over tokens."""
    count, topk, seq = model["num_moe_experts"], model["moe_router_topk"], logits.shape[1]
    is_sigmoid = model["moe_router_score_function"] == "sigmoid"
    shares = logits.sigmoid() / logits.sigmoid().sum(-1, keepdim=True) if is_sigmoid else logits.softmax(-1)
    loads = torch.zeros_like(shares).scatter(-1, shares.topk(topk, -1).indices, 1.0).sum(1)
    balance = (shares.sum(1) * loads.detach()).sum(-1).mean() * count / (topk * seq**2)
    return model["moe_aux_loss_coeff"] * balance + model["moe_z_loss_coeff"] * logits.logsumexp(-1).pow(2).mean()


def experts(x, p, h, model, mlp):
    """The layer's result, and its losses of the router."""
    count = model["num_moe_experts"]
    logits = x @ p[h + "router.weight"].T
    weights = route(logits, model)
    fc1, fc2 = (p[f"{h}experts.{name}.weight"].chunk(count) for name in ("fc1", "fc2"))
    y = sum(weights[..., i, None] * (mlp(x @ fc1[i].T) @ fc2[i].T) for i in range(count))
    if h + "shared.fc1.weight" in p:
        shared = mlp(x @ p[h + "shared.fc1.weight"].T) @ p[h + "shared.fc2.weight"].T
        if h + "shared.gate.weight" in p:
            shared = shared * (x @ p[h + "shared.gate.weight"].view(1, -1).T).sigmoid()
        y = y + shared
    return y, router_losses(logits, model)


def forward(p, model, tokens, targets, keys):
    """Returns the mean loss of a model with pre-norm blocks: GPT-2, Llama or a mixture, as `model` and the parameters
    determine; and what is added to it for the gradient. `keys` has one dropout key for each layer.
    """
    losses = 0.0
    heads, groups = model["num_attention_heads"], model["num_query_groups"]
    dim, rope = model["kv_channels"], model["position_embedding_type"] == "rope"
    batch, seq = tokens.shape
    mask = torch.full((seq, seq), float("-inf")).triu(1)

    def norm(x, name):
        if model["normalization"] == "RMSNorm":
            return rms_norm(x, p[name + ".weight"])
        return F.layer_norm(x, x.shape[-1:], p[name + ".weight"], p[name + ".bias"], 1e-5)

    def linear(x, name):
        return x @ p[name + ".weight"].T + p.get(name + ".bias", 0.0)

    def mlp(x):
        if not model["swiglu"]:
            return F.gelu(x, approximate="tanh")
        gate, up = x.chunk(2, -1)
        return gate * gate.sigmoid() * up

    x = p["wte.weight"][tokens]
    if not rope:
        x = x + p["wpe.weight"][:seq]
    hidden_dropout, attention_dropout = model["hidden_dropout"], model["attention_dropout"]
    x = dropout(x, hidden_dropout, keys[0], 1)
    for layer in range(model["num_layers"]):
        h, key = f"h.{layer}.", keys[layer]
        q, k, v = (
            part.view(batch, seq, -1, dim).transpose(1, 2)
            for part in linear(norm(x, h + "ln_1"), h + "qkv").split([heads * dim, groups * dim, groups * dim], dim=-1)
        )
        if model["qk_layernorm"]:
            q, k = norm(q, h + "q_norm"), norm(k, h + "k_norm")
        if rope:
            q, k = rotate(q, model), rotate(k, model)
        k, v = (part.repeat_interleave(heads // groups, dim=1) for part in (k, v))
        scores = q @ k.transpose(-1, -2) / dim**0.5 + mask
        weights = dropout(scores.softmax(-1).reshape(batch, heads * seq, seq), attention_dropout, key, 0)
        attended = (weights.view(scores.shape) @ v).transpose(1, 2).reshape(batch, seq, heads * dim)
        x = x + dropout(linear(attended, h + "proj"), hidden_dropout, key, 2)
        if h + "router.weight" in p:
            y, more = experts(norm(x, h + "ln_2"), p, h, model["experts"], mlp)
            losses = losses + more
        else:
            y = linear(mlp(linear(norm(x, h + "ln_2"), h + "fc1")), h + "fc2")
        x = x + dropout(y, hidden_dropout, key, 3)
    logits = norm(x, "ln_f") @ p.get("lm_head.weight", p["wte.weight"]).T
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten()), losses


def tensors(dump):
    """Returns the dump's tensors. Vectors are stored as one row."""
    result = {}
    for tensor in dump:
        values = torch.tensor(tensor["values"])
        result[tensor["name"]] = values if tensor["shape"][0] == 1 else values.view(*tensor["shape"])
    return result


def check(dump):
    """Prints each difference. Returns whether there is any."""
    training = dump["training"]
    parameters = {name: t.requires_grad_() for name, t in tensors(dump["initial"]).items()}
    # A shared expert's gate is a matrix of one row.
    decayed = [p for name, p in parameters.items() if p.dim() == 2 or name.endswith("shared.gate.weight")]
    optimizer = torch.optim.AdamW(
        [
            {"params": decayed, "weight_decay": training["weight_decay"]},
            {"params": [p for p in parameters.values() if id(p) not in map(id, decayed)], "weight_decay": 0.0},
        ],
        lr=0.0,  # set before every step
        betas=(training["adam_beta1"], training["adam_beta2"]),
        eps=training["adam_eps"],
    )
    failures, worst = [], {"loss": 0.0, "norm": 0.0, "gradient": 0.0, "parameter": 0.0}

    def compare(what, name, got, expected, tolerance):
        got, expected = torch.as_tensor(got), torch.as_tensor(expected)
        if got.shape != expected.shape:
            failures.append(f"{what} {name}: shape {list(got.shape)}, PyTorch {list(expected.shape)}")
            return
        difference = float((got - expected).norm() / expected.norm())
        worst[what] = max(worst[what], difference)
        if not difference <= tolerance:
            failures.append(f"{what} {name}: differs by {difference:.3e} relative, at most {tolerance:.0e} is allowed")

    for number, step in enumerate(dump["steps"]):
        optimizer.zero_grad()
        tokens, targets = torch.tensor(step["tokens"]), torch.tensor(step["targets"])
        loss, more = forward(parameters, dump["model"], tokens, targets, step["dropout_keys"])
        (loss + more).backward()
        compare("loss", f"of step {number}", step["loss"], loss.item(), 1e-10)
        if number == 0:
            gradients = tensors(dump["gradients"])
            for name, p in parameters.items():
                compare("gradient", name, gradients[name], p.grad, 1e-9)
        norm = torch.nn.utils.clip_grad_norm_(parameters.values(), training["clip_grad"])
        compare("norm", f"of step {number}", step["norm"], norm.item(), 1e-9)
        if not norm > training["clip_grad"]:
            failures.append(f"step {number}: clipping was not active, so it has not been compared")
        for group in optimizer.param_groups:
            group["lr"] = step["lr"]
        optimizer.step()
    final = tensors(dump["final"])
    for name, p in parameters.items():
        compare("parameter", name, final[name], p.detach(), 1e-9)
    for failure in failures:
        print(failure)
    print("worst relative differences:", ", ".join(f"{what} {value:.1e}" for what, value in worst.items()))
    return bool(failures)


def main():
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)  # of plain numbers too
    failed = False
    for path in sys.argv[1:]:
        with open(path) as file:
            failed |= check(json.load(file))
    return 1 if failed else 0


sys.exit(main())
