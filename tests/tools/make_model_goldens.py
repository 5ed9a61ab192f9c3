#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes tests/golden/models and tests/golden/grpo: tiny random models and what PyTorch says about them.

    python tests/tools/make_model_goldens.py [--out tests/golden] [--only NAME ...]

Needs torch 2.11.0, transformers 5.23.0, safetensors and numpy; takes one CPU core half a minute.
tests/golden/README.md says what is in each file. Nothing here is compared with our own program: the
numbers come from transformers (float32, eager attention) and torch autograd alone.
"""
import argparse
import json
import math
import os
import shutil

import torch
import transformers
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, GenerationConfig, LlamaConfig, Qwen2Config, Qwen3Config

FAMILIES = {"qwen2": Qwen2Config, "qwen3": Qwen3Config, "llama": LlamaConfig}
DEFAULT_ROPE = {"rope_type": "default", "rope_theta": 10000.0}
# With 64 original positions the eight frequencies of head size 16 fall into all three llama3 bands.
LLAMA3_ROPE = {"rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0, "low_freq_factor": 1.0,
               "high_freq_factor": 4.0, "original_max_position_embeddings": 64}

# name -> sizes; what is not said is DEFAULTS.
DEFAULTS = dict(hidden=64, layers=2, heads=4, kv_heads=2, head_dim=16, intermediate=96, vocab=320, tied=True,
                rope=DEFAULT_ROPE, dtype=torch.float32, shard_size="50GB", transformers4=False)
MODELS = {
    "qwen2_tied": dict(family="qwen2", rope={"rope_type": "default", "rope_theta": 1e6}),
    "qwen2_untied": dict(family="qwen2", tied=False, vocab=256),
    "qwen3_tied_head32": dict(family="qwen3", hidden=48, head_dim=32),
    "qwen3_untied": dict(family="qwen3", hidden=48, tied=False),
    "llama_tied": dict(family="llama", hidden=48, rope={"rope_type": "default", "rope_theta": 500000.0}),
    "llama_untied_rope_llama3": dict(family="llama", hidden=48, tied=False, rope=LLAMA3_ROPE),
    "qwen3_sharded": dict(family="qwen3", hidden=48, shard_size="100KB"),
    "llama_transformers4": dict(family="llama", rope=LLAMA3_ROPE, transformers4=True),
    "qwen2_bf16": dict(family="qwen2", layers=3, intermediate=160, vocab=512, dtype=torch.bfloat16),
}

SEQUENCE_LENGTHS = [1, 2, 7, 16, 33, 64, 80, 130]
GREEDY_LENGTHS = {1, 7, 33, 80}
GREEDY_TOKENS = 64
GREEDY_MIN_GAP = 0.01     # 500 x the float32 noise of these models' logits
GREEDY_MIN_DISTINCT = 12  # not a loop from the start
TOP = 8

GRPO_MODELS = ["qwen2_tied", "qwen3_tied_head32", "llama_tied"]
# (prompt tokens, response tokens, advantage) of each sample
GRPO_SAMPLES = [(5, 9, 1.25), (12, 17, -0.75), (3, 1, 0.5), (9, 31, -1.5), (7, 24, 0.0), (5, 13, 0.875)]
GRPO_CLIP_C = 3.0
GRPO_KL_COEF = 0.05


def setting(name, batch, mode, high=0.28, kl="none", entropy=0.0, full=False, loss="vanilla", **of_loss):
    return dict(name=name, batch=batch, loss_mode=loss, loss_agg_mode=mode, clip_ratio_low=0.2, clip_ratio_high=high,
                clip_ratio_c=GRPO_CLIP_C, kl_loss_type=kl, kl_loss_coef=GRPO_KL_COEF if kl != "none" else 0.0,
                entropy_coeff=entropy, full_gradient=full, **of_loss)


TOKEN_MEAN, TOKEN_SUM, SEQ_MEAN = "token-mean", "seq-mean-token-sum", "seq-mean-token-mean"
GRPO_SETTINGS = [
    setting("token_mean", "t10", TOKEN_MEAN, high=0.2, full=True),
    setting("token_mean_k1", "t10", TOKEN_MEAN, kl="k1"),
    setting("token_mean_k2_entropy", "t10", TOKEN_MEAN, kl="k2", entropy=0.01),
    setting("token_mean_k3_entropy", "t10", TOKEN_MEAN, kl="k3", entropy=0.01),
    setting("token_sum_entropy", "t10", TOKEN_SUM, entropy=0.01),
    setting("token_sum_k3", "t10", TOKEN_SUM, kl="k3"),
    setting("seq_mean", "t10", SEQ_MEAN),
    setting("token_mean_t07", "t07", TOKEN_MEAN),
    setting("seq_mean_k3_entropy_t07", "t07", SEQ_MEAN, kl="k3", entropy=0.01, full=True),
    setting("seq_mean_k1_entropy_t07", "t07", SEQ_MEAN, kl="k1", entropy=0.01),
    setting("token_sum_k2_t07", "t07", TOKEN_SUM, kl="k2", full=True),
    setting("extreme", "extreme", TOKEN_MEAN),
    setting("extreme_k1", "extreme", TOKEN_MEAN, kl="k1"),
    setting("extreme_k3", "extreme", TOKEN_MEAN, kl="k3"),
    setting("gspo", "t10", SEQ_MEAN, high=0.02, loss="gspo"),
    setting("gspo_wide_k3_entropy_t07", "t07", SEQ_MEAN, kl="k3", entropy=0.01, loss="gspo"),
    setting("gspo_extreme", "extreme", SEQ_MEAN, loss="gspo"),
    setting("cispo", "t10", TOKEN_MEAN, loss="cispo"),
    setting("cispo_extreme", "extreme", TOKEN_SUM, loss="cispo"),
    setting("gpg", "t10", TOKEN_MEAN, loss="gpg"),
    setting("gpg_k2_t07", "t07", SEQ_MEAN, kl="k2", loss="gpg"),
    setting("sapo", "t10", SEQ_MEAN, loss="sapo", tau_pos=1.0, tau_neg=1.05),
    setting("sapo_steep_k3_entropy_t07", "t07", SEQ_MEAN, kl="k3", entropy=0.01, loss="sapo", tau_pos=3.0, tau_neg=0.5),
    setting("sapo_extreme", "extreme", SEQ_MEAN, loss="sapo", tau_pos=1.0, tau_neg=1.05),
    setting("geo_mean", "t10", SEQ_MEAN, loss="geo_mean"),
    setting("geo_mean_k2_entropy_t07", "t07", SEQ_MEAN, kl="k2", entropy=0.01, loss="geo_mean"),
    setting("geo_mean_extreme", "extreme", SEQ_MEAN, loss="geo_mean"),
    setting("clip_cov", "t10", TOKEN_MEAN, loss="clip_cov", clip_cov_lb=0.2, clip_cov_ub=1.0),
    setting("clip_cov_k3_t07", "t07", SEQ_MEAN, kl="k3", loss="clip_cov", clip_cov_lb=0.5, clip_cov_ub=50.0),
    setting("kl_cov", "t10", TOKEN_MEAN, loss="kl_cov", kl_cov_ratio=0.3, ppo_kl_coef=0.5),
    setting("kl_cov_one_entropy_t07", "t07", TOKEN_SUM, entropy=0.01, loss="kl_cov", kl_cov_ratio=0.001, ppo_kl_coef=1.0),
]


# ---- writing -------------------------------------------------------------------------------------

def number(x):
    """The shortest decimal that reads back to the same float32."""
    return float(f"{float(x):.9g}")


def numbers(values):
    return [number(x) for x in values]


def render(value, depth=0):
    """JSON with lists of numbers on one line."""
    pad, end = " " * (depth + 1), " " * depth
    if isinstance(value, dict) and value:
        rows = [f"{pad}{json.dumps(k)}: {render(v, depth + 1)}" for k, v in value.items()]
        return "{\n" + ",\n".join(rows) + f"\n{end}}}"
    if isinstance(value, list) and value and isinstance(value[0], (dict, list)):
        return "[\n" + ",\n".join(pad + render(v, depth + 1) for v in value) + f"\n{end}]"
    return json.dumps(value, separators=(",", ":"))


def write_json(path, value):
    with open(path, "w") as file:
        file.write(render(value) + "\n")


def made_with():
    return {"torch": torch.__version__, "transformers": transformers.__version__, "compute_dtype": "float32",
            "attention": "eager"}


# ---- models --------------------------------------------------------------------------------------

def make_config(m):
    common = dict(hidden_size=m["hidden"], num_hidden_layers=m["layers"], num_attention_heads=m["heads"],
                  num_key_value_heads=m["kv_heads"], intermediate_size=m["intermediate"], vocab_size=m["vocab"],
                  max_position_embeddings=512, rms_norm_eps=1e-6, hidden_act="silu", attention_dropout=0.0,
                  tie_word_embeddings=m["tied"], rope_parameters=dict(m["rope"]), bos_token_id=1, eos_token_id=2,
                  pad_token_id=0)
    if m["family"] == "qwen2":  # has no head_dim option: hidden / heads
        return Qwen2Config(**common, use_sliding_window=False)
    return FAMILIES[m["family"]](**common, head_dim=m["head_dim"], attention_bias=False)


@torch.no_grad()
def fill_weights(model, tied, generator):
    """Large enough that every term shows: sharp attention, biases of size 0.5, uneven norms."""
    def normal(p, std):
        p.copy_(torch.randn(p.shape, generator=generator) * std)

    for name, p in sorted(model.named_parameters()):
        if name.endswith("norm.weight"):  # input, post-attention, q/k and final norms
            p.copy_(1.0 + 0.3 * torch.randn(p.shape, generator=generator))
            if name == "model.norm.weight" and tied:  # else the greedy token is always the input token
                p.mul_(torch.randint(0, 2, p.shape, generator=generator) * 2 - 1)
        elif name.endswith(".bias"):
            normal(p, 0.5)
        elif "embed_tokens" in name or "lm_head" in name:
            normal(p, 3.0 / math.sqrt(p.shape[1]))
        elif name.endswith(("q_proj.weight", "k_proj.weight")):
            normal(p, 1.5 / math.sqrt(p.shape[1]))
        else:
            normal(p, 1.0 / math.sqrt(p.shape[1]))


def spell_as_transformers4(path):
    """Rewrites config.json with the keys of transformers 4: rope_theta, rope_scaling, torch_dtype, no head_dim."""
    with open(path) as file:
        config = json.load(file)
    rope = config.pop("rope_parameters")
    config["rope_theta"] = rope.pop("rope_theta")
    config["rope_scaling"] = rope if rope["rope_type"] != "default" else None
    config["torch_dtype"] = config.pop("dtype")
    config["transformers_version"] = "4.46.3"
    assert config.pop("head_dim") == config["hidden_size"] // config["num_attention_heads"]
    with open(path, "w") as file:
        json.dump(config, file, indent=2, sort_keys=True)
        file.write("\n")


def make_model(folder, m, seed):
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    model = AutoModelForCausalLM.from_config(make_config(m), dtype=torch.float32)
    fill_weights(model, m["tied"], torch.Generator().manual_seed(seed))
    model.tie_weights()
    model = model.to(m["dtype"])
    model.generation_config = GenerationConfig(bos_token_id=1, eos_token_id=2, pad_token_id=0)
    model.save_pretrained(folder, max_shard_size=m["shard_size"])
    if m["transformers4"]:
        spell_as_transformers4(os.path.join(folder, "config.json"))


def load_model(folder, dtype=torch.float32):
    return AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, attn_implementation="eager").eval()


# ---- goldens of one model ------------------------------------------------------------------------

@torch.no_grad()
def next_token_logprobs(model, tokens):
    """(logits [T, V], logprobs [T-1] of tokens[i + 1] given tokens[0..i], cache after the last token)."""
    result = model(torch.tensor([tokens]), use_cache=True)
    logits = result.logits[0]
    chosen = torch.tensor(tokens[1:], dtype=torch.long)[:, None]
    return logits, logits.log_softmax(-1)[:-1].gather(1, chosen)[:, 0], result.past_key_values


@torch.no_grad()
def greedy(model, tokens):
    """Greedy continuation through the cache, end of sequence ignored; None when it is a bad witness."""
    logits, _, cache = next_token_logprobs(model, tokens)
    last, out = logits[-1], {"tokens": [], "logprobs": [], "gaps": []}
    for _ in range(GREEDY_TOKENS):
        top = last.topk(2)
        token = int(top.indices[0])
        out["tokens"].append(token)
        out["logprobs"].append(number(last.log_softmax(-1)[token]))
        out["gaps"].append(number(top.values[0] - top.values[1]))
        result = model(torch.tensor([[token]]), past_key_values=cache, use_cache=True)
        cache, last = result.past_key_values, result.logits[0, -1]
    good = min(out["gaps"]) > GREEDY_MIN_GAP and len(set(out["tokens"])) >= GREEDY_MIN_DISTINCT
    return out if good else None


def describe_sequence(model, length, generator):
    vocab = model.config.vocab_size
    for _ in range(2000):
        tokens = torch.randint(0, vocab, (length,), generator=generator).tolist()
        continuation = greedy(model, tokens) if length in GREEDY_LENGTHS else None
        if continuation or length not in GREEDY_LENGTHS:
            break
    else:
        raise RuntimeError(f"no prompt of {length} tokens has a clear greedy continuation: try another seed")
    logits, logprobs, _ = next_token_logprobs(model, tokens)
    top = logits[-1].topk(TOP)
    row = {"tokens": tokens, "logprobs": numbers(logprobs),
           "last_top": {"tokens": top.indices.tolist(), "logits": numbers(top.values)}}
    if continuation:
        row["greedy"] = {**continuation, "min_gap": min(continuation["gaps"])}
    return row


def float64_difference(folder, sequences):
    """How far a float64 run of the same weights is (norms and softmax stay float32 inside transformers)."""
    model, worst = load_model(folder, torch.float64), 0.0
    for row in sequences:
        if len(row["tokens"]) > 1:
            logprobs = next_token_logprobs(model, row["tokens"])[1]
            want = torch.tensor(row["logprobs"], dtype=torch.float64)
            worst = max(worst, float((logprobs - want).abs().max()))
    return float(f"{worst:.2g}")


def make_model_golden(folder, name, seed):
    m = {**DEFAULTS, **MODELS[name]}
    make_model(folder, m, seed)
    model = load_model(folder)
    generator = torch.Generator().manual_seed(1000 + seed)
    sequences = [describe_sequence(model, n, generator) for n in SEQUENCE_LENGTHS]
    golden = {"model": name, "seed": seed, "made_with": made_with(),
              "parameters": sum(p.numel() for p in model.parameters()),
              "largest_difference_to_float64": float64_difference(folder, sequences), "sequences": sequences}
    write_json(os.path.join(folder, "golden.json"), golden)
    gaps = [row["greedy"]["min_gap"] for row in sequences if "greedy" in row]
    size = sum(os.path.getsize(os.path.join(folder, f)) for f in os.listdir(folder))
    print(f"{name}: {size / 1000:.0f} kB, {golden['parameters']} parameters, float64 differs by "
          f"{golden['largest_difference_to_float64']}, smallest greedy gap {min(gaps):.4f}", flush=True)


# ---- GRPO: loss and gradients --------------------------------------------------------------------

@torch.no_grad()
def sample_response(model, prompt, count, generator):
    tokens = list(prompt)
    for _ in range(count):
        probabilities = model(torch.tensor([tokens])).logits[0, -1].softmax(-1)
        tokens.append(int(torch.multinomial(probabilities, 1, generator=generator)))
    return tokens[len(prompt):]


def response_terms(model, samples, temperature):
    """(logprobs, entropies) of every response token, one tensor [response tokens] per sample."""
    logprobs, entropies = [], []
    for s in samples:
        tokens, first = s["prompt"] + s["response"], len(s["prompt"])
        logits = model(torch.tensor([tokens]), use_cache=False).logits[0, first - 1:-1]
        all_logprobs = (logits / temperature).log_softmax(-1)
        logprobs.append(all_logprobs.gather(1, torch.tensor(s["response"])[:, None])[:, 0])
        entropies.append(-(all_logprobs.exp() * all_logprobs).sum(-1))
    return logprobs, entropies


def shifted(logprobs, std, generator):
    """logprobs plus noise that keeps every ratio away from the edges of the clips."""
    edges = torch.tensor([0.8, 1.2, 1.28, GRPO_CLIP_C])
    out = []
    for lp in logprobs:
        noise = torch.randn(lp.shape, generator=generator) * std
        while bool((near := ((-noise).exp()[:, None] - edges).abs().min(1).values < 0.01).any()):
            noise = torch.where(near, torch.randn(lp.shape, generator=generator) * std, noise)
        out.append(numbers(lp + noise))
    return out


@torch.no_grad()
def make_batch(model, samples, temperature, generator):
    """Old logprobs with 0.3 noise and a few tokens whose ratio is e^1.5 = 4.5 or 0.22; ref logprobs with 0.4."""
    logprobs, _ = response_terms(model, samples, temperature)
    batch = {"temperature": temperature, "logprobs": [numbers(lp) for lp in logprobs],
             "old_logprobs": shifted(logprobs, 0.3, generator), "ref_logprobs": shifted(logprobs, 0.4, generator)}
    for i, lp in enumerate(logprobs):
        for t in range(2, len(lp), 7):
            batch["old_logprobs"][i][t] = number(lp[t] + (1.5 if t % 2 else -1.5))
    return batch


def make_extreme(batch):
    """The same batch with tokens that reach every clamp: +-20 on both differences, 10 on k3."""
    old, ref = ([list(row) for row in batch[k]] for k in ("old_logprobs", "ref_logprobs"))
    for i, t, old_shift, ref_shift in [(0, 1, -25, 3.5), (0, 3, 25, -12.0), (1, 4, -25, 25.0), (3, 7, 25, -25.0)]:
        old[i][t] = number(batch["logprobs"][i][t] + old_shift)
        ref[i][t] = number(batch["logprobs"][i][t] + ref_shift)
    return {**batch, "old_logprobs": old, "ref_logprobs": ref}


def aggregate(terms, mode):
    """terms: one tensor per sample. verl's agg_loss with a mask of ones on the response."""
    if mode == "token-mean":
        return torch.cat(terms).mean()
    if mode == "seq-mean-token-sum":
        return torch.stack([x.sum() for x in terms]).mean()
    assert mode == "seq-mean-token-mean", mode
    return torch.stack([x.mean() for x in terms]).mean()


