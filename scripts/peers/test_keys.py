"""Keys of config.json, preprocessor_config.json and generation_config.json: each one that transformers' classes have is used, listed as
without effect, or refused by name (docs/model_folders.md). The lists are compared with the classes, so that a new key is noticed, and
with numbers: a key with another value changes ours as theirs, or is refused."""

import json
import typing

import pytest
import torch
import transformers
from transformers.models.clip.configuration_clip import CLIPTextConfig, CLIPVisionConfig
from transformers.models.qwen2_5_vl.configuration_qwen2_5_vl import Qwen2_5_VLTextConfig, Qwen2_5_VLVisionConfig
from transformers.models.qwen2_vl.configuration_qwen2_vl import Qwen2VLTextConfig, Qwen2VLVisionConfig
from transformers.models.qwen3_vl.configuration_qwen3_vl import Qwen3VLTextConfig, Qwen3VLVisionConfig
from transformers.models.qwen2_vl.video_processing_qwen2_vl import Qwen2VLVideoProcessor

import families
import peers
import test_images

CONFIGS = [transformers.Qwen2VLConfig, Qwen2VLTextConfig, Qwen2VLVisionConfig, transformers.Qwen3VLConfig, Qwen3VLTextConfig, Qwen3VLVisionConfig,
           transformers.Qwen2_5_VLConfig, Qwen2_5_VLTextConfig, Qwen2_5_VLVisionConfig, transformers.Qwen2Config, transformers.Qwen3Config,
           transformers.LlamaConfig, transformers.MistralConfig, transformers.SmolLM3Config, transformers.T5Config, transformers.BartConfig, transformers.CLIPConfig, CLIPTextConfig, CLIPVisionConfig]
PROCESSORS = [transformers.Qwen2VLImageProcessor, Qwen2VLVideoProcessor, transformers.CLIPImageProcessor]


def names_of(cls):
    if cls in PROCESSORS:
        return set(typing.get_type_hints(cls.valid_kwargs))
    made = cls()
    names = {k for k in made.__dict__ if not k.endswith("_internal") and k not in ("_post_init_done", "_output_attentions", "_original_object_hash")}
    return names | set(getattr(made, "attribute_map", {}))


def listed(probe):
    """What our side says of a class's keys: all lists in which the class is named, together."""
    known = {}
    for table in probe("keys")["keys"]:
        keys = [*(table["Used"] or []), *(table["Idle"] or []), *(table["Want"] or {}), *(table["Alias"] or {})]
        for cls in table["Class"].split(", "):
            known.setdefault(cls, set()).update(keys)
    return known


@pytest.mark.parametrize("cls", [*CONFIGS, *PROCESSORS, transformers.GenerationConfig], ids=lambda c: c.__name__)
def test_every_key_is_listed(probe, cls):
    names = names_of(cls)
    assert len(names) > 10
    unknown = names - listed(probe)[cls.__name__]
    assert not unknown, f"transformers {transformers.__version__} has keys that our lists lack: {sorted(unknown)}"


ACTS = ["gelu", "quick_gelu", "gelu_new", "gelu_fast", "relu", "relu2", "gelu_10", "mish", "linear", "swish", "tanh"]
OTHER = {"hidden_act": ACTS, "activation_function": ACTS, "dense_act_fn": ACTS, "feed_forward_proj": ["gelu", "gated-gelu", "gated-silu", "relu"],
         "rope_parameters": [{"rope_theta": 77.0}, {"rope_theta": 1e4, "rope_type": "linear", "factor": 2.0}], "rope_theta": [77.0],
         "layer_types": [], "fullatt_block_indexes": [[0], [0, 1, 2, 3]], "per_layer_config": [{"0": {"rms_norm_eps": 0.5}}]}


def others(key, value):
    """Values that the key does not have."""
    if key in OTHER:
        return OTHER[key]
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, (int, float)):
        return [value * 2, value + 1, value / 2 if isinstance(value, float) else value - 1]
    if value is None:
        return [True, 1, 0.5]
    return []


