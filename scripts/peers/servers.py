"""llama-cpp-python's server behind lvlm.backend=completions: a tiny Llama with random weights, written as GGUF here. Likelihoods are those
that llama.cpp gives without a server; a server that cannot score is refused. Run by test_servers.sh."""

import json
import math
import pathlib
import socket
import subprocess
import sys
import time
import urllib.request

import gguf
import llama_cpp
import numpy as np
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
WIDTH, HEADS, LAYERS, INNER, CONTEXT = 64, 4, 2, 128, 512
QUESTIONS = ["What colour is it?", "How many dogs are there?", "Where?"]
ANSWERS = ["red", "a green dog", "2", "blue!"]


def write(path, bos=True):
    """A model whose pieces are bytes, letters, letters behind a space and a few words."""
    draw = np.random.default_rng(0)
    out = gguf.GGUFWriter(path, "llama")
    special, byte, normal = gguf.TokenType.CONTROL, gguf.TokenType.BYTE, gguf.TokenType.NORMAL
    vocab = [("<unk>", gguf.TokenType.UNKNOWN), ("<s>", special), ("</s>", special)] + [(f"<0x{b:02X}>", byte) for b in range(256)]
    pieces = ["\u2581", "\n", *map(chr, range(33, 127)), *("\u2581" + chr(c) for c in range(97, 123)), "re", "red", "\u2581re", "\u2581red"]
    vocab += [(piece, normal) for piece in pieces]
    out.add_context_length(CONTEXT)
    out.add_embedding_length(WIDTH)
    out.add_block_count(LAYERS)
    out.add_feed_forward_length(INNER)
    out.add_head_count(HEADS)
    out.add_head_count_kv(HEADS)
    out.add_rope_dimension_count(WIDTH // HEADS)
    out.add_layer_norm_rms_eps(1e-5)
    out.add_vocab_size(len(vocab))
    out.add_file_type(gguf.LlamaFileType.ALL_F32)
    out.add_tokenizer_model("llama")
    out.add_token_list([text.encode() for text, _ in vocab])
    out.add_token_scores([-float(i) for i in range(len(vocab))])
    out.add_token_types([kind for _, kind in vocab])
    out.add_bos_token_id(1)
    out.add_eos_token_id(2)
    out.add_unk_token_id(0)
    out.add_add_bos_token(bos)

    def add(name, *shape, scale):
        out.add_tensor(name, (draw.standard_normal(shape) * scale).astype(np.float32))

    add("token_embd.weight", len(vocab), WIDTH, scale=1)
    out.add_tensor("output_norm.weight", np.ones(WIDTH, np.float32))
    add("output.weight", len(vocab), WIDTH, scale=0.3)
    for i in range(LAYERS):
        for name in "attn_norm", "ffn_norm":
            out.add_tensor(f"blk.{i}.{name}.weight", np.ones(WIDTH, np.float32))
        for name in "attn_q", "attn_k", "attn_v", "attn_output":
            add(f"blk.{i}.{name}.weight", WIDTH, WIDTH, scale=WIDTH**-0.5)
        for name, shape in ("ffn_gate", (INNER, WIDTH)), ("ffn_up", (INNER, WIDTH)), ("ffn_down", (WIDTH, INNER)):
            add(f"blk.{i}.{name}.weight", *shape, scale=shape[1] ** -0.5)
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()
    return path


class Server:
    def __init__(self, model, *arguments):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            port = s.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        command = [sys.executable, "-m", "llama_cpp.server", "--model", model, "--n_ctx", str(CONTEXT), "--n_threads", "1", "--port", str(port)]
        self.process = subprocess.Popen([*command, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(600):
            try:
                urllib.request.urlopen(self.url + "/v1/models", timeout=1).close()
                return
            except OSError:
                assert self.process.poll() is None, "the server has ended"
                time.sleep(0.1)
        raise AssertionError("the server does not answer")

    def close(self):
        self.process.terminate()
        self.process.wait()


def ask(do, server, prompts, **options):
    job = {"Do": do, "Asked": prompts, "Server": {"Backend": "completions", "URL": server.url, **options}}
    done = subprocess.run([ROOT / "build" / "probe"], input=json.dumps(job) + "\n", capture_output=True, text=True)
    return json.loads(done.stdout)


def prompts():
    shots = [{"Question": "What is this?", "Answer": "red"}, {"Question": "And that?", "Answer": "two dogs"}]
    return [{"Shots": shots[:n], "Query": {"ID": n, "Question": q, "Answer": a}} for n in range(3) for q in QUESTIONS for a in ANSWERS]


def text(prompt):
    lines = [f"Question: {s['Question']}\nShort answer: {s['Answer']}\n" for s in prompt["Shots"]]
    return "".join(lines) + f"Question: {prompt['Query']['Question']}\nShort answer:"


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return str(write(str(tmp_path_factory.mktemp("gguf") / "toy.gguf")))


def test_likelihoods_are_those_of_llama_cpp(model, tmp_path):
    server = Server(model, "--logits_all", "true")
    try:
        store = {"Store": str(tmp_path / "store")}
        answer = ask("likelihood", server, prompts(), **store)
        assert "error" not in answer, answer
        greedy = ask("answer", server, prompts()[:2], **store)
        assert len(greedy["texts"]) == 2, greedy
    finally:
        server.close()
    llama = llama_cpp.Llama(model, logits_all=True, n_ctx=CONTEXT, n_threads=1, verbose=False)
    for prompt, row in zip(prompts(), answer["logp"]):
        before, whole = (llama.tokenize(t.encode(), add_bos=True) for t in (text(prompt), f"{text(prompt)} {prompt['Query']['Answer']}\n"))
        assert whole[: len(before)] == before
        llama.reset()
        llama.eval(whole)
        logits = np.asarray(llama.scores[: len(whole)], np.float64)
        want = [logits[i - 1][whole[i]] - np.log(np.exp(logits[i - 1]).sum()) for i in range(len(before), len(whole))]
        assert len(row[0]) == len(want), prompt
        for got, w in zip(row[0], want):
            assert math.isclose(got, w, abs_tol=1e-4), (prompt, row[0], want)


@pytest.mark.parametrize("fault", ["no logits of prompts", "no token before the first"])
def test_what_cannot_score_is_refused(fault, model, tmp_path):
    """Without logits_all the server refuses. Without a BOS token its log-probabilities are off by one, which it does not say."""
    if fault == "no logits of prompts":
        server = Server(model, "--logits_all", "false")
    else:
        server = Server(write(str(tmp_path / "bare.gguf"), bos=False), "--logits_all", "true")
    try:
        start = time.time()
        answer = ask("likelihood", server, prompts()[:1])
        assert "refused: " in answer.get("error", "") and "\n" not in answer["error"], answer
        assert ("logits_all" in answer["error"]) == (fault == "no logits of prompts"), answer
        print(fault, round(time.time() - start, 1), answer["error"])
    finally:
        server.close()
