"""PEFT adapters both ways: what peft saves is read by us and the reverse, with the same logits, deltas and merged models."""

import json
import warnings

import peft
import pytest
import torch
from safetensors.torch import load_file

import families
import peers

MODELS = {
    "qwen2": (peers.qwen2, ["q_proj", "v_proj", "down_proj"]),
    "qwen2_5_vl": (peers.qwen2_5_vl, ["q_proj", "o_proj", "qkv"]),
    "llama 3": (lambda: families.large("llama 3"), ["q_proj", "o_proj", "up_proj"]),
    "qwen3": (lambda: families.large("qwen3"), ["k_proj", "v_proj", "gate_proj"]),
    "t5": (peers.t5, ["q", "v", "wo"]),
    "t5 gated": (lambda: peers.untie(peers.t5(gated=True)), ["q", "v", "wi_0"]),
    "bart": (peers.bart, ["q_proj", "v_proj", "fc1"]),
}
TASK = {"vl": "CAUSAL_LM", "seq2seq": "SEQ_2_SEQ_LM"}
CONFIGS = {
    "plain": dict(r=4, lora_alpha=8),
    "rslora": dict(r=6, lora_alpha=3, use_rslora=True),
    "patterns": dict(r=4, lora_alpha=8, rank_pattern={"layers.1.self_attn.q_proj": 2, "block.1.layer.0.SelfAttention.q": 2},
                     alpha_pattern={"layers.0.self_attn.q_proj": 5, "block.0.layer.0.SelfAttention.q": 5}),
}


def moved(model):
    """B away from zero, and A the same whatever was drawn before."""
    draw = torch.Generator().manual_seed(4)
    with torch.no_grad():
        for name, p in model.named_parameters():
            if "lora_" in name:
                p.copy_(torch.randn(p.shape, generator=draw) * (0.2 if "lora_B" in name else (3 * p.shape[1]) ** -0.5))
    return model.eval()


@pytest.mark.parametrize("config,dtype", [*((c, "float32") for c in CONFIGS), ("plain", "bfloat16")])
@pytest.mark.parametrize("name", MODELS)
def test_we_read_theirs(probe, tmp_path, name, config, dtype):
    """In bfloat16 the base has shards and the adapters are bfloat16 too; both sides compute in float32."""
    make, targets = MODELS[name]
    model = make().to(getattr(torch, dtype))
    kind = peers.kind_of(model)
    model.save_pretrained(tmp_path / "base", max_shard_size="40KB" if dtype == "bfloat16" else "5GB")
    policy = peers.POLICY[kind]
    adapted = moved(peft.get_peft_model(model, peft.LoraConfig(task_type=TASK[policy], target_modules=targets, lora_dropout=0.1, **CONFIGS[config])))
    adapted.to(model.dtype).save_pretrained(tmp_path / "adapter")
    base = peers.AUTO[kind].from_pretrained(tmp_path / "base", dtype=torch.float32)
    adapted = peft.PeftModel.from_pretrained(base, tmp_path / "adapter").eval()
    apart = peers.same_model(probe, adapted.base_model.model, tmp_path / "base", tmp_path, Adapter=str(tmp_path / "adapter"))
    # the adapter has a say at all
    plain, _ = peers.our_logits(probe, tmp_path / "base", kind, *peers.questions(300), tmp_path)
    with adapted.disable_adapter():
        peers.close("logits without the adapter", plain, peers.their_logits(adapted.base_model.model, *peers.questions(300)), 2e-5)
    with pytest.raises(AssertionError):
        peers.close("logits", plain, peers.their_logits(adapted.base_model.model, *peers.questions(300)), 100 * max(apart, 1e-6))
    # merged by them, merged by us: the same weights
    probe("merge", Policy=policy, Options={"Path": str(tmp_path / "base"), "Adapter": str(tmp_path / "adapter")}, Out=str(tmp_path / "merged"))
    theirs = adapted.merge_and_unload()
    again, info = peers.AUTO[kind].from_pretrained(tmp_path / "merged", output_loading_info=True)
    assert not any(info.values()), info
    assert str(again.dtype) == f"torch.{dtype}"
    want = theirs.state_dict()
    for key, value in again.state_dict().items():
        peers.close(f"merged {key}", value, want[key], 1e-6 if dtype == "float32" else 2**-8)


