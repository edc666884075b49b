"""Model folders both ways: what transformers writes is read by us and the reverse, with the same logits and greedy tokens."""

import json

import pytest
import torch
import transformers
from safetensors.torch import load_file

import peers

MODELS = {
    "qwen2 tied": peers.qwen2,
    "qwen2 untied": lambda: peers.qwen2(tie_word_embeddings=False),
    "qwen2 one key head": lambda: peers.qwen2(num_key_value_heads=1, rope_theta=1e6),
    "qwen2_5_vl tied": peers.qwen2_5_vl,
    "qwen2_5_vl untied": lambda: peers.qwen2_5_vl(tied=False),
    "t5": peers.t5,
    "t5 gated, tied": lambda: peers.t5(gated=True),
    "t5 gated, untied": lambda: peers.untie(peers.t5(gated=True)),
    "bart": peers.bart,
    "bart scaled": lambda: peers.bart(scale_embedding=True, activation_function="relu"),
}
SHARDS = {"one file": "5GB", "shards": "40KB"}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("shards", SHARDS)
@pytest.mark.parametrize("name", MODELS)
def test_we_read_theirs(probe, tmp_path, name, shards, dtype):
    """Both sides compute in float32, whatever the file's type."""
    model = MODELS[name]().to(getattr(torch, dtype))
    model.save_pretrained(tmp_path / "theirs", max_shard_size=SHARDS[shards])
    assert (tmp_path / "theirs" / "model.safetensors.index.json").exists() == (shards == "shards")
    again = peers.AUTO[peers.kind_of(model)].from_pretrained(tmp_path / "theirs", dtype=torch.float32)
    peers.same_model(probe, again.eval(), tmp_path / "theirs", tmp_path)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", MODELS)
def test_they_read_ours(probe, tmp_path, name, dtype):
    """Ours is what we write after reading theirs: no weight may change, and nothing may be missing or left over."""
    model = MODELS[name]()
    if dtype == "bfloat16":
        model = model.to(torch.bfloat16)
    model.save_pretrained(tmp_path / "theirs")
    kind = peers.kind_of(model)
    probe("merge", Policy=peers.POLICY[kind], Options={"Path": str(tmp_path / "theirs")}, Out=str(tmp_path / "ours"))
    again, info = peers.AUTO[kind].from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert not any(info.values()), info
    assert again.dtype == model.dtype
    want = dict(model.state_dict())
    for key, value in again.state_dict().items():
        assert torch.equal(value, want[key]), f"{key} has changed"
    # In float32 both sides compute the same; bfloat16 weights are computed with in float32 here.
    peers.same_model(probe, again.float().eval(), tmp_path / "ours", tmp_path)


@pytest.mark.parametrize("name", ["qwen2 tied", "t5", "t5 gated, untied", "bart"])
def test_bfloat16_arithmetic(probe, tmp_path, name):
    """Both sides compute in bfloat16: logits as far as its digits let them be from those of float32. Rounding differs: 0.9 to 1.3
    times theirs over four draws of the weights."""
    model = MODELS[name]().to(torch.bfloat16)
    model.save_pretrained(tmp_path / "theirs")
    prompts, completions = peers.questions(300)
    theirs = peers.their_logits(model, prompts, completions)
    exact = peers.their_logits(model.float(), prompts, completions)
    ours, _ = peers.our_logits(probe, tmp_path / "theirs", peers.kind_of(model), prompts, completions, tmp_path, DType="bfloat16")
    spread = [(z - exact).square().mean().sqrt().item() for z in (ours, theirs)]
    assert 0 < spread[0] < 1.5 * spread[1], spread


@pytest.mark.parametrize("rows", [311, 384])
@pytest.mark.parametrize("name", MODELS)
def test_resized_vocabulary(probe, tmp_path, name, rows):
    model = MODELS[name]()
    if "vl" in name:
        rows += 340  # the ids of its placeholders must stay
    model.resize_token_embeddings(rows, mean_resizing=False)
    model.save_pretrained(tmp_path / "theirs")
    peers.same_model(probe, model, tmp_path / "theirs", tmp_path)


def test_tied_config_with_a_head_of_its_own(probe, tmp_path):
    """A folder whose config.json says tied, but holds another head: transformers takes the head, and so do we."""
    for kind, model in ("qwen2", peers.qwen2(tie_word_embeddings=False)), ("t5", peers.untie(peers.t5())):
        folder = tmp_path / kind
        model.save_pretrained(folder)
        config = json.loads((folder / "config.json").read_text())
        config["tie_word_embeddings"] = True
        (folder / "config.json").write_text(json.dumps(config))
        assert "lm_head.weight" in load_file(folder / "model.safetensors")
        again = peers.AUTO[kind].from_pretrained(folder).eval()
        assert again.lm_head.weight is not again.get_input_embeddings().weight
        peers.same_model(probe, again, folder, tmp_path)


@pytest.mark.parametrize("name", ["tiny_tied", "tiny_untied_bf16"])
def test_old_folders_qwen(probe, tmp_path, name):
    """Folders in the layout of the published models."""
    folder = peers.DATA / "qwen2_5_vl" / name
    model, info = transformers.Qwen2_5_VLForConditionalGeneration.from_pretrained(folder, output_loading_info=True, dtype=torch.float32)
    assert not any(info.values()), info
    peers.same_model(probe, model.eval(), folder, tmp_path)


@pytest.mark.parametrize("name", ["tiny_t5", "tiny_t5_v11", "tiny_bart"])
def test_old_folders_seq2seq(probe, tmp_path, name):
    folder = peers.DATA / "seq2seq" / name
    model, info = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder, output_loading_info=True)
    assert not any(info.values()), info
    peers.same_model(probe, model.eval(), folder, tmp_path)
    # and as transformers writes it today
    model.save_pretrained(tmp_path / "today")
    peers.same_model(probe, model.eval(), tmp_path / "today", tmp_path)