def kl_terms(logprob, ref, kind):
    if kind == "k1":
        return logprob - ref
    if kind == "k2":
        return 0.5 * (logprob - ref) ** 2
    assert kind == "k3", kind
    d = (ref - logprob).clamp(-20.0, 20.0)
    return (d.exp() - d - 1).clamp(-10.0, 10.0)


def vanilla(lp, old, advantage, s):
    log_ratio = (lp - old).clamp(-20.0, 20.0)
    ratio = log_ratio.exp()
    plain = -advantage * ratio
    bounded = -advantage * ratio.clamp(1 - s["clip_ratio_low"], 1 + s["clip_ratio_high"])
    loss = torch.maximum(plain, bounded)
    lowest = torch.full_like(loss, -advantage * s["clip_ratio_c"])
    return (torch.minimum(loss, lowest) if advantage < 0 else loss, bounded > plain,
            (loss > lowest) & (advantage < 0), log_ratio)


def gspo(lp, old, advantage, s):
    # The sequence's ratio, whose slope reaches every token through lp - stop(lp).
    mean = (lp - old).mean().detach()
    ratio = (lp - lp.detach() + mean).clamp(max=10.0).exp()
    plain = -advantage * ratio
    bounded = -advantage * ratio.clamp(1 - s["clip_ratio_low"], 1 + s["clip_ratio_high"])
    return torch.maximum(plain, bounded), bounded > plain, torch.zeros_like(lp, dtype=torch.bool), lp - old