def compare(theirs, ours, what):
    """theirs and ours return logits; ours may refuse. A folder that transformers cannot read or compute with says nothing."""
    try:
        want = theirs()
    except Exception:
        return "unread"
    if not want.isfinite().all():
        return "unread"
    try:
        got = ours()
    except peers.Refused:
        return "refused"
    peers.close(what, got, want, 1e-3)
    return "equal"


# Parts, names and versions; and decoder_start_token_id, of which generation_config.json has the last word.
LEFT = {"text_config", "vision_config", "transformers_version", "architectures", "model_type", "id2label", "label2id", "decoder_start_token_id"}


def walk(folder, parts, theirs, ours):
    """Gives every key of parts, objects of the folder's config.json and their classes, other values; returns what became of them."""
    path = folder / "config.json"
    original = json.loads(path.read_text())
    ends = {}
    for part, cls in parts:
        for key in sorted(names_of(cls) - LEFT):
            for value in others(key, getattr(cls(), key, None)):
                config = json.loads(json.dumps(original))
                (config[part] if part else config)[key] = value
                path.write_text(json.dumps(config))
                end = compare(theirs, ours, f"{part}.{key} = {value}")
                ends.setdefault(end, []).append(f"{part}.{key}={value}")
    path.write_text(json.dumps(original))
    return ends


@pytest.mark.parametrize("name", ["qwen2", "t5", "t5 gated", "bart", "llama 3", "qwen3", "mistral", "smollm3"])
def test_values_of_text_models(probe, tmp_path, name):
    own = {"qwen2": peers.qwen2, "t5": peers.t5, "t5 gated": lambda: peers.t5(gated=True), "bart": peers.bart}
    model = own[name]() if name in own else families.large(name)
    kind = peers.kind_of(model)
    folder = tmp_path / "model"
    model.save_pretrained(folder)
    prompts, completions = peers.questions(300, ((7, (5,)),))

    def theirs():
        return peers.their_logits(peers.AUTO[kind].from_pretrained(folder, dtype=torch.float32).eval(), prompts, completions)

    def ours():
        return peers.our_logits(probe, folder, kind, prompts, completions, tmp_path)[0]

    assert compare(theirs, ours, "the folder as it is") == "equal"
    ends = walk(folder, [("", type(model.config))], theirs, ours)
    print(ends)
    assert len(ends["equal"]) > 10 and ends["refused"]


def test_values_of_pictures(probe, tmp_path):
    """The model with eyes: text_config and vision_config, with a picture in the prompt."""
    model = peers.qwen2_5_vl()
    folder = tmp_path / "model"
    processor = transformers.AutoProcessor.from_pretrained(test_images.FOLDER, use_fast=False)
    model.save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json", "preprocessor_config.json", "chat_template.json"):
        (folder / name).write_bytes((test_images.FOLDER / name).read_bytes())
    asked = test_images.inputs(processor, "one")
    completion = [5, 9, 14]
    n = asked["input_ids"].shape[1]
    whole = {**asked, "input_ids": torch.cat([asked["input_ids"], torch.tensor([completion])], 1), "attention_mask": torch.ones(1, n + 3, dtype=torch.long),
             "mm_token_type_ids": torch.cat([asked["mm_token_type_ids"], torch.zeros(1, 3, dtype=asked["mm_token_type_ids"].dtype)], 1)}

    @torch.no_grad()
    def theirs():
        net = peers.AUTO["qwen2_5_vl"].from_pretrained(folder, dtype=torch.float32).eval()
        return net(**whole).logits[0, n - 1 : -1].float()

    def ours():
        out = str(tmp_path / "logits.safetensors")
        probe("logits", Policy="vl", Options={"Path": str(folder)}, Messages=[test_images.message("one", True)], Folder=str(folder),
              Completions=[[completion]], Out=out)
        return peers.load_file(out)["logits"]

    assert compare(theirs, ours, "the folder as it is") == "equal"
    ends = walk(folder, [("", transformers.Qwen2_5_VLConfig), ("text_config", Qwen2_5_VLTextConfig), ("vision_config", Qwen2_5_VLVisionConfig)], theirs, ours)
    print(ends)
    assert len(ends["equal"]) > 20 and ends["refused"]


