"""Does every page of the KV cache decide the answer?  usage: pages.py MODEL_FOLDER

Loads the model with torch, and for prompts of several lengths exchanges one page of 16 tokens after another for that
of another prompt. Prints a JSON object: for each length the pages tried, and those whose exchange left the next 16
greedy tokens as they were; and one answer, to compare with other machines.
"""

import json
import math
import sys

import torch
from safetensors.torch import load_file

torch.set_num_threads(1)
folder = sys.argv[1]
c = json.load(open(folder + "/config.json"))
w = load_file(folder + "/model.safetensors")
HEADS, SIZE, LAYERS = c["num_attention_heads"], c["head_dim"], c["num_hidden_layers"]
PAGE, ANSWER = 16, 16


def norm(x, weight):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + c["rms_norm_eps"]) * weight


def rotate(x, positions):
    inverse = 1.0 / (c["rope_theta"] ** (torch.arange(0, SIZE, 2).float() / SIZE))
    angle = torch.cat([positions[:, None].float() * inverse] * 2, -1)[:, None]
    half = torch.cat([-x[..., SIZE // 2 :], x[..., : SIZE // 2]], -1)
    return x * angle.cos() + half * angle.sin()


def forward(ids, kv):
    """Appends the tokens to kv, a list of (keys, values) a layer; returns the next greedy token."""
    past, n = len(kv[0][0]), len(ids)
    positions = torch.arange(past, past + n)
    x = w["model.embed_tokens.weight"][torch.tensor(ids)]
    for i in range(LAYERS):
        p = f"model.layers.{i}."
        h = norm(x, w[p + "input_layernorm.weight"])
        q, k, v = ((h @ w[p + f"self_attn.{m}_proj.weight"].T).view(n, HEADS, SIZE) for m in "qkv")
        keys, values = torch.cat([kv[i][0], rotate(k, positions)]), torch.cat([kv[i][1], v])
        kv[i] = (keys, values)
        scores = torch.einsum("thd,shd->hts", rotate(q, positions), keys) / math.sqrt(SIZE)
        scores = scores.masked_fill(torch.arange(past + n)[None] > positions[:, None], -math.inf)
        a = torch.einsum("hts,shd->thd", scores.softmax(-1), values).reshape(n, HEADS * SIZE)
        x = x + a @ w[p + "self_attn.o_proj.weight"].T
        h = norm(x, w[p + "post_attention_layernorm.weight"])
        h = torch.nn.functional.silu(h @ w[p + "mlp.gate_proj.weight"].T) * (h @ w[p + "mlp.up_proj.weight"].T)
        x = x + h @ w[p + "mlp.down_proj.weight"].T
    return int((norm(x[-1], w["model.norm.weight"]) @ w["lm_head.weight"].T).argmax())


def prefill(ids):
    kv = [(torch.zeros(0, HEADS, SIZE), torch.zeros(0, HEADS, SIZE)) for _ in range(LAYERS)]
    return kv, forward(ids, kv)


def answer(kv, first):
    kv, out = list(kv), [first]
    while len(out) < ANSWER:
        out.append(forward([out[-1]], kv))
    return out


def exchanged(kv, other, page):
    s = slice(page * PAGE, (page + 1) * PAGE)
    out = []
    for mine, theirs in zip(kv, other):
        pair = tuple(t.clone() for t in mine)
        for t, o in zip(pair, theirs):
            t[s] = o[s]
        out.append(pair)
    return out


def prompt(n, tenant):
    return [3 + (tenant * 7919 + i * i * 31 + i * 17) % 1021 for i in range(n)]


result = {}
for n in (64, 200, 400, 800):
    kv, first = prefill(prompt(n, 1))
    other, _ = prefill(prompt(n, 2))
    want = answer(kv, first)
    unseen = [p for p in range(n // PAGE) if answer(exchanged(kv, other, p), first) == want]
    result[n] = {"pages": n // PAGE, "unseen": unseen, "kinds": len(set(want)), "answer": want}
print(json.dumps(result))