def cispo(lp, old, advantage, s):
    log_ratio = (lp - old).clamp(-20.0, 20.0)
    ratio = log_ratio.exp()
    weight = ratio.clamp(1 - s["clip_ratio_low"], 1 + s["clip_ratio_high"])
    return (-advantage * weight.detach() * lp, ratio != weight, torch.zeros_like(lp, dtype=torch.bool), log_ratio)


def sapo(lp, old, advantage, s):
    log_ratio = (lp - old).clamp(-20.0, 20.0)
    tau = s["tau_pos"] if advantage > 0 else s["tau_neg"]
    none = torch.zeros_like(lp, dtype=torch.bool)
    return -advantage * torch.sigmoid(tau * (log_ratio.exp() - 1)) * (4 / tau), none, none, log_ratio


def geo_mean(lp, old, advantage, s):
    # The response's value for each of its tokens, so that the token mean is that value.
    log_ratio = lp - old
    clamped = log_ratio.clamp(-s["clip_ratio_low"], s["clip_ratio_high"])
    bounded = torch.minimum(log_ratio, clamped) if advantage > 0 else torch.maximum(log_ratio, clamped)
    outside = log_ratio != clamped
    return ((-advantage * bounded.mean().exp()).expand_as(lp), outside & (advantage > 0), outside & (advantage < 0),
            log_ratio)