@pytest.mark.parametrize("rslora", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_they_read_ours(probe, tmp_path, name, rslora):
    make, targets = MODELS[name]
    model = make()
    kind = peers.kind_of(model)
    policy = peers.POLICY[kind]
    model.save_pretrained(tmp_path / "base")
    options = {"Path": str(tmp_path / "base"), "LoRA": {"Enabled": True, "Rank": 3, "Alpha": 7, "Dropout": 0, "TargetModules": targets, "RSLoRA": rslora}}
    probe("adapter", Policy=policy, Options=options, Seed=1, Perturb=0.1, Out=str(tmp_path / "adapter"), Folder=str(tmp_path / "base"))
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)  # PEFT warns of adapter keys that it misses
        adapted = peft.PeftModel.from_pretrained(model, tmp_path / "adapter").eval()
    ours = load_file(tmp_path / "adapter" / "adapter_model.safetensors")
    loaded = {n: p for n, p in adapted.named_parameters() if "lora_" in n}
    assert len(loaded) == len(ours) > 0
    assert sorted(v.double().norm().item() for v in ours.values()) == sorted(v.double().norm().item() for v in loaded.values())
    peers.same_model(probe, adapted.base_model.model, tmp_path / "base", tmp_path, Adapter=str(tmp_path / "adapter"))


def test_keys_of_today(probe, tmp_path):
    """Every key that today's adapter_config.json has is understood, or refused by name where it asks for another arithmetic."""
    model = peers.qwen2()
    model.save_pretrained(tmp_path / "base")
    adapted = peft.get_peft_model(model, peft.LoraConfig(task_type="CAUSAL_LM", target_modules=["q_proj"], r=2))
    adapted.save_pretrained(tmp_path / "adapter")
    path = tmp_path / "adapter" / "adapter_config.json"
    config = json.loads(path.read_text())
    ask = dict(Policy="vl", Options={"Path": str(tmp_path / "base"), "Adapter": str(tmp_path / "adapter")}, Prompts=[[5]], Completions=[[[6]]])
    probe("score", **ask)
    for key, value in dict(use_dora=True, bias="all", lora_bias=True, modules_to_save=["lm_head"], layers_to_transform=[0], fan_in_fan_out=True,
                           target_parameters=["q_proj.weight"], trainable_token_indices=[1], init_lora_weights="pissa", peft_type="LOHA", kasa_config={"beta": 1e-4},
                           monteclora_config={"samples": 8}, use_bdlora={"nblocks": 2}).items():
        assert key in config
        path.write_text(json.dumps({**config, key: value}))
        with pytest.raises(peers.Refused, match=key):
            probe("score", **ask)
    known = {"alora_invocation_tokens", "alpha_pattern", "arrow_config", "auto_mapping", "base_model_name_or_path", "bias", "corda_config",
             "ensure_weight_tying", "eva_config", "exclude_modules", "fan_in_fan_out", "inference_mode", "init_lora_weights", "kasa_config", "layer_replication",
             "layers_pattern", "layers_to_transform", "loftq_config", "lora_alpha", "lora_bias", "lora_dropout", "lora_ga_config", "megatron_config",
             "megatron_core", "modules_to_save", "monteclora_config", "peft_type", "peft_version", "qalora_group_size", "r", "rank_pattern", "revision", "target_modules",
             "target_parameters", "task_type", "trainable_token_indices", "use_bdlora", "use_dora", "use_qalora", "use_rslora", "velora_config"}
    assert set(config) <= known, f"new keys: {set(config) - known}"
