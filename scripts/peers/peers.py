"""What the tests and benchmarks of scripts/peers share: our side (the program and scripts/peers/probe), small models of
every policy as today's transformers makes them, and comparisons that name what differs."""

import json
import os
import pathlib
import subprocess

os.environ.setdefault("HF_HUB_OFFLINE", "1")  # nothing is downloaded
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

os.environ.setdefault("OMP_NUM_THREADS", os.environ.get("PEERS_THREADS", "1"))

import torch
import transformers
from safetensors.torch import load_file

ROOT = pathlib.Path(__file__).resolve().parents[2]
DATA = ROOT / "internal" / "testkit" / "golden" / "testdata"
RUN = ROOT / "bin" / "run"
torch.set_num_threads(int(os.environ.get("PEERS_THREADS", "1")))  # as the probe; idle threads that spin slow a busy machine down
transformers.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()


class Refused(Exception):
    """What our side said instead of an answer."""


class Probe:
    """scripts/peers/probe: one process, a line of JSON a job."""

    def __init__(self, threads=1):
        command = [ROOT / "build" / "probe", str(threads)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __call__(self, do, **job):
        self.process.stdin.write(json.dumps({"Do": do, **job}) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"the probe died of a job {do}")
        answer = json.loads(line)
        if "error" in answer:
            raise Refused(answer["error"])
        return answer

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def run(*arguments, fails=False, program="run"):
    """bin/run, or bin/bench, with arguments; returns what it wrote on stdout, or on stderr where it is meant to fail."""
    done = subprocess.run([RUN.with_name(program), *map(str, arguments)], capture_output=True, text=True)
    if (done.returncode != 0) != fails:
        raise AssertionError(f"bin/{program} {' '.join(map(str, arguments))}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stderr if fails else done.stdout


def close(what, got, want, tolerance):
    """Fails where got and want differ by more than tolerance times the largest entry of want."""
    got, want = torch.as_tensor(got, dtype=torch.float64), torch.as_tensor(want, dtype=torch.float64)
    assert got.shape == want.shape, f"{what}: shape {tuple(got.shape)}, want {tuple(want.shape)}"
    if want.numel() == 0:
        return 0.0
    scale = max(want.abs().max().item(), 1e-30)
    apart = (got - want).abs().max().item() / scale
    assert apart <= tolerance, f"{what}: differs by {apart:.2e} of its largest entry {scale:.3g}, want {tolerance:.0e}"
    return apart


# --- models

# Weights this large give logits of order one: differences show, and greedy choices are not ties.
SPREAD = 0.35


def scatter(model, seed=0):
    """Gives all weights of a new model values that do something: matrices normal, biases and norms away from 0 and 1."""
    draw = torch.Generator().manual_seed(seed)
    done = set()
    with torch.no_grad():
        for name, p in model.named_parameters():
            if p.data_ptr() in done:
                continue
            done.add(p.data_ptr())
            noise = torch.randn(p.shape, generator=draw)
            if p.dim() > 1 and "relative_attention_bias" not in name:
                p.copy_(noise * SPREAD / p.shape[-1] ** 0.5 * 3)
            elif "relative_attention_bias" in name:
                p.copy_(noise)
            elif name.endswith("bias"):
                p.copy_(noise * 0.1)
            else:
                p.copy_(1 + noise * 0.1)
    return model.eval()


def soft(model):
    """With smaller matrices: ratios do not explode in one step, and rounding does not grow from step to step. Such a model's rotations should
    be fast: slow ones hardly tell a key's bias from 0, since scores that all move alike change nothing."""
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(0.7 if p.dim() > 1 else 1)
        model.get_input_embeddings().weight.mul_(0.6)
    return model


def adapter_of(probe, policy, folder, out, targets, **lora):
    """An adapter that we made and moved away from its start."""
    options = {"Path": str(folder), "LoRA": {"Enabled": True, "Rank": 4, "Alpha": 8, "TargetModules": targets, **lora}}
    probe("adapter", Policy=policy, Options=options, Seed=3, Perturb=0.02, Out=str(out), Folder=str(folder))
    return out


def qwen2(**changes):
    c = dict(vocab_size=320, hidden_size=48, intermediate_size=80, num_hidden_layers=3, num_attention_heads=6,
             num_key_value_heads=2, max_position_embeddings=512, tie_word_embeddings=True, rope_theta=1e4,
             bos_token_id=None, eos_token_id=2, pad_token_id=0)
    return scatter(transformers.Qwen2ForCausalLM(transformers.Qwen2Config(**{**c, **changes})))


def qwen2_5_vl(tied=True, rope_theta=1e6):
    """The public architecture in the size of the fixtures."""
    folder = DATA / "qwen2_5_vl" / "tiny_tied"
    config = transformers.AutoConfig.from_pretrained(folder)
    config.tie_word_embeddings = config.text_config.tie_word_embeddings = tied
    config.text_config.rope_parameters["rope_theta"] = rope_theta
    return scatter(transformers.Qwen2_5_VLForConditionalGeneration(config))


def t5(gated=False, **changes):
    c = dict(vocab_size=300, d_model=40, d_kv=8, d_ff=72, num_layers=2, num_decoder_layers=3, num_heads=4,
             relative_attention_num_buckets=16, relative_attention_max_distance=20, decoder_start_token_id=0)
    if gated:
        c.update(feed_forward_proj="gated-gelu", tie_word_embeddings=False)
    return scatter(transformers.T5ForConditionalGeneration(transformers.T5Config(**{**c, **changes})))


def bart(**changes):
    c = dict(vocab_size=300, d_model=48, encoder_layers=2, decoder_layers=3, encoder_attention_heads=4, decoder_attention_heads=6,
             encoder_ffn_dim=72, decoder_ffn_dim=64, max_position_embeddings=96)
    return scatter(transformers.BartForConditionalGeneration(transformers.BartConfig(**{**c, **changes})))


def untie(model):
    """Gives a T5 a head of its own, as the published v1.1 and flan models have one."""
    head = torch.nn.Linear(model.lm_head.in_features, model.lm_head.out_features, bias=False)
    with torch.no_grad():
        head.weight.copy_(torch.randn(head.weight.shape, generator=torch.Generator().manual_seed(9)) * 0.2)
    model.lm_head = head
    return model


TEXT = ["qwen2", "qwen3", "llama", "mistral", "smollm3"]
POLICY = {**dict.fromkeys([*TEXT, "qwen2_5_vl"], "vl"), "t5": "seq2seq", "bart": "seq2seq"}
AUTO = {**dict.fromkeys(TEXT, transformers.AutoModelForCausalLM), "qwen2_5_vl": transformers.Qwen2_5_VLForConditionalGeneration,
        "t5": transformers.AutoModelForSeq2SeqLM, "bart": transformers.AutoModelForSeq2SeqLM}


def kind_of(model):
    return model.config.model_type


def ids(n, vocab, seed):
    return torch.randint(5, vocab, (n,), generator=torch.Generator().manual_seed(seed)).tolist()


def questions(vocab, lengths=((7, (5, 3)), (4, (6,)), (12, (1, 4)))):
    """Prompts with completions of several lengths: (prompts, completions)."""
    prompts = [ids(n, vocab, 10 + i) for i, (n, _) in enumerate(lengths)]
    completions = [[ids(m, vocab, 100 + 10 * i + j) for j, m in enumerate(ms)] for i, (_, ms) in enumerate(lengths)]
    return prompts, completions


@torch.no_grad()
def their_logits(model, prompts, completions):
    """The rows of logits that predict each token of each completion, one completion at a time without padding."""
    rows = []
    for prompt, group in zip(prompts, completions):
        for c in group:
            if model.config.is_encoder_decoder:
                decoder = torch.tensor([[model.config.decoder_start_token_id, *c[:-1]]])
                rows.append(model(input_ids=torch.tensor([prompt]), decoder_input_ids=decoder).logits[0].float())
            else:
                z = model(input_ids=torch.tensor([[*prompt, *c]])).logits[0].float()
                rows.append(z[len(prompt) - 1 : -1])
    return torch.cat(rows)


@torch.no_grad()
def their_greedy(model, prompt, tokens):
    # without the cache: transformers 5.23 gives a T5 with more decoder than encoder layers too small a one
    out = model.generate(torch.tensor([prompt]), max_new_tokens=tokens, do_sample=False, num_beams=1, repetition_penalty=1.0, use_cache=False)
    out = out[0].tolist()
    return out[1:] if model.config.is_encoder_decoder else out[len(prompt) :]


def our_logits(probe, folder, kind, prompts, completions, scratch, **options):
    out = str(scratch / "logits.safetensors")
    answer = probe("logits", Policy=POLICY[kind], Options={"Path": str(folder), **options}, Prompts=prompts,
                   Completions=completions, Out=out)
    return load_file(out)["logits"], answer["logp"]


def same_model(probe, model, folder, scratch, tolerance=2e-5, **options):
    """Compares logits and greedy completions of a model in hand with those of our reading of a folder."""
    vocab = model.get_input_embeddings().weight.shape[0]
    prompts, completions = questions(min(vocab, 300))
    want = their_logits(model, prompts, completions)
    got, logp = our_logits(probe, folder, kind_of(model), prompts, completions, scratch, **options)
    apart = close("logits", got, want, tolerance)
    flat = [t for group in completions for c in group for t in c]
    chosen = want.double().log_softmax(-1).gather(1, torch.tensor(flat)[:, None])[:, 0]
    close("log-probabilities", [x for group in logp for c in group for x in c], chosen, tolerance)
    answer = probe("generate", Policy=POLICY[kind_of(model)], Options={"Path": str(folder), **options}, Prompts=prompts, Tokens=12)
    for prompt, ours in zip(prompts, answer["completions"]):
        theirs = their_greedy(model, prompt, 12)
        assert ours[0] == theirs, f"greedy completion {ours[0]}, want {theirs}"
    return apart