def covariances(logprobs, samples):
    """(A - mean A)(lp - mean lp) of every response token, the means over all of them; one tensor per sample."""
    lp = torch.cat([x.detach() for x in logprobs])
    advantages = torch.cat([torch.full_like(x, s["advantage"]) for x, s in zip(logprobs, samples)])
    values = (advantages - advantages.mean()) * (lp - lp.mean())
    return values.split([len(x) for x in logprobs])


def clip_cov(lp, old, advantage, s, covariance, _):
    # clip_cov_ratio is 1 in every row: all tokens between the bounds, not some at random.
    log_ratio = lp - old
    ratio = log_ratio.exp()
    plain = -advantage * ratio
    bounded = -advantage * ratio.clamp(1 - s["clip_ratio_low"], 1 + s["clip_ratio_high"])
    selected = (covariance > s["clip_cov_lb"]) & (covariance < s["clip_cov_ub"]) & ~(bounded > plain)
    none = torch.zeros_like(lp, dtype=torch.bool)
    return torch.maximum(plain, bounded) * (~selected).to(lp.dtype), selected, none, log_ratio


def kl_cov(lp, old, advantage, s, covariance, all_covariances):
    count = max(1, int(s["kl_cov_ratio"] * len(all_covariances)))
    selected = covariance >= all_covariances.sort(descending=True).values[count - 1]
    log_ratio = lp - old
    loss = -advantage * log_ratio.exp() + s["ppo_kl_coef"] * log_ratio.abs() * selected.to(lp.dtype)
    none = torch.zeros_like(lp, dtype=torch.bool)
    return loss, none, none, -log_ratio.abs()


