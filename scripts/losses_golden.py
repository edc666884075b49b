#!/usr/bin/python3
"""Writes experiments/measure/losses.json: the losses of `bench losses` in PyTorch, float64.

    scripts/losses_golden.py > experiments/measure/losses.json

Written from the equations (docs/algorithms.md), one candidate at a time, with autograd and torch.optim;
nothing is shared with the program but its data files and initial weights. Needs torch and NumPy.
"""
import json, math, os, struct, subprocess, sys, tempfile
import torch

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
RUN = os.path.join(ROOT, "bin", "run")
LR, TAU0, TAU1, EPS, BETA = 1e-3, 2.0, 0.5, 0.2, 0.1


def safetensors(path):
    with open(path, "rb") as f:
        n = struct.unpack("<Q", f.read(8))[0]
        header, data = json.loads(f.read(n)), f.read()
    out = {}
    for name, t in header.items():
        if name != "__metadata__":
            lo, hi = t["data_offsets"]
            out[name] = torch.frombuffer(bytearray(data[lo:hi]), dtype=torch.float32).double().reshape(t["shape"])
    return out


def queries(path):
    """-> [(row, pool ids, [positions], [rewards])] in file order."""
    records = json.load(open(path))
    gathered = sorted({i for r in records.values() if "id_list" in r for b in r["id_list"] for i in b[:-1]})
    out = []
    for key, r in records.items():
        if "id_list" in r:
            out.append((int(key), gathered, [[gathered.index(i) for i in b[:-1]] for b in r["id_list"]], r["score_list"]))
        else:
            c = r["pointer_candidates"]
            out.append((int(key), r["candidate_pool_ids"], [t["pointer"] for t in c], [t["vqa_correct"] + t["vqa_acc_score"] for t in c]))
    return out


def steps(P, heads, layers, q, C, labels):
    """Log-distributions [S, K] of one candidate's steps (parity specification §4, taken ones excluded)."""
    unit = lambda v: v / v.norm(dim=-1, keepdim=True).clamp(min=1e-12)
    x, c = P["input_proj.weight"] @ q, C @ P["input_proj.weight"].T
    h = x.numel()
    for i in range(layers):
        a = f"cross_attn_layers.{i}."
        wq, wk, wv = P[a + "in_proj_weight"].split(h)
        bq, bk, bv = P[a + "in_proj_bias"].split(h)
        Q, K, V = wq @ x + bq, c @ wk.T + bk, c @ wv.T + bv
        w = h // heads
        mixed = [torch.softmax(K[:, j:j + w] @ Q[j:j + w] / math.sqrt(w), 0) @ V[:, j:j + w] for j in range(0, h, w)]
        y = P[a + "out_proj.weight"] @ torch.cat(mixed) + P[a + "out_proj.bias"] + x
        x = torch.nn.functional.layer_norm(y, (h,), P[f"attn_norms.{i}.weight"], P[f"attn_norms.{i}.bias"])
    s, g = unit(P["query_proj.weight"] @ x), unit(c @ P["cand_proj.weight"].T)
    out, taken = [], torch.zeros(len(g), dtype=torch.bool)
    for label in labels:
        out.append(torch.log_softmax((g @ s / 0.1).masked_fill(taken, -math.inf), 0))
        taken = taken.clone()
        taken[label] = True
        e = g[label]
        gate = torch.sigmoid(P["query_update_gate.weight"] @ torch.cat([s, e]) + P["query_update_gate.bias"])
        s = unit(gate * s + (1 - gate) * e)
    return torch.stack(out)


def deviation(r):
    mean = sum(r) / len(r)
    return mean, math.sqrt(sum((x - mean) ** 2 for x in r) / (len(r) - 1))


def train(loss_name, data, table, init, heads, layers, batch=8, passes=3):
    P = {k: v.clone().requires_grad_() for k, v in init.items()}
    opt = torch.optim.AdamW(P.values(), lr=LR, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01)
    dist = lambda W, q, labels: steps(W, heads, layers, table[q[0]], table[q[1]], labels)
    batches = [data[i:i + batch] for i in range(0, len(data), batch)] * passes
    losses = []
    for k, queries in enumerate(batches):
        loss, n = 0.0, 0
        for q in queries:
            _, _, candidates, rewards = q
            mean, std = deviation(rewards)
            for labels, r in zip(candidates, rewards):
                D = dist(P, q, labels)
                at = torch.arange(len(labels)), torch.tensor(labels)
                logp = D[at].sum()
                if loss_name == "rce":
                    tau = TAU0 + (TAU1 - TAU0) * k / (len(batches) - 1)
                    u = [max(-3, min(3, (x - mean) / std)) if std > 1e-12 else x for x in rewards]
                    w = math.exp((u[rewards.index(r)] - max(u)) / tau) / sum(math.exp((x - max(u)) / tau) for x in u)
                    loss = loss - w * logp
                    continue
                with torch.no_grad():
                    R = dist(init, q, labels)
                adv = max(-5.0, min(5.0, (r - mean) / max(std, 0.1))) if max(rewards) > min(rewards) else 0.0
                log_ratio = logp - R[at].sum()
                ratio = log_ratio.exp()
                if loss_name == "grpo":
                    kl = torch.exp(-log_ratio) - 1 + log_ratio
                else:
                    kl = (D.exp() * (D - R).masked_fill(torch.isinf(D), 0)).sum()
                loss = loss - torch.minimum(ratio * adv, ratio.clamp(1 - EPS, 1 + EPS) * adv) + BETA * kl
                n += 1
        loss = loss / (len(queries) if loss_name == "rce" else n)
        opt.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(P.values(), 1.0)
        opt.step()
        losses.append(float(loss))
    return losses


def main():
    out = {}
    with tempfile.TemporaryDirectory() as d:
        specs = subprocess.run([os.path.join(os.path.dirname(RUN), "bench"), "losses", "--specs", "--dir", d], check=True, stdout=subprocess.PIPE, text=True).stdout
        for i, case in enumerate(map(json.loads, specs.splitlines())):
            overrides, folder = case["spec"]["overrides"], os.path.join(d, str(i))
            subprocess.run([RUN, *overrides, "data.train_ratio=0.9", "schedule=[rce]", "rce.epochs=1", "hydra.run.dir=" + folder], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            init = safetensors(os.path.join(folder, "checkpoints", "init_epoch0.safetensors"))
            setting = dict(o.split("=", 1) for o in overrides)
            file = lambda key: setting[key].strip("'")
            out[case["name"]] = train(case["name"].split()[1], queries(file("data.beams")), safetensors(file("data.embeddings"))["embeddings"], init,
                                      int(setting.get("selector.num_heads", 1)), int(setting.get("selector.num_layers", 1)))
            print(case["name"], "done", file=sys.stderr)
    print(json.dumps(out, indent=1))


if __name__ == "__main__":
    main()
