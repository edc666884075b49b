"""Wrote argparse.json: what Python's argparse makes of command lines.   python3.11 argparse.py > argparse.json"""
import sys
sys.path = [p for p in sys.path if p]
import os
here = os.path.dirname(os.path.abspath(__file__))
sys.path = [p for p in sys.path if os.path.abspath(p) != here]
import argparse, contextlib, io, json

MODES = ["hard_plus_soft", "hard_plus_soft_v2", "separated", "hard_only", "soft_only", "hard01_plus_gtprob",
         "hard01_plus_gtprob_separated", "hard_plus_gtprob_plus_rel", "hybrid", "legacy"]

def parser():
    p = argparse.ArgumentParser(prog="main")
    add = p.add_argument
    add("--sft_ckpt"); add("--beam_data", required=True); add("--output_dir", default="results/grpo"); add("--img_emb"); add("--text_emb")
    add("--rce_epochs", type=int, default=5); add("--grpo_epochs", type=int, default=0); add("--batch_size", type=int, default=32)
    add("--rce_lr", type=float, default=1e-4); add("--rce_temp_start", type=float, default=2.0); add("--rce_temp_end", type=float, default=0.5)
    add("--grpo_lr", type=float, default=1e-5); add("--kl_beta", type=float, default=0.1)
    add("--disable_adaptive_kl", action="store_true"); add("--use_ppo_clip_only", action="store_true")
    add("--clip_epsilon", type=float, default=0.2); add("--device", default="cuda:0"); add("--use_top1_only", action="store_true")
    add("--reward_mode", default="hard_plus_soft", choices=MODES)
    for n, d in [("hard_weight", 1.0), ("soft_weight", 1.0), ("rel_weight", 0.1), ("reward_alpha", 0.0), ("reward_beta", 0.0)]:
        add("--" + n, type=float, default=d)
    add("--reward_correctness_mode", default="01", choices=["01", "pm1"]); add("--use_logprob", action="store_true")
    add("--num_layers", type=int, default=1)
    for n in ["rce_use_raw_reward", "rce_use_normalized_reward", "freeze_backbone_in_grpo", "no_skip_fallback_reward", "require_positive_query"]:
        add("--" + n, action="store_true")
    add("--normalize_method", default="z_score_clamp", choices=["z_score", "z_score_clamp", "rank_normalize"])
    add("--normalize_clamp_value", type=float, default=3.0); add("--candidate_size", type=int)
    return p

B = ["--beam_data", "b.json"]
LINES = [
    B, [], ["--beam_data"], ["--beam_data=b.json"], ["--beam", "b.json"], ["--be=b.json"], ["--b", "b.json"],
    B + ["--rce_epochs", "3"], B + ["--rce_epochs=3"], B + ["--rce_ep", "3"], B + ["--rce", "3"], B + ["--rce_epochs", "3", "--rce_epochs", "4"],
    B + ["--rce_epochs", "3.0"], B + ["--rce_epochs", "1_0"], B + ["--rce_epochs", "1__0"], B + ["--rce_epochs", " 7 "], B + ["--rce_epochs", "+7"], B + ["--rce_epochs", "0x10"], B + ["--rce_epochs", ""], B + ["--rce_epochs=-1"],
    B + ["--rce_epochs", "-1"], B + ["--kl_beta", "-1"], B + ["--kl_beta", "-0.5"], B + ["--kl_beta", "-.5"], B + ["--kl_beta", "-1e-3"], B + ["--kl_beta=-1e-3"], B + ["--kl_beta", "1e400"], B + ["--kl_beta", "nan"], B + ["--kl_beta", "inf"], B + ["--kl_beta=-inf"], B + ["--kl_beta", "Infinity"], B + ["--kl_beta", "1_0.5"], B + ["--kl_beta", "0x1p3"], B + ["--kl_beta", "1."], B + ["--kl_beta", ".5"], B + ["--kl_beta", "abc"], B + ["--kl_beta"], B + ["--kl_beta", "--use_logprob"], B + ["--kl_beta", "--"],
    B + ["--reward_mode", "separated"], B + ["--reward_mode", "sep"], B + ["--reward_mode=hybrid"], B + ["--reward_", "separated"], B + ["--reward_m", "legacy"], B + ["--reward_alpha", "2"], B + ["--reward", "legacy"],
    B + ["--reward_correctness_mode", "pm1"], B + ["--reward_correctness_mode", "1"], B + ["--reward_c", "01"],
    B + ["--use_logprob"], B + ["--use_logprob=1"], B + ["--use_log"], B + ["--use"], B + ["--use_"], B + ["--use_t"], B + ["--use_p"], B + ["--use_logprob", "--use_logprob"],
    B + ["--rce_use"], B + ["--rce_use_r"], B + ["--rce_use_n"], B + ["--normalize"], B + ["--normalize_m", "z_score"], B + ["--normalize_clamp", "1"], B + ["--num", "3"], B + ["--n", "3"], B + ["--no"], B + ["--no_"],
    B + ["--unknown", "3"], B + ["--unknown=3"], B + ["-x"], B + ["-1"], B + ["--grpo_epoch", "5"], B + ["--sft", "a b.ckpt"], B + ["--sft_ckpt=a=b"], B + ["--sft_ckpt="], B + ["--sft_ckpt", ""], B + ["--sft_ckpt", "-"], B + ["--sft_ckpt", "-a b"], B + ["--sft_ckpt", "-a"],
    B + ["--output_dir", "r", "--img_emb", "e.pt", "--text_emb", "t.pt", "--device", "cpu", "--candidate_size", "64"],
    ["--rce_epochs", "x"] + B, ["--rce_epochs", "2"], B + ["--h"], B + ["-h"], B + ["--help"], B + ["--ha", "2"], B + ["--help=1"],
    B + ["--disable", "--freeze", "--no_skip", "--require", "--use_ppo_clip_only", "--clip", "0.3"],
]

rows = []
for line in LINES:
    out, err = io.StringIO(), io.StringIO()
    row = {"argv": line}
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            got = vars(parser().parse_args(line))
        row["values"] = {k: repr(v) for k, v in got.items() if v != parser().get_default(k) and not (v != v and False)}
    except SystemExit as e:
        row["exit"] = e.code
        if e.code:
            row["error"] = err.getvalue().strip().splitlines()[-1].removeprefix("main: error: ")
    rows.append(row)
print("[\n" + ",\n".join(json.dumps(r) for r in rows) + "\n]")
