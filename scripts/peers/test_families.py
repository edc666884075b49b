"""Text models of all families, drawn at random: what we answer is what transformers answers, all else is refused by the name of its key,
and nothing is refused that is said to be read (docs/model_folders.md)."""

import pytest
import torch
import transformers

import families
import peers


def reread(folder):
    return transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()


@pytest.mark.parametrize("seed", range(300))
def test_drawn(probe, tmp_path, seed):
    kind, values, how, refused = families.draw(seed)
    try:
        families.save(families.make(kind, values, seed), tmp_path / "theirs", **how)
        theirs = reread(tmp_path / "theirs")
    except (ValueError, KeyError, RuntimeError) as e:
        pytest.fail(f"transformers refuses {kind} {values}: {e}")
    tolerance = 1e-4 if how["dtype"] == "float32" else 2e-4  # rounded weights are further apart: larger sums
    if refused:
        with pytest.raises(peers.Refused, match=refused):
            peers.same_model(probe, theirs, tmp_path / "theirs", tmp_path, tolerance)
        return
    peers.same_model(probe, theirs, tmp_path / "theirs", tmp_path, tolerance)


@pytest.mark.parametrize("name", families.FIXED)
def test_they_read_ours(probe, tmp_path, name):
    """What we write after reading theirs has the same weights, and adapters go through PEFT (test_adapters.py) as those of Qwen2."""
    kind, values = families.FIXED[name]
    model = families.make(kind, values)
    families.save(model, tmp_path / "theirs")
    probe("merge", Policy="vl", Options={"Path": str(tmp_path / "theirs")}, Out=str(tmp_path / "ours"))
    again, info = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "ours", output_loading_info=True, attn_implementation="eager")
    assert not any(info.values()), info
    want = dict(model.state_dict())
    for key, value in again.state_dict().items():
        assert torch.equal(value, want[key]), f"{key} has changed"
    peers.same_model(probe, again.eval(), tmp_path / "ours", tmp_path, 1e-4)


def test_unknown(probe, tmp_path):
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(vocab_size=50, n_embd=8, n_layer=1, n_head=1, n_positions=16))
    model.save_pretrained(tmp_path)
    with pytest.raises(peers.Refused, match="GPT2LMHeadModel.*LlamaForCausalLM"):
        probe("logits", Policy="vl", Options={"Path": str(tmp_path)}, Prompts=[[1]], Completions=[[[2]]], Out=str(tmp_path / "x"))