def gpg(lp, old, advantage, s):
    none = torch.zeros_like(lp, dtype=torch.bool)
    return -advantage * lp, none, none, torch.zeros_like(lp)


LOSSES = {"vanilla": vanilla, "gspo": gspo, "cispo": cispo, "gpg": gpg, "sapo": sapo, "geo_mean": geo_mean}
COVARIANCE_LOSSES = {"clip_cov": clip_cov, "kl_cov": kl_cov}


def grpo_loss(model, samples, batch, s):
    """(loss, its parts). The formulas are in tests/golden/README.md."""
    logprobs, entropies = response_terms(model, samples, batch["temperature"])
    dtype = logprobs[0].dtype
    covariance = covariances(logprobs, samples)
    pg, kl, clipped, clipped_lower, ppo_kl = [], [], [], [], []
    for i, lp in enumerate(logprobs):
        old, ref = (torch.tensor(batch[k][i], dtype=dtype) for k in ("old_logprobs", "ref_logprobs"))
        advantage = samples[i]["advantage"]
        name = s["loss_mode"]
        loss, is_clipped, is_clipped_lower, log_ratio = (
            LOSSES[name](lp, old, advantage, s) if name in LOSSES else
            COVARIANCE_LOSSES[name](lp, old, advantage, s, covariance[i], torch.cat(covariance)))
        pg.append(loss)
        clipped.append(is_clipped.to(dtype))
        clipped_lower.append(is_clipped_lower.to(dtype))
        ppo_kl.append(-log_ratio)
        if s["kl_loss_type"] != "none":
            kl.append(kl_terms(lp, ref, s["kl_loss_type"]))
    mode = s["loss_agg_mode"]
    pg_loss, entropy = aggregate(pg, mode), aggregate(entropies, mode)
    kl_loss = aggregate(kl, mode) if kl else torch.zeros((), dtype=dtype)
    total = pg_loss - s["entropy_coeff"] * entropy + s["kl_loss_coef"] * kl_loss
    parts = {"loss": total, "pg_loss": pg_loss, "kl_loss": kl_loss, "entropy": entropy,
             "pg_clipfrac": torch.cat(clipped).mean(), "pg_clipfrac_lower": torch.cat(clipped_lower).mean(),
             "ppo_kl": torch.cat(ppo_kl).mean()}
    return total, {k: number(v.detach()) for k, v in parts.items()}