# Of every key that changes what is drawn greedily, values that do; those of sampling are compared by torchx's own test of min_p.
DRAWN = {
    "no_repeat_ngram_size": [1, 2, 3], "encoder_no_repeat_ngram_size": [1, 2], "repetition_penalty": [], "encoder_repetition_penalty": [1.7],
    "min_length": [6, 14], "min_new_tokens": [1, 6], "suppress_tokens": "tokens", "begin_suppress_tokens": "tokens", "bad_words_ids": "words",
    "sequence_bias": "bias", "num_beams": [3], "length_penalty": [2.0], "early_stopping": [True], "guidance_scale": [1.5], "renormalize_logits": [True],
    "remove_invalid_values": [True], "exponential_decay_length_penalty": [[2, 1.5]], "typical_p": [0.5], "epsilon_cutoff": [0.1], "eta_cutoff": [0.1],
    "top_h": [0.3], "min_p": [0.5], "num_return_sequences": [2], "penalty_alpha": [0.6], "watermarking_config": [{"bias": 9.0, "seeding_scheme": "lefthash"}],
    "prompt_lookup_num_tokens": [3], "use_cache": [False], "max_time": [1e9], "stop_strings": [["a"]], "token_healing": [True], "dola_layers": ["high"],
    "num_beam_groups": [2], "diversity_penalty": [0.5], "force_words_ids": "words", "cache_implementation": ["static"], "low_memory": [True],
}


@pytest.mark.parametrize("name", ["qwen2", "t5", "bart"])
def test_generation(probe, tmp_path, name):
    model = {"qwen2": peers.qwen2, "t5": peers.t5, "bart": peers.bart}[name]()
    kind = peers.kind_of(model)
    prompt = peers.ids(9, 300, 3)
    free = peers.their_greedy(model, prompt, 12)
    end = next(t for t in free[4:] if t not in free[:3])
    model.generation_config.eos_token_id = model.config.eos_token_id = end
    model.generation_config.forced_eos_token_id = None
    model.save_pretrained(tmp_path / "model")
    values = {"tokens": [[free[0]], [free[0], free[2], 7]], "words": [[free[:2]], [[free[1]], free[:3]]], "bias": [[[[free[1]], -20.0]]]}
    ends = {}
    for key, of in DRAWN.items():
        for value in values[of] if isinstance(of, str) else of:
            try:
                config = transformers.GenerationConfig(**{**model.generation_config.to_diff_dict(), key: value, "max_new_tokens": 12})
                cache = {} if key in ("use_cache", "cache_implementation", "prompt_lookup_num_tokens") else {"use_cache": False}  # as their_greedy
                out = model.generate(torch.tensor([prompt]), generation_config=config, **cache)
            except Exception:
                ends.setdefault("unread", []).append(key)
                continue
            want = [row[1 if model.config.is_encoder_decoder else len(prompt):] for row in out.tolist()]
            try:
                got = probe("generate", Policy=peers.POLICY[kind], Options={"Path": str(tmp_path / "model")}, Prompts=[prompt], Tokens=12,
                            Constraints={key: value})["completions"][0]
            except peers.Refused:
                ends.setdefault("refused", []).append(key)
                continue
            assert got == want, f"{key} = {value}"
            ends.setdefault("equal", []).append(key)
    print(ends)
    assert {"no_repeat_ngram_size", "min_length", "min_new_tokens", "suppress_tokens", "begin_suppress_tokens", "bad_words_ids"} <= set(ends["equal"])
    assert {"num_beams", "sequence_bias", "guidance_scale"} <= set(ends["refused"] + ends.get("unread", []))
