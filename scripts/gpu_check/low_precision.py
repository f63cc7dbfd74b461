"""Products of codes of 8 and 4 bits: losses in every recipe as on the host, with experts too, and speed against bf16 and against
the card's own products."""
import statistics

from gpu_check.check import Step
from gpu_check.experts import MIXTURE
from gpu_check.gpt2_speed import torch_json
from gpu_check.training import small, train, worst_difference

LIMIT_S = 240

# Recipe → its settings.
RECIPES = {recipe: ['training.fp8_format="hybrid"' if recipe in ("delayed", "tensorwise") else 'training.fp8_format="e4m3"',
                    f'training.fp8_recipe="{recipe}"', "training.fp8_transposes=true"] for recipe in ("delayed", "tensorwise", "blockwise", "mxfp8")}
RECIPES["nvfp4"] = ['training.fp4_format="e2m1"']
# One layer of a large model is enough: the head is small and every product is long.
WIDE = ["model.num_layers=4", "model.hidden_size=4096", "model.num_attention_heads=32", "model.seq_length=4096", "training.micro_batch_size=1",
        "training.global_batch_size=4"]
SHORT = ["model.num_layers=1"]


def refused(why):
    """A card that is too old for a recipe, or a recipe that has no kernels, is refused by its name, which is no fault of the card."""
    return why.startswith("code 2: ")


def losses_of_recipes(check):
    """In fp32 outside the codes, so that only sums of equal codes in another order differ."""
    agreed = []
    for model, more in (("dense", []), ("experts", [*MIXTURE, *(["model.moe_ffn_hidden_size=32"] if check.tiny else [])])):
        for recipe, settings in RECIPES.items():
            name = f"{recipe}, {model}, loss as on the host"
            scenario, base = small(check)
            settings = [*base, 'training.precision="fp32"', *more, *settings]
            gpu, why_gpu = train(check, scenario, settings, limit_s=40)
            if not gpu and refused(why_gpu):
                check.left_out(name, why_gpu)
                continue
            host, why = train(check, scenario, settings, backend="host")
            if not host or not gpu:
                check.note(name, False, why=why or why_gpu)
                continue
            difference = worst_difference(host, gpu)
            # A code that falls on the other side of a rounding changes what follows.
            notes = [note for note in gpu["notes"] if "data says how many rows" not in note]
            if check.note(name, difference < 5e-3, loss_difference=difference, notes=notes):
                agreed.append(f"{recipe}, {model}")
    check.headline("recipes that agree with the host", agreed or None)


def speed_of_recipes(check):
    times_ms = {}
    for recipe, settings in {"bf16": [], **RECIPES}.items():
        scenario, base = small(check)
        result, why = train(check, scenario, [*base, 'training.precision="bf16"', *(SHORT if check.tiny else WIDE), *settings], limit_s=40)
        name = f"{recipe}, speed"
        if not result:
            if refused(why):
                check.left_out(name, why)
            else:
                check.note(name, False, why=why)
            continue
        times_ms[recipe] = statistics.median(step["step_ms"] for step in result["steps"][2:])
        check.note(name, True, step_ms=round(times_ms[recipe], 3), notes=result["notes"])
    check.headline("bf16 step_ms", times_ms.get("bf16"))
    faster = {recipe: round(times_ms["bf16"] / ms, 3) for recipe, ms in times_ms.items() if "bf16" in times_ms and recipe != "bf16"}
    check.headline("recipes against bf16", faster or None)


def sustained_fp8(check):
    """Measures a large product of codes until the GPU is warm, and a cast, by PyTorch's kernels."""
    seconds = 0.1 if check.tiny else 30
    result = torch_json(check, "products of codes, sustained", "torch_ceilings.py", "--fp8-seconds", seconds, *(["--tiny"] if check.tiny else []))
    for key in ("fp8_gemm_TFLOPs", "fp8_sustained_TFLOPs", "cast_to_e4m3_GBps") if result else ():
        check.headline(key, result.get(key))


STEPS = [
    Step(losses_of_recipes, 140, ("recipes that agree with the host",)),
    Step(speed_of_recipes, 100, ("bf16 step_ms", "recipes against bf16")),
    Step(sustained_fp8, 60, ("fp8_gemm_TFLOPs", "fp8_sustained_TFLOPs", "cast_to_e4m3_GBps")),
]