def gradients(model, samples, batch, s):
    model.zero_grad(set_to_none=True)
    loss, parts = grpo_loss(model, samples, batch, s)
    loss.backward()
    return parts, {name: p.grad.detach().clone() for name, p in model.named_parameters()}


def total_norm(tensors):
    return math.sqrt(sum(float(g.double().pow(2).sum()) for g in tensors.values()))


def fingerprint(g):
    """Norm, and eight values at equal steps through the flattened tensor (first and last included)."""
    flat = g.flatten()
    at = [i * (flat.numel() - 1) // 7 for i in range(8)]
    return {"norm": number(g.double().norm()), "values": numbers(flat[at])}


def make_grpo_golden(models_folder, folder, name, seed):
    path = os.path.join(models_folder, name)
    model, wide = load_model(path), load_model(path, torch.float64)
    generator = torch.Generator().manual_seed(2000 + seed)
    samples = []
    for prompt_length, response_length, advantage in GRPO_SAMPLES:
        prompt = torch.randint(3, model.config.vocab_size, (prompt_length,), generator=generator).tolist()
        samples.append({"prompt": prompt, "response": sample_response(model, prompt, response_length, generator),
                        "advantage": advantage})
    t10, t07 = (make_batch(model, samples, t, generator) for t in (1.0, 0.7))
    batches = {"t10": t10, "t07": t07, "extreme": make_extreme(t10)}
    rows, tensors, noise = [], {}, 0.0
    for s in GRPO_SETTINGS:
        parts, grads = gradients(model, samples, batches[s["batch"]], s)
        _, exact = gradients(wide, samples, batches[s["batch"]], s)
        for tensor in grads:
            scale = float(exact[tensor].abs().max())
            noise = max(noise, float((grads[tensor] - exact[tensor]).abs().max()) / scale)
        if s["full_gradient"]:
            tensors.update({f"{s['name']}/{tensor}": g.contiguous() for tensor, g in grads.items()})
        rows.append({**s, **parts, "grad_norm": number(total_norm(grads)),
                     "gradients": {tensor: fingerprint(g) for tensor, g in grads.items()}})
    write_json(os.path.join(folder, name + ".json"),
               {"model": name, "seed": seed, "made_with": made_with(),
                "largest_gradient_difference_to_float64": float(f"{noise:.2g}"), "samples": samples,
                "batches": batches, "settings": rows})
    save_file(tensors, os.path.join(folder, name + ".safetensors"))
    print(f"grpo {name}: {len(rows)} settings, gradients differ from float64 by {noise:.1e} of the largest", flush=True)
    for r in rows:
        print(f"  {r['name']}: loss {r['loss']:.5f} pg {r['pg_loss']:.5f} kl {r['kl_loss']:.5f} entropy "
              f"{r['entropy']:.4f} clipped {r['pg_clipfrac']:.3f} lower {r['pg_clipfrac_lower']:.3f} "
              f"ppo_kl {r['ppo_kl']:.4f} norm {r['grad_norm']:.4f}")


# ---- AdamW ---------------------------------------------------------------------------------------

def make_adamw_golden(folder, seed):
    """Five steps of torch.optim.AdamW after clip_grad_norm_; some of the gradients are under the clip."""
    generator = torch.Generator().manual_seed(3000 + seed)
    shapes = {"matrix": (6, 5), "table": (33, 7), "norm": (16,), "bias": (9,), "single": (1,)}
    start = {k: torch.randn(v, generator=generator) for k, v in shapes.items()}
    scales = [0.5, 0.02, 3.0, 0.03, 0.2]
    grads = [{k: torch.randn(v, generator=generator) * scale for k, v in shapes.items()} for scale in scales]
    options = {"lr": 0.01, "betas": [0.9, 0.95], "eps": 1e-8, "clip_grad": 1.0}
    tensors = {f"start/{k}": v.clone() for k, v in start.items()}
    tensors.update({f"grad{i + 1}/{k}": v for i, step in enumerate(grads) for k, v in step.items()})
    cases = []
    for case, decay_of in [("decay_all", lambda p: 0.1), ("decay_matrices", lambda p: 0.1 if p.dim() > 1 else 0.0)]:
        params = {k: torch.nn.Parameter(v.clone()) for k, v in start.items()}
        groups = [{"params": [p], "weight_decay": decay_of(p)} for p in params.values()]
        optimizer = torch.optim.AdamW(groups, lr=options["lr"], betas=tuple(options["betas"]), eps=options["eps"],
                                      foreach=False)
        norms = []
        for i, step in enumerate(grads):
            for k, p in params.items():
                p.grad = step[k].clone()
            norms.append(number(torch.nn.utils.clip_grad_norm_(params.values(), options["clip_grad"], foreach=False)))
            optimizer.step()
            tensors.update({f"{case}/step{i + 1}/{k}": p.detach().clone() for k, p in params.items()})
        for k, p in params.items():
            tensors[f"{case}/exp_avg/{k}"] = optimizer.state[p]["exp_avg"].clone()
            tensors[f"{case}/exp_avg_sq/{k}"] = optimizer.state[p]["exp_avg_sq"].clone()
        cases.append({"name": case, "weight_decay": {k: decay_of(p) for k, p in params.items()}, "grad_norms": norms})
    write_json(os.path.join(folder, "adamw.json"),
               {"made_with": made_with(), "options": options, "shapes": {k: list(v) for k, v in shapes.items()},
                "steps": len(grads), "cases": cases})
    save_file(tensors, os.path.join(folder, "adamw.safetensors"))
    print(f"adamw: gradient norms {cases[0]['grad_norms']}")


# ---- rope ----------------------------------------------------------------------------------------

ROPE_SETTINGS = [
    {"rope_type": "default", "rope_theta": 10000.0},
    {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0},
    LLAMA3_ROPE,
    {"rope_type": "yarn", "rope_theta": 1e6, "factor": 4.0, "original_max_position_embeddings": 32768},
    {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 8.0, "original_max_position_embeddings": 256,
     "beta_fast": 16.0, "beta_slow": 2.0, "truncate": False},
    {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 8.0, "original_max_position_embeddings": 64,
     "mscale": 0.7, "mscale_all_dim": 1.3},
    {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 2.0, "original_max_position_embeddings": 64,
     "attention_factor": 1.5},
]
ROPE_POSITIONS = [0, 1, 3, 17, 64, 500]


def make_rope_golden(folder):
    rows = []
    for rope in ROPE_SETTINGS:
        config = transformers.Qwen2Config(hidden_size=256, num_attention_heads=4, max_position_embeddings=131072,
                                          rope_parameters=dict(rope))
        embedding = transformers.models.qwen2.modeling_qwen2.Qwen2RotaryEmbedding(config)
        cos, sin = embedding(torch.zeros(1), torch.tensor([ROPE_POSITIONS]))
        rows.append({"rope_parameters": rope, "cos": [numbers(r[:32]) for r in cos[0]],
                     "sin": [numbers(r[:32]) for r in sin[0]]})
    write_json(os.path.join(folder, "rope.json"),
               {"made_with": made_with(), "head_size": 64, "positions": ROPE_POSITIONS, "settings": rows})


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default=os.path.join(here, "..", "golden"))
    parser.add_argument("--only", nargs="*", help="names of models, grpo, adamw, rope (default: all)")
    args = parser.parse_args()
    torch.set_num_threads(1)
    transformers.utils.logging.disable_progress_bar()
    models, grpo = (os.path.join(args.out, d) for d in ("models", "grpo"))
    os.makedirs(models, exist_ok=True)
    os.makedirs(grpo, exist_ok=True)
    for seed, name in enumerate(MODELS):
        if not args.only or name in args.only:
            make_model_golden(os.path.join(models, name), name, seed)
    for seed, name in enumerate(GRPO_MODELS):
        if not args.only or "grpo" in args.only:
            make_grpo_golden(models, grpo, name, seed)
    if not args.only or "adamw" in args.only:
        make_adamw_golden(grpo, 0)
    if not args.only or "rope" in args.only:
        make_rope_golden(args.out)


if __name__ == "__main__":
    main()
